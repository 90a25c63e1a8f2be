"""The Flower app that rounds.py runs."""
