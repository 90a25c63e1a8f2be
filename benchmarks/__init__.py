"""Measurements of time and accuracy; results go to benchmarks/results and to pages in docs/."""
