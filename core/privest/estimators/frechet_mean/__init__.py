"""The private Fréchet mean."""
