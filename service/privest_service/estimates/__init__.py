"""Estimates: planned from public facts, charged, then run by worker processes."""
