"""Data owners."""
