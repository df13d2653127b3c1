"""Reporting: evidence gathered from the phases, and what is said and drawn of it."""
