"""The owner's dashboard: pages, sessions, pictures."""
