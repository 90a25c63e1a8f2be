"""Tallies of what each submitter asked, from the entries that are there."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_AMOUNTS = ("epsilon", "delta", "mu_squared", "slack")
_CAP = 2**62
_QUERIES = {"debit": 1, "void": -1}

_KEY = ("account_id", "submitter_id", "lineage", "kind")

_MOVED = sa.text("""
    SELECT e.account_id, j.submitter_id, coalesce(rows_of.subject, '') AS lineage, j.kind,
        e.kind AS movement, e.epsilon, e.delta, e.mu_squared, e.slack, e.at
    FROM entries e
    JOIN accounts a ON a.id = e.account_id AND a.scope = 'owner'
    JOIN jobs j ON j.id = e.job_id
    LEFT JOIN (
        SELECT d.job_id, of.subject FROM entries d
        JOIN accounts of ON of.id = d.account_id AND of.scope = 'dataset'
        WHERE d.kind = 'debit'
    ) rows_of ON rows_of.job_id = e.job_id
    WHERE e.kind IN ('debit', 'void')
    ORDER BY e.account_id, e.seq
""").columns(at=sa.DateTime(timezone=True))


def upgrade() -> None:
    tallies = op.create_table(
        "tallies",
        sa.Column("account_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("submitter_id", sa.String(length=40), nullable=False),
        sa.Column("lineage", sa.String(length=90), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("queries", *_AMOUNTS)),
        *(sa.Column(name, sa.DateTime(timezone=True), nullable=False) for name in ("first_at", "last_at")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_tallies_account_id")),
        sa.PrimaryKeyConstraint(*_KEY, name=op.f("pk_tallies")),
    )
    connection, found = op.get_bind(), dict[tuple, dict]()
    for each in connection.execute(_MOVED).mappings():
        key = tuple(each[name] for name in _KEY)
        nothing = dict.fromkeys(("queries", *_AMOUNTS), 0) | {"first_at": each["at"]}
        tally = found.setdefault(key, dict(zip(_KEY, key, strict=True)) | nothing)
        tally["queries"] += _QUERIES[each["movement"]]
        for name in _AMOUNTS:  # one that came to the cap stays there, as sums of accounts do
            tally[name] = _CAP if tally[name] == _CAP else min(tally[name] + each[name], _CAP)
        if each["movement"] == "debit":
            tally["last_at"] = each["at"]
    if found:
        connection.execute(tallies.insert(), list(found.values()))


def downgrade() -> None:
    op.drop_table("tallies")
