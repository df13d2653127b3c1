"""Editing: the plan for every tensor, and the streamed edit that carries it out."""
