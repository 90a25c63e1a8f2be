"""Names the pages of the documentation that tests run together."""

PAGES_OF_CALLS = ("docs/data.md", "docs/several-owners.md", "docs/ledger.md")
"""They show the calls that the README leaves to them, and go on in its shell."""
