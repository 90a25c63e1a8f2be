"""Iterations that several estimators share."""
