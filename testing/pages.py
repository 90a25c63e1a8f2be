"""Names the pages of the documentation that tests run together."""

PAGES_OF_CALLS = (
    "docs/data.md",
    "docs/several-owners.md",
    "docs/asking.md",
    "docs/ledger.md",
    "docs/approvals.md",
)
"""Pages that show the calls which the README leaves out. They run in the README's shell."""
