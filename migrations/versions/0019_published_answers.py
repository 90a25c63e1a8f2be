"""Published answers, and grants that allow to publish. Views over all tables: see database/views.py."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("grants", sa.Column("publish", sa.Boolean(), nullable=False, server_default=sa.false()))
    if op.get_bind().dialect.name == "postgresql":  # what knows nothing of it makes no grant
        op.alter_column("grants", "publish", server_default=None)
    op.create_table(
        "publications",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("publisher_id", sa.String(length=40), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("in_sql", sa.Boolean(), nullable=False),
        sa.Column("epsilon", sa.BigInteger(), nullable=False),
        sa.Column("delta", sa.BigInteger(), nullable=False),
        sa.Column("off_by", sa.Double(), nullable=True),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("withdrawn_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_publications_job_id")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_publications")),
    )
    for column in ("publisher_id", "job_id"):
        op.create_index(op.f(f"ix_publications_{column}"), "publications", [column])
    op.create_table(
        "published_values",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("item", sa.Text(), nullable=False),
        sa.Column("measure", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("unit", sa.String(length=40), nullable=True),
        sa.ForeignKeyConstraint(["name"], ["publications.name"], name=op.f("fk_published_values_name")),
        sa.PrimaryKeyConstraint("name", "place", name=op.f("pk_published_values")),
    )
    op.create_table(
        "publication_readers",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("reader_id", sa.String(length=40), nullable=False),
        sa.ForeignKeyConstraint(["name"], ["publications.name"], name=op.f("fk_publication_readers_name")),
        sa.PrimaryKeyConstraint("name", "reader_id", name=op.f("pk_publication_readers")),
    )
    op.create_index(op.f("ix_publication_readers_reader_id"), "publication_readers", ["reader_id"])


def downgrade() -> None:
    op.drop_table("publication_readers")
    op.drop_table("published_values")
    op.drop_table("publications")
    op.drop_column("grants", "publish")
