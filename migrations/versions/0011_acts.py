"""A chain of acts for each owner and one of the service, begun with what is known of before."""

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import rfc8785
import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "act_chains",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("head", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_act_chains")),
    )
    op.create_table(
        "acts",
        sa.Column("chain", sa.String(length=40), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("role", sa.String(length=10), nullable=True),
        sa.Column("principal", sa.String(length=40), nullable=True),
        sa.Column("key", sa.String(length=40), nullable=True),
        sa.Column("subject", sa.String(length=90), nullable=True),
        sa.Column("reason", sa.String(length=500), nullable=True),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("known_since", sa.String(length=10), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("prev", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("signer", sa.String(length=16), nullable=False),
        sa.Column("signature", sa.String(length=88), nullable=False),
        sa.ForeignKeyConstraint(["chain"], ["act_chains.id"], name=op.f("fk_acts_chain")),
        sa.PrimaryKeyConstraint("chain", "seq", name=op.f("pk_acts")),
    )
    op.create_index(op.f("ix_acts_subject"), "acts", ["chain", "subject"])
    op.create_table(
        "refusals",
        sa.Column("chain", sa.String(length=40), nullable=False),
        sa.Column("principal", sa.String(length=40), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("role", sa.String(length=10), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("told", sa.BigInteger(), nullable=False),
        sa.Column("left_out", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("chain", "principal", "kind", name=op.f("pk_refusals")),
    )
    _tell_of_before()
    for statement in _guards(op.get_bind().dialect.name):
        op.execute(statement)


def _guards(dialect: str) -> Iterator[str]:
    """What the database itself refuses, whoever asks: acts changed or gone, chains gone."""
    if dialect == "sqlite":
        for table, action in (("acts", "UPDATE"), ("acts", "DELETE"), ("act_chains", "DELETE")):
            yield (
                f"CREATE TRIGGER {table}_no_{action.lower()} BEFORE {action} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} are only added to'); END"
            )
        return
    for table, actions in (("acts", "UPDATE OR DELETE"), ("act_chains", "DELETE")):
        yield (
            f"CREATE TRIGGER {table}_append_only BEFORE {actions} ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION privest_refuse()"
        )
        yield (
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION privest_refuse()"
        )
    yield "REVOKE UPDATE, DELETE, TRUNCATE ON acts FROM PUBLIC, CURRENT_USER"


_HOLDER = "CASE role WHEN 'owner' THEN principal_id ELSE 'service' END"
_PLAIN = (
    ("owner.created", ("name",), "SELECT id AS chain, created_at AS at, id AS subject, name FROM owners"),
    (
        "analyst.created",
        ("name",),
        "SELECT 'service' AS chain, created_at AS at, id AS subject, name FROM analysts",
    ),
    (
        "key.issued",
        ("key", "scopes"),
        f"SELECT {_HOLDER} AS chain, created_at AS at, principal_id AS subject, id AS key, scopes"  # noqa: S608
        " FROM api_keys",
    ),
    (
        "key.revoked",
        ("key",),
        f"SELECT {_HOLDER} AS chain, revoked_at AS at, principal_id AS subject, id AS key"  # noqa: S608
        " FROM api_keys WHERE revoked_at IS NOT NULL",
    ),
    (
        "dataset.made",
        ("name", "rows_of"),
        "SELECT owner_id AS chain, created_at AS at, id AS subject, name,"
        " CASE WHEN lineage <> id THEN lineage END AS rows_of FROM datasets WHERE NOT ephemeral",
    ),
    (
        "dataset.deleted",
        ("name",),
        "SELECT owner_id AS chain, deleted_at AS at, id AS subject, name FROM datasets"
        " WHERE deleted_at IS NOT NULL AND NOT ephemeral",
    ),
    (
        "grant.made",
        ("analyst",),
        "SELECT owner_id AS chain, g.created_at AS at, dataset_id AS subject, analyst_id AS analyst"
        " FROM grants g JOIN datasets d ON d.id = g.dataset_id",
    ),
    (
        "grant.revoked",
        ("analyst",),
        "SELECT owner_id AS chain, g.revoked_at AS at, dataset_id AS subject, analyst_id AS analyst"
        " FROM grants g JOIN datasets d ON d.id = g.dataset_id WHERE g.revoked_at IS NOT NULL",
    ),
    (
        "connection.made",
        ("kind",),
        "SELECT 'service' AS chain, created_at AS at, name AS subject, kind FROM connections",
    ),
    (
        "connection.assigned",
        (),
        "SELECT owner_id AS chain, created_at AS at, connection_name AS subject FROM connection_owners",
    ),
)
"""Acts that tables tell of: their kind, their details, and what selects them."""

_LIMITS = """
    SELECT a.owner_id AS chain, e.at AS at, a.scope AS scope, a.subject AS subject, e.seq AS seq,
        a.window AS win, e.epsilon AS epsilon, e.delta AS delta
    FROM entries e JOIN accounts a ON a.id = e.account_id WHERE e.kind = 'limit'
"""
_FROZEN = "SELECT id AS chain, frozen_by FROM owners WHERE frozen_by IS NOT NULL"

_NO_LIMIT = 2**61

_MOMENT = sa.DateTime(timezone=True)

_Known = tuple[str, datetime, str, str, dict[str, Any]]
"""An act: its chain, moment, kind, subject and details."""


def _tell_of_before() -> None:
    """Begin each chain with what is known: nobody signed it, and who acted is not told."""
    connection, acts, chains = op.get_bind(), list[dict[str, Any]](), list[dict[str, Any]]()
    told = sorted(_known(connection), key=lambda act: act[:4])
    for chain, theirs in groupby(told, key=lambda act: act[0]):
        head = ""
        for seq, (_, at, kind, subject, details) in enumerate(theirs, start=1):
            act = {
                **{"chain": chain, "seq": seq, "kind": kind, "role": None, "principal": None, "key": None},
                **{"subject": subject, "reason": None, "known_since": "migrated", "prev": head},
                "details": json.dumps(details, ensure_ascii=False, separators=(",", ":"), sort_keys=True),
            }
            moment = at.astimezone(UTC).isoformat(timespec="microseconds")
            head = hashlib.sha256(rfc8785.dumps({**act, "at": moment})).hexdigest()
            acts.append({**act, "at": at, "hash": head, "signer": "", "signature": ""})
        chains.append({"id": chain, "seq": acts[-1]["seq"], "head": head})
    for table, rows in (("act_chains", chains), ("acts", acts)):
        if rows:
            columns = [sa.column("at", _MOMENT) if name == "at" else sa.column(name) for name in rows[0]]
            connection.execute(sa.insert(sa.table(table, *columns)), rows)


def _known(connection: sa.Connection) -> Iterator[_Known]:
    for kind, names, statement in _PLAIN:
        for row in connection.execute(sa.text(statement).columns(at=_MOMENT)).mappings():
            details = {name: row[name] for name in names if row[name] is not None}
            yield row["chain"], _utc(row["at"]), kind, row["subject"], details
    for row in connection.execute(sa.text(_LIMITS).columns(at=_MOMENT)).mappings():
        none = row["epsilon"] >= _NO_LIMIT
        epsilon, delta = row["epsilon"] / 10**9, row["delta"] / 10**18
        details: dict[str, Any] = {"cap": None} if none else {"epsilon": epsilon, "delta": delta}
        at, details["window"] = _utc(row["at"]), row["win"]
        if row["scope"] == "owner":
            first = "budget.set" if row["win"] == 1 else "budget.renewed"
            yield row["chain"], at, first if row["seq"] == 1 else "budget.raised", row["chain"], details
        elif row["seq"] > 1:  # the first one is of the account, which has no cap, or has that of before
            dataset, _, analyst = row["subject"].partition("/")
            yield row["chain"], at, "cap.set", dataset, details | ({"analyst": analyst} if analyst else {})
    for row in connection.execute(sa.text(_FROZEN)).mappings():
        # Since when it is so is not known: it was at this moment.
        yield row["chain"], datetime.now(UTC), "budget.frozen", row["chain"], {"by": row["frozen_by"]}


def _utc(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at


def downgrade() -> None:
    for table in ("refusals", "acts", "act_chains"):
        op.drop_table(table)
