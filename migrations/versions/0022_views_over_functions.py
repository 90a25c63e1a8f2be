"""Views that hide rows read from functions: env.py makes them again, as all views."""

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """No table changes."""


def downgrade() -> None:
    """No table changes."""
