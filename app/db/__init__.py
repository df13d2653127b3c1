"""Tables, sessions, repositories."""
