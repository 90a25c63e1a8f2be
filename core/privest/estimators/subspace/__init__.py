"""Private subspaces: robust PCA, and of rows with gaps."""
