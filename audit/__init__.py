"""The audit: attacks on what the service claims, each a line of docs/audit.md that can be run again alone."""
