"""Questions that their owner approves before they are charged, and the terms of grants."""

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_FORMER = "('reserved', 'claimed', 'committed', 'failed', 'voided')"
_STATES = (
    "('requested', 'reserved', 'claimed', 'committed', 'failed', 'voided', 'denied', 'expired', 'withdrawn')"
)
_FORMER_STEP = (
    "(OLD.state = NEW.state OR (OLD.state = 'reserved' AND NEW.state IN ('claimed', 'voided'))"
    " OR (OLD.state = 'claimed' AND NEW.state IN ('committed', 'failed')))"
)
_STEP = (
    "(OLD.state = NEW.state"
    " OR (OLD.state = 'requested' AND NEW.state IN ('reserved', 'denied', 'expired', 'withdrawn'))"
    " OR (OLD.state = 'reserved' AND NEW.state IN ('claimed', 'voided'))"
    " OR (OLD.state = 'claimed' AND NEW.state IN ('committed', 'failed')))"
)
_KEPT = " AND ".join(
    f"(OLD.{it} IS NULL OR COALESCE(OLD.{it} = NEW.{it}, FALSE))"
    for it in ("result", "receipt", "analyst_receipt")
)
_DECIDED = " AND (OLD.decide_by = NEW.decide_by OR (OLD.decide_by IS NULL AND NEW.decide_by IS NULL))"
"""Whether an approval is needed is told once, when a question is asked."""

_TERMS = ("decide_within", "expires_at", "max_epsilon", "kinds", "purpose", "approval")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("decide_by", sa.DateTime(timezone=True), nullable=True))
    _states(_FORMER, _STATES)
    _forward(_STEP, _KEPT + _DECIDED)
    op.add_column("grants", sa.Column("approval", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("grants", sa.Column("purpose", sa.String(length=500), nullable=True))
    op.add_column("grants", sa.Column("kinds", sa.Text(), nullable=True))
    op.add_column("grants", sa.Column("max_epsilon", sa.BigInteger(), nullable=True))
    op.add_column("grants", sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("grants", sa.Column("decide_within", sa.Integer(), nullable=True))
    op.create_table(
        "decisions",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("approved", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.String(length=500), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_decisions_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_decisions")),
        sa.UniqueConstraint("id", name=op.f("uq_decisions_id")),
    )
    for statement in _append_only(op.get_bind().dialect.name):
        op.execute(statement)


def downgrade() -> None:
    connection = op.get_bind()
    for found in (
        "SELECT 1 FROM jobs WHERE decide_by IS NOT NULL LIMIT 1",
        "SELECT 1 FROM grants WHERE approval OR kinds IS NOT NULL OR max_epsilon IS NOT NULL"
        " OR expires_at IS NOT NULL LIMIT 1",
    ):
        if connection.scalar(sa.text(found)):
            raise RuntimeError(
                "there are questions to approve, or terms of grants, which nothing would hold to"
            )
    op.drop_table("decisions")
    for name in _TERMS:
        op.drop_column("grants", name)
    _forward(_FORMER_STEP, _KEPT)
    _states(_STATES, _FORMER)
    op.drop_column("jobs", "decide_by")


def _append_only(dialect: str) -> Iterator[str]:
    if dialect == "sqlite":
        for action in ("update", "delete"):
            yield (
                f"CREATE TRIGGER decisions_no_{action} BEFORE {action.upper()} ON decisions "
                "BEGIN SELECT RAISE(ABORT, 'decisions are only added to'); END"
            )
        return
    yield (
        "CREATE TRIGGER decisions_append_only BEFORE UPDATE OR DELETE ON decisions "
        "FOR EACH ROW EXECUTE FUNCTION privest_refuse()"
    )
    yield (
        "CREATE TRIGGER decisions_no_truncate BEFORE TRUNCATE ON decisions "
        "FOR EACH STATEMENT EXECUTE FUNCTION privest_refuse()"
    )
    yield "REVOKE UPDATE, DELETE, TRUNCATE ON decisions FROM PUBLIC, CURRENT_USER"


def _states(before: str, after: str) -> None:
    rule = f"state IN {after}"
    if op.get_bind().dialect.name == "sqlite":
        _rewrite(f"state IN {before}", rule)
    else:
        op.drop_constraint(op.f("ck_jobs_known_state"), "jobs", type_="check")
        op.create_check_constraint(op.f("ck_jobs_known_state"), "jobs", rule)


def _forward(step: str, kept: str) -> None:
    """Let jobs go forward only, on these steps, and keep what was written of them."""
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TRIGGER jobs_forward")
        op.execute(
            f"CREATE TRIGGER jobs_forward BEFORE UPDATE ON jobs WHEN NOT ({step} AND {kept}) "
            "BEGIN SELECT RAISE(ABORT, 'jobs go forward only'); END"
        )
    else:
        op.execute("DROP TRIGGER jobs_forward ON jobs")
        op.execute(
            f"CREATE TRIGGER jobs_forward BEFORE UPDATE ON jobs FOR EACH ROW WHEN (NOT ({step} AND {kept})) "
            "EXECUTE FUNCTION privest_refuse()"
        )


def _rewrite(old: str, new: str) -> None:
    """Change a constraint on SQLite where it is written down, as 0006 does, for the reason told there."""
    connection = op.get_bind()
    (text,) = connection.scalars(
        sa.text("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = 'jobs'")
    )
    if text.count(old) != 1:
        raise RuntimeError("the table of jobs is not as former migrations made it")
    version = connection.scalar(sa.text("PRAGMA schema_version"))
    connection.execute(sa.text("PRAGMA writable_schema = ON"))
    changed = sa.text("UPDATE sqlite_schema SET sql = :text WHERE type = 'table' AND name = 'jobs'")
    connection.execute(changed, {"text": text.replace(old, new)})
    connection.execute(sa.text(f"PRAGMA schema_version = {version + 1}"))
    connection.execute(sa.text("PRAGMA writable_schema = RESET"))
