"""Methods that test the service, switched on with DEBIAS_EXTRA_METHODS only."""
