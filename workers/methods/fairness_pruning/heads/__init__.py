"""Attention heads: scores, selection, masks and edits. An extension, not part of the article."""
