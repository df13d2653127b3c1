"""One module per debiasing method, each with a METHOD."""
