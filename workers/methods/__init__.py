"""One folder per debiasing engine."""
