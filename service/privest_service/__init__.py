"""The web service: one package per domain, each with endpoints, schemas, models and its one service module."""
