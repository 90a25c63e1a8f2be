"""Channels of analysts, to be told when their questions end."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with _deliveries_aside(), op.batch_alter_table("channels") as table:
        table.alter_column("owner_id", existing_type=sa.String(length=40), nullable=True)
        table.add_column(sa.Column("analyst_id", sa.String(length=40), nullable=True))
        table.create_foreign_key(op.f("fk_channels_analyst_id"), "analysts", ["analyst_id"], ["id"])
        table.create_index(op.f("ix_channels_analyst_id"), ["analyst_id"])
        one = "(owner_id IS NULL) <> (analyst_id IS NULL)"
        table.create_check_constraint(op.f("ck_channels_one_holder"), one)


def downgrade() -> None:
    op.execute("DELETE FROM deliveries WHERE channel_id IN (SELECT id FROM channels WHERE owner_id IS NULL)")
    op.execute("DELETE FROM channels WHERE owner_id IS NULL")
    with _deliveries_aside(), op.batch_alter_table("channels") as table:
        table.drop_constraint(op.f("ck_channels_one_holder"), type_="check")
        table.drop_index(op.f("ix_channels_analyst_id"))
        table.drop_constraint(op.f("fk_channels_analyst_id"), type_="foreignkey")
        table.drop_column("analyst_id")
        table.alter_column("owner_id", existing_type=sa.String(length=40), nullable=False)


@contextmanager
def _deliveries_aside() -> Iterator[None]:
    """Put away what waits on channels while SQLite makes their table anew, which it does by dropping it."""
    if op.get_bind().dialect.name != "sqlite":
        yield
        return
    op.execute("CREATE TEMPORARY TABLE aside AS SELECT * FROM deliveries")
    op.execute("DELETE FROM deliveries")
    yield
    op.execute("INSERT INTO deliveries SELECT * FROM aside")
    op.execute("DROP TABLE aside")
