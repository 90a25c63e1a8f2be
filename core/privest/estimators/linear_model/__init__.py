"""Private linear classifiers, and scores of public ones."""
