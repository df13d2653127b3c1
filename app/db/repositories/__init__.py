"""All SQL."""
