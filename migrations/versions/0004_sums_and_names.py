"""Sums after each entry, counted queries, names of datasets."""

from collections.abc import Iterator
from itertools import groupby

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_AMOUNTS = ("epsilon", "delta", "mu_squared", "slack")
_SUMS = (*(f"{name}_spent" for name in _AMOUNTS), "queries")
_CAP = 2**62
_QUERIES = {"limit": 0, "debit": 1, "void": -1, "loss": 0}  # losses are of later, before a downgrade

_entries = sa.table(
    "entries",
    *(sa.column(name) for name in ("account_id", "seq", "kind", "queries", *_AMOUNTS)),
    *(sa.column(f"{name}_spent") for name in _AMOUNTS),
)
_accounts = sa.table("accounts", sa.column("id"), sa.column("queries"))


def upgrade() -> None:
    for name in _SUMS:
        op.add_column("entries", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("accounts", sa.Column("queries", sa.BigInteger(), nullable=False, server_default="0"))
    _sum_up()
    if op.get_bind().dialect.name == "postgresql":
        # A replica of before, which knows nothing of sums, shall fail rather than write false ones for ever.
        # SQLite has one process, and no way to drop a default but to make the table anew.
        for table, name in (("accounts", "queries"), *(("entries", name) for name in _SUMS)):
            op.alter_column(table, name, server_default=None)
    op.create_index("ix_jobs_submitted", "jobs", ["submitter_id", "created_at"])
    op.add_column("datasets", sa.Column("name", sa.String(length=200), nullable=True))


def _sum_up() -> None:
    """Fill in what entries would have said, had they been written after this migration."""
    connection = op.get_bind()
    columns = ("account_id", "seq", "kind", *_AMOUNTS)
    found = connection.execute(
        sa.select(*(_entries.c[name] for name in columns)).order_by(_entries.c.account_id, _entries.c.seq)
    ).all()
    if not found:
        return
    after, queries = [], {}
    for account, entries in groupby(found, key=lambda entry: entry.account_id):
        sums, count = dict.fromkeys(_AMOUNTS, 0), 0
        for entry in entries:
            count += _QUERIES[entry.kind]
            if entry.kind != "limit":
                sums = {name: min(sums[name] + getattr(entry, name), _CAP) for name in _AMOUNTS}
            place = {"account": account, "place": entry.seq, "queries": count}
            after.append(place | {f"{name}_spent": sums[name] for name in _AMOUNTS})
        queries[account] = count
    for statement in _unlocked(connection.dialect.name):
        op.execute(statement)
    here = sa.and_(_entries.c.account_id == sa.bindparam("account"), _entries.c.seq == sa.bindparam("place"))
    connection.execute(sa.update(_entries).where(here), after)
    connection.execute(
        sa.update(_accounts).where(_accounts.c.id == sa.bindparam("account")),
        [{"account": account, "queries": count} for account, count in queries.items()],
    )
    for statement in _locked(connection.dialect.name):
        op.execute(statement)


def _unlocked(dialect: str) -> Iterator[str]:
    """Entries are only added to: but for this once."""
    if dialect == "sqlite":
        yield "DROP TRIGGER entries_no_update"
    else:
        yield "GRANT UPDATE ON entries TO CURRENT_USER"
        yield "ALTER TABLE entries DISABLE TRIGGER entries_append_only"


def _locked(dialect: str) -> Iterator[str]:
    if dialect == "sqlite":
        yield (
            "CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries "
            "BEGIN SELECT RAISE(ABORT, 'entries are only added to'); END"
        )
    else:
        yield "ALTER TABLE entries ENABLE TRIGGER entries_append_only"
        yield "REVOKE UPDATE ON entries FROM CURRENT_USER"


def downgrade() -> None:
    op.drop_column("datasets", "name")
    op.drop_index("ix_jobs_submitted", table_name="jobs")
    op.drop_column("accounts", "queries")
    for name in reversed(_SUMS):
        op.drop_column("entries", name)
