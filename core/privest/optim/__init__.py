"""Descent methods that several estimators share."""
