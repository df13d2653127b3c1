"""Keys, paths, and checks of hostile files."""
