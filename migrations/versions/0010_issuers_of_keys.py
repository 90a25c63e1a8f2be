"""Which key issued a key, so that it ends with that."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Of keys of before nobody knows what issued them: they stand alone.
    op.add_column("api_keys", sa.Column("issued_by", sa.String(length=40), nullable=True))
    op.create_index(op.f("ix_api_keys_issued_by"), "api_keys", ["issued_by"])


def downgrade() -> None:
    op.drop_index(op.f("ix_api_keys_issued_by"), table_name="api_keys")
    op.drop_column("api_keys", "issued_by")
