"""Private search for undeclared bounds and scales of columns, and of distances from a point."""
