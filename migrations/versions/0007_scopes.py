"""Keys that are for some things alone, and that end."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_ALL = "read data estimate manage"
_TABLES = ("api_keys", "sessions")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("scopes", sa.String(length=40), nullable=False, server_default=_ALL))
        if op.get_bind().dialect.name == "postgresql":
            # A replica of before, which knows nothing of scopes, shall open and issue nothing.
            op.alter_column(table, "scopes", server_default=None)
    op.add_column("api_keys", sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    # To what knows of neither, a key with an end or of few scopes would be one for everything and for ever.
    names = ("scopes", "expires_at", "revoked_at")
    keys, sessions = sa.table("api_keys", *map(sa.column, names)), sa.table("sessions", sa.column("scopes"))
    bounded = sa.or_(keys.c.expires_at.is_not(None), keys.c.scopes != _ALL)
    ended = sa.update(keys).where(keys.c.revoked_at.is_(None), bounded)
    op.execute(ended.values(revoked_at=sa.func.current_timestamp()))
    op.execute(sa.delete(sessions).where(sessions.c.scopes != _ALL))
    op.drop_column("api_keys", "expires_at")
    for table in _TABLES:
        op.drop_column(table, "scopes")
