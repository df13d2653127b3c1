"""The one chain of schema revisions, for both databases."""
