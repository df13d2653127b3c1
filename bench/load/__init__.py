"""Ten thousand queued jobs and two hundred event streams: `python -m bench.load`."""
