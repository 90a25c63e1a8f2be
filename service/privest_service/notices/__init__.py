"""Notices to owners and analysts: written with what they tell of, delivered by webhook, e-mail or file."""
