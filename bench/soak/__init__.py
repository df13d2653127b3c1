"""A thousand jobs while processes are killed at random: `python -m bench.soak`."""
