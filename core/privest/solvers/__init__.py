"""Iterations that know a manifold and a gate, nothing else."""
