"""Rules of windows, channels to owners, and what waits to be delivered on them."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "window_rules",
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("every", sa.String(length=10), nullable=True),
        sa.Column("most", sa.Integer(), nullable=True),
        sa.Column("least_days", sa.Integer(), nullable=False),
        sa.Column("pace", sa.Integer(), nullable=False),
        sa.Column("total_epsilon", sa.BigInteger(), nullable=True),
        sa.Column("total_delta", sa.BigInteger(), nullable=True),
        sa.Column("began_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name=op.f("fk_window_rules_owner_id")),
        sa.PrimaryKeyConstraint("owner_id", name=op.f("pk_window_rules")),
    )
    op.create_index(op.f("ix_window_rules_due_at"), "window_rules", ["due_at"])
    op.create_table(
        "channels",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("events", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("heads_every", sa.String(length=10), nullable=True),
        sa.Column("heads_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_heads", sa.Text(), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("given_up", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.String(length=200), nullable=True),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name=op.f("fk_channels_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_channels")),
    )
    op.create_index(op.f("ix_channels_owner_id"), "channels", ["owner_id"])
    op.create_index(op.f("ix_channels_heads_due_at"), "channels", ["heads_due_at"])
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("channel_id", sa.String(length=40), nullable=False),
        sa.Column("event", sa.String(length=40), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["channel_id"], ["channels.id"], name=op.f("fk_deliveries_channel_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
    )
    op.create_index(op.f("ix_deliveries_channel_id"), "deliveries", ["channel_id"])


def downgrade() -> None:
    if op.get_bind().scalar(sa.text("SELECT 1 FROM window_rules LIMIT 1")):
        raise RuntimeError("there are rules of windows, promises among them, which nothing would hold to")
    op.drop_table("deliveries")
    op.drop_table("channels")
    op.drop_index(op.f("ix_window_rules_due_at"), table_name="window_rules")
    op.drop_table("window_rules")
