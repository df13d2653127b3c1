"""The service: what can be asked for, and what is known about it."""
