"""Measuring: pairs, activations and what their differences come to."""
