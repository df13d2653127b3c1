"""Other people's services."""
