"""Fairness Pruning: remove the MLP neurons that react most to a swapped demographic word."""
