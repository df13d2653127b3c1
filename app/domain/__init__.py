"""Rules as pure functions and data."""
