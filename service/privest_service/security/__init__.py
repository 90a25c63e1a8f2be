"""Security: principals, their API keys and their scopes."""
