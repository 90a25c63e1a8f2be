"""Freezes of owners, and sums that stay where they are no longer known."""

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_SUMS = tuple(f"{name}_spent" for name in ("epsilon", "delta", "mu_squared", "slack"))
_CAP = 2**62

_IN_FORCE = "accounts.owner_id = owners.id AND accounts.window = owners.window AND accounts.scope = 'owner'"


def upgrade() -> None:
    op.execute(
        "ALTER TABLE owners ADD frozen_by VARCHAR(10)"
        " CONSTRAINT ck_owners_known_freezer CHECK (frozen_by IN ('owner', 'admin', 'both'))"
    )
    op.create_index(op.f("ix_owners_frozen_by"), "owners", ["frozen_by"])
    # Whose freeze it was is not told; until now an owner ended any.
    frozen = f"SELECT 1 FROM accounts WHERE {_IN_FORCE} AND accounts.frozen"  # noqa: S608
    op.execute(f"UPDATE owners SET frozen_by = 'owner' WHERE EXISTS ({frozen})")  # noqa: S608
    # A replica of before, which knows nothing of an owner's freeze, shall fail rather than charge.
    op.drop_column("accounts", "frozen")
    _stay()


def _stay() -> None:
    """Put sums back to the cap that voids took off it."""
    connection = op.get_bind()
    reached = " OR ".join(f"{name} >= {_CAP}" for name in _SUMS)
    if connection.scalar(sa.text(f"SELECT 1 FROM entries WHERE {reached} LIMIT 1")) is None:  # noqa: S608
        return
    for statement in _unlocked(connection.dialect.name):
        op.execute(statement)
    for name in _SUMS:
        before = f"SELECT 1 FROM entries AS e WHERE e.{name} >= {_CAP} AND e.account_id = "  # noqa: S608
        change = f"SET {name} = {_CAP} WHERE {name} < {_CAP} AND EXISTS"
        op.execute(f"UPDATE entries {change} ({before} entries.account_id AND e.seq < entries.seq)")
        op.execute(f"UPDATE accounts {change} ({before} accounts.id)")
    for statement in _locked(connection.dialect.name):
        op.execute(statement)


def _unlocked(dialect: str) -> Iterator[str]:
    """Entries are only added to: but for this once. What is signed of them stays."""
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
    op.add_column("accounts", sa.Column("frozen", sa.Boolean(), nullable=False, server_default=sa.false()))
    owner = f"SELECT 1 FROM owners WHERE {_IN_FORCE} AND owners.frozen_by IS NOT NULL"  # noqa: S608
    op.execute(f"UPDATE accounts SET frozen = true WHERE EXISTS ({owner})")  # noqa: S608
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("accounts", "frozen", server_default=None)
    op.drop_index(op.f("ix_owners_frozen_by"), table_name="owners")
    op.drop_column("owners", "frozen_by")
