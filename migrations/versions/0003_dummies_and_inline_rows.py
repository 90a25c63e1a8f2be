"""Jobs on synthetic rows, and datasets that last as long as one job."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("dummy", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("datasets", sa.Column("ephemeral", sa.Boolean(), nullable=False, server_default=sa.false()))
    there = sa.text("ephemeral AND deleted_at IS NULL")
    op.create_index(
        "ix_datasets_ephemeral", "datasets", ["created_at"], sqlite_where=there, postgresql_where=there
    )


def downgrade() -> None:
    op.drop_index("ix_datasets_ephemeral", table_name="datasets")
    op.drop_column("datasets", "ephemeral")
    op.drop_column("jobs", "dummy")
