"""Solvers of published papers that no default of Privest uses; each is chosen by its name."""
