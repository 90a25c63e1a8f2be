"""What tests, the audit and benchmarks share; nothing of it is shipped."""
