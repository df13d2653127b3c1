"""The garbage collector: what has outlived its time goes, and its bytes with it."""
