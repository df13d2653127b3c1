"""Loading, checking and editing checkpoints."""
