"""What does the work; the only place that imports torch."""
