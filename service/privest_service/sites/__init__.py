"""Sites: a service that has rows offers datasets to another one, its hub, and takes part in its questions.

Both are this program. What a hub does is in `hub` and `endpoints`, what a site does in `connector`, `taking`
and `link`. `tasks` is what the workers of both do.
"""
