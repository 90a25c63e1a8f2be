"""Pages of long records: acts of one subject in their order, and entries that set limits."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("ix_acts_subject", table_name="acts")
    op.create_index("ix_acts_subject", "acts", ["chain", "subject", "seq"])
    limits = sa.text("kind = 'limit'")
    op.create_index(
        "ix_entries_limits", "entries", ["account_id", "seq"], sqlite_where=limits, postgresql_where=limits
    )


def downgrade() -> None:
    op.drop_index("ix_entries_limits", table_name="entries")
    op.drop_index("ix_acts_subject", table_name="acts")
    op.create_index("ix_acts_subject", "acts", ["chain", "subject"])
