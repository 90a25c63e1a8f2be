"""Leavers: people who are listed no more by the identity provider lose their keys and grants here."""
