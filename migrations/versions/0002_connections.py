"""Connections, from which owners register datasets, and who may use which."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "connections",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_connections")),
    )
    op.create_table(
        "connection_owners",
        sa.Column("connection_name", sa.String(length=63), nullable=False),
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["connection_name"], ["connections.name"], name=op.f("fk_connection_owners_connection_name")
        ),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name=op.f("fk_connection_owners_owner_id")),
        sa.PrimaryKeyConstraint("connection_name", "owner_id", name=op.f("pk_connection_owners")),
    )
    op.create_index(op.f("ix_connection_owners_owner_id"), "connection_owners", ["owner_id"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_connection_owners_owner_id"), table_name="connection_owners")
    op.drop_table("connection_owners")
    op.drop_table("connections")
