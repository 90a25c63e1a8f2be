"""Connections: named places that the administrator opens to owners, from which rows are copied."""
