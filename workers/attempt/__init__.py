"""One attempt at a job, from its claim to its outcome."""
