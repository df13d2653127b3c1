"""Methods and benchmarks on offer: descriptors and configs, no torch."""
