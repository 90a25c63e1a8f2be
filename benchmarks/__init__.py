"""What is measured rather than tested; results go to docs/benchmarks.md."""
