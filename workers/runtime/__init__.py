"""What an engine runs in."""
