"""Built-in pair sets: prompts that differ in one demographic word, made from tables."""

from app.catalog.pair_sets.generation import Pair, PairSet, load_pair_set, pair_set_names

__all__ = ["Pair", "PairSet", "load_pair_set", "pair_set_names"]
