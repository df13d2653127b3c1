"""HTTP: routes, errors, middleware."""
