"""The web service: one package per domain, with endpoints, schemas, models and one service module."""
