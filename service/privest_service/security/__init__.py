"""Who is calling: principals and their API keys."""
