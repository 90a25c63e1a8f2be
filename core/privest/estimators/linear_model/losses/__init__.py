"""The losses that linear classifiers minimise, and the counts behind their scores."""
