"""The  command."""
