"""Notices to owners: written with what they tell of, delivered by webhook, by e-mail or into a file."""
