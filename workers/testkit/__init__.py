"""Engines and models for tests of the service; none needs torch."""
