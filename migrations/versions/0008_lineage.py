"""Accounts are joined by declared lineage instead of the fingerprint of rows; receipts for analysts."""

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_datasets = sa.table(
    "datasets", *map(sa.column, ("id", "owner_id", "fingerprint", "lineage", "ephemeral", "created_at"))
)
_accounts = sa.table("accounts", *map(sa.column, ("id", "owner_id", "scope", "subject")))

_STEP = (
    "(OLD.state = NEW.state OR (OLD.state = 'reserved' AND NEW.state IN ('claimed', 'voided'))"
    " OR (OLD.state = 'claimed' AND NEW.state IN ('committed', 'failed')))"
)


def upgrade() -> None:
    op.add_column("jobs", sa.Column("analyst_receipt", sa.Text(), nullable=True))
    _guard("result", "receipt", "analyst_receipt")
    op.add_column("datasets", sa.Column("lineage", sa.String(length=40), nullable=False, server_default=""))
    _join()
    if op.get_bind().dialect.name == "postgresql":
        # A replica of before, which would join accounts by rows, shall register nothing.
        op.alter_column("datasets", "lineage", server_default=None)


def _join() -> None:
    """Keep today's joins: what was counted together goes on so, under the id of its first dataset.

    Rows that were sent with a question count as the dataset of the same rows, if there is one.
    """
    connection = op.get_bind()
    order = (_datasets.c.ephemeral, _datasets.c.created_at, _datasets.c.id)
    first = dict[tuple[str, str], str]()
    for dataset in connection.execute(sa.select(_datasets).order_by(*order)).all():
        lineage = first.setdefault((dataset.owner_id, dataset.fingerprint), dataset.id)
        connection.execute(sa.update(_datasets).where(_datasets.c.id == dataset.id).values(lineage=lineage))
    for (owner, fingerprint), lineage in first.items():
        _rename(owner, fingerprint, lineage)


def _rename(owner: str, before: str, after: str) -> None:
    theirs = (_accounts.c.owner_id == owner, _accounts.c.scope == "dataset", _accounts.c.subject == before)
    op.get_bind().execute(sa.update(_accounts).where(*theirs).values(subject=after))


def downgrade() -> None:
    counted = sa.and_(
        _accounts.c.owner_id == _datasets.c.owner_id,
        _accounts.c.scope == "dataset",
        _accounts.c.subject == _datasets.c.lineage,
    )
    columns = (_datasets.c.owner_id, _datasets.c.lineage, _datasets.c.fingerprint)
    found = op.get_bind().execute(sa.select(*columns).join(_accounts, counted).distinct()).all()
    if not len(found) == len({row[:2] for row in found}) == len({(row[0], row[2]) for row in found}):
        raise RuntimeError("some datasets are not counted by their rows, for which there was no place")
    for owner, lineage, fingerprint in found:
        _rename(owner, lineage, fingerprint)
    op.drop_column("datasets", "lineage")
    _guard("result", "receipt")
    op.drop_column("jobs", "analyst_receipt")


def _guard(*kept: str) -> None:
    """Let jobs go forward only, and keep these columns once they are written."""
    for statement in _statements(op.get_bind().dialect.name, kept):
        op.execute(statement)


def _statements(dialect: str, kept: tuple[str, ...]) -> Iterator[str]:
    same = " AND ".join(f"(OLD.{it} IS NULL OR COALESCE(OLD.{it} = NEW.{it}, FALSE))" for it in kept)
    if dialect == "sqlite":
        yield "DROP TRIGGER jobs_forward"
        yield (
            f"CREATE TRIGGER jobs_forward BEFORE UPDATE ON jobs WHEN NOT ({_STEP} AND {same}) "
            "BEGIN SELECT RAISE(ABORT, 'jobs go forward only'); END"
        )
    else:
        yield "DROP TRIGGER jobs_forward ON jobs"
        yield (
            f"CREATE TRIGGER jobs_forward BEFORE UPDATE ON jobs FOR EACH ROW WHEN (NOT ({_STEP} AND {same})) "
            "EXECUTE FUNCTION privest_refuse()"
        )
