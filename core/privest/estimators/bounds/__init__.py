"""Private bounds of columns and of distances: where most records are, and their quantiles."""
