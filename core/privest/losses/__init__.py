"""What is minimised, each with the clipped sum over records that a gate may release."""
