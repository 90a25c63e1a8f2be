"""The public face: specification → plan → estimate, one file per estimator."""
