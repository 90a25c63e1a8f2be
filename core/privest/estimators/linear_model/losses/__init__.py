"""What linear classifiers minimise, and what scores count."""
