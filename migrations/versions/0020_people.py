"""People by the platform's tokens: who came, who has left, and as whom a service account asked."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_NAMED = ("api_keys", "acts", "jobs")
"""Tables whose rows tell of a person, and of the service account that asked for it."""


def upgrade() -> None:
    op.create_table(
        "people",
        sa.Column("subject", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("left_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("subject", name=op.f("pk_people")),
    )
    for table in _NAMED:
        op.add_column(table, sa.Column("person", sa.String(length=255), nullable=True))
        op.add_column(table, sa.Column("through", sa.String(length=40), nullable=True))
    op.create_index(op.f("ix_api_keys_person"), "api_keys", ["person"])
    op.add_column("sessions", sa.Column("person", sa.String(length=255), nullable=True))
    op.add_column("api_keys", sa.Column("client", sa.String(length=255), nullable=True))
    op.add_column("api_keys", sa.Column("client_seconds", sa.Integer(), nullable=True))
    op.add_column("analysts", sa.Column("subject", sa.String(length=255), nullable=True))
    op.create_index(op.f("ix_analysts_subject"), "analysts", ["subject"], unique=True)


def downgrade() -> None:
    connection = op.get_bind()
    for table in ("acts", "jobs"):
        if connection.scalar(sa.text(f"SELECT 1 FROM {table} WHERE person IS NOT NULL LIMIT 1")):  # noqa: S608
            raise RuntimeError("there are acts or questions of people, whose seals nothing here would verify")
    # To what knows of no people, their keys would be anybody's, and those who left would be here again.
    moment = sa.func.current_timestamp()
    names = ("person", "client", "revoked_at")
    keys = sa.table("api_keys", *map(sa.column, names))
    theirs = sa.or_(keys.c.person.is_not(None), keys.c.client.is_not(None))
    op.execute(sa.update(keys).where(keys.c.revoked_at.is_(None), theirs).values(revoked_at=moment))
    op.execute(sa.text("DELETE FROM sessions WHERE person IS NOT NULL"))
    op.drop_index(op.f("ix_analysts_subject"), table_name="analysts")
    op.drop_column("analysts", "subject")
    op.drop_column("api_keys", "client_seconds")
    op.drop_column("api_keys", "client")
    op.drop_column("sessions", "person")
    op.drop_index(op.f("ix_api_keys_person"), table_name="api_keys")
    for table in _NAMED:
        op.drop_column(table, "through")
        op.drop_column(table, "person")
    op.drop_table("people")
