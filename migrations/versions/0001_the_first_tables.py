"""The first tables: principals, datasets, the ledger and its jobs."""

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "analysts",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_analysts")),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("role", sa.String(length=10), nullable=False),
        sa.Column("principal_id", sa.String(length=40), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
    )
    op.create_index(op.f("ix_api_keys_principal_id"), "api_keys", ["principal_id"], unique=False)
    op.create_table(
        "owners",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("window", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_owners")),
    )
    op.create_table(
        "accounts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("scope", sa.String(length=10), nullable=False),
        sa.Column("subject", sa.String(length=90), nullable=False),
        sa.Column("window", sa.Integer(), nullable=False),
        sa.Column("composition", sa.String(length=10), nullable=False),
        sa.Column("epsilon_limit", sa.BigInteger(), nullable=False),
        sa.Column("delta_limit", sa.BigInteger(), nullable=False),
        sa.Column("mu_squared_limit", sa.BigInteger(), nullable=False),
        sa.Column("slack_limit", sa.BigInteger(), nullable=False),
        sa.Column("epsilon_spent", sa.BigInteger(), nullable=False),
        sa.Column("delta_spent", sa.BigInteger(), nullable=False),
        sa.Column("mu_squared_spent", sa.BigInteger(), nullable=False),
        sa.Column("slack_spent", sa.BigInteger(), nullable=False),
        sa.Column("frozen", sa.Boolean(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("head", sa.String(length=64), nullable=False),
        sa.CheckConstraint(
            "composition <> 'basic' OR (epsilon_spent <= epsilon_limit AND delta_spent <= delta_limit)",
            name=op.f("ck_accounts_basic_within_limits"),
        ),
        sa.CheckConstraint(
            "composition <> 'gdp' OR (mu_squared_spent <= mu_squared_limit AND slack_spent <= slack_limit)",
            name=op.f("ck_accounts_gdp_within_limits"),
        ),
        sa.CheckConstraint(
            "epsilon_spent >= 0 AND delta_spent >= 0 AND mu_squared_spent >= 0 AND slack_spent >= 0",
            name=op.f("ck_accounts_not_negative"),
        ),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name=op.f("fk_accounts_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
        sa.UniqueConstraint(
            "owner_id", "scope", "subject", "window", name=op.f("uq_accounts_owner_id_scope_subject_window")
        ),
    )
    op.create_table(
        "mechanisms",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_mechanisms")),
    )
    op.create_table(
        "datasets",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("dataset_schema", sa.Text(), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name=op.f("fk_datasets_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
    )
    op.create_index(op.f("ix_datasets_owner_id"), "datasets", ["owner_id"], unique=False)
    op.create_table(
        "grants",
        sa.Column("dataset_id", sa.String(length=40), nullable=False),
        sa.Column("analyst_id", sa.String(length=40), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["analyst_id"], ["analysts.id"], name=op.f("fk_grants_analyst_id")),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_grants_dataset_id")),
        sa.PrimaryKeyConstraint("dataset_id", "analyst_id", name=op.f("pk_grants")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("submitter_id", sa.String(length=40), nullable=False),
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("dataset_id", sa.String(length=40), nullable=False),
        sa.Column("spec_digest", sa.String(length=64), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("receipt", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "(state = 'committed') = (result IS NOT NULL)", name=op.f("ck_jobs_result_when_committed")
        ),
        sa.CheckConstraint(
            "state IN ('reserved', 'claimed', 'committed', 'failed', 'voided')",
            name=op.f("ck_jobs_known_state"),
        ),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_jobs_dataset_id")),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name=op.f("fk_jobs_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index(op.f("ix_jobs_dataset_id"), "jobs", ["dataset_id"], unique=False)
    op.create_index("ix_jobs_reuse", "jobs", ["submitter_id", "spec_digest"], unique=False)
    op.create_index("ix_jobs_waiting", "jobs", ["state", "created_at"], unique=False)
    op.create_table(
        "entries",
        sa.Column("account_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=True),
        sa.Column("mechanism", sa.String(length=64), nullable=True),
        sa.Column("epsilon", sa.BigInteger(), nullable=False),
        sa.Column("delta", sa.BigInteger(), nullable=False),
        sa.Column("mu_squared", sa.BigInteger(), nullable=False),
        sa.Column("slack", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("prev", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("signer", sa.String(length=16), nullable=False),
        sa.Column("signature", sa.String(length=88), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_entries_account_id")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_entries_job_id")),
        sa.ForeignKeyConstraint(["mechanism"], ["mechanisms.digest"], name=op.f("fk_entries_mechanism")),
        sa.PrimaryKeyConstraint("account_id", "seq", name=op.f("pk_entries")),
    )
    op.create_index(op.f("ix_entries_job_id"), "entries", ["job_id"], unique=False)
    op.create_table(
        "idempotency_keys",
        sa.Column("principal_id", sa.String(length=40), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("body_digest", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("reused", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_idempotency_keys_job_id")),
        sa.PrimaryKeyConstraint("principal_id", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_table(
        "job_transitions",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_transitions_job_id")),
        sa.PrimaryKeyConstraint("job_id", "state", name=op.f("pk_job_transitions")),
    )

    for statement in _guards(op.get_bind().dialect.name):
        op.execute(statement)


_APPEND_ONLY = ("entries", "job_transitions", "mechanisms", "idempotency_keys")

_STEP = (
    "(OLD.state = NEW.state OR (OLD.state = 'reserved' AND NEW.state IN ('claimed', 'voided'))"
    " OR (OLD.state = 'claimed' AND NEW.state IN ('committed', 'failed')))"
)
_KEPT = (
    "(OLD.result IS NULL OR COALESCE(OLD.result = NEW.result, FALSE))"
    " AND (OLD.receipt IS NULL OR COALESCE(OLD.receipt = NEW.receipt, FALSE))"
)


def _guards(dialect: str) -> Iterator[str]:
    """What the database itself refuses, whoever asks: rows changed or gone, states gone back."""
    if dialect == "sqlite":
        for table in _APPEND_ONLY:
            for action in ("UPDATE", "DELETE"):
                yield (
                    f"CREATE TRIGGER {table}_no_{action.lower()} BEFORE {action} ON {table} "
                    f"BEGIN SELECT RAISE(ABORT, '{table} are only added to'); END"
                )
        for table in ("accounts", "jobs"):
            yield (
                f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} are never deleted'); END"
            )
        yield (
            f"CREATE TRIGGER jobs_forward BEFORE UPDATE ON jobs WHEN NOT ({_STEP} AND {_KEPT}) "
            "BEGIN SELECT RAISE(ABORT, 'jobs go forward only'); END"
        )
        return
    yield (
        "CREATE FUNCTION privest_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION '% refuses %', TG_TABLE_NAME, TG_OP USING ERRCODE = '23001'; END $$"
    )
    for table in _APPEND_ONLY:
        yield (
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION privest_refuse()"
        )
    for table in ("accounts", "jobs"):
        yield (
            f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION privest_refuse()"
        )
    for table in (*_APPEND_ONLY, "accounts", "jobs"):
        yield (
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION privest_refuse()"
        )
    yield (
        f"CREATE TRIGGER jobs_forward BEFORE UPDATE ON jobs FOR EACH ROW WHEN (NOT ({_STEP} AND {_KEPT})) "
        "EXECUTE FUNCTION privest_refuse()"
    )
    # Not of tables that others refer to: PostgreSQL checks foreign keys with locks that need the privilege.
    for table in ("entries", "job_transitions", "idempotency_keys"):
        yield f"REVOKE UPDATE, DELETE, TRUNCATE ON {table} FROM PUBLIC, CURRENT_USER"


def downgrade() -> None:
    op.drop_table("job_transitions")
    op.drop_table("idempotency_keys")
    op.drop_index(op.f("ix_entries_job_id"), table_name="entries")
    op.drop_table("entries")
    op.drop_table("mechanisms")
    op.drop_index("ix_jobs_waiting", table_name="jobs")
    op.drop_index("ix_jobs_reuse", table_name="jobs")
    op.drop_index(op.f("ix_jobs_dataset_id"), table_name="jobs")
    op.drop_table("jobs")
    op.drop_table("grants")
    op.drop_index(op.f("ix_datasets_owner_id"), table_name="datasets")
    op.drop_table("datasets")
    op.drop_table("accounts")
    op.drop_table("owners")
    op.drop_index(op.f("ix_api_keys_principal_id"), table_name="api_keys")
    op.drop_table("api_keys")
    op.drop_table("analysts")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION privest_refuse()")
