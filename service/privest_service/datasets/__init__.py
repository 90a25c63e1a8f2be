"""Datasets: validated rows behind public facts, and who may ask about them."""
