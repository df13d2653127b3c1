"""Request and response models."""
