"""Selecting: scores of neurons, and which of them go."""
