"""Datasets whose rows are at a site, and runs that a hub and sites have together."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("datasets", sa.Column("at_site", sa.String(length=40), nullable=True))
    op.create_table(
        "joint_runs",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("terms", sa.Text(), nullable=False),
        sa.Column("hub_job", sa.String(length=40), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_joint_runs_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_joint_runs")),
        sa.UniqueConstraint("hub_job", name=op.f("uq_joint_runs_hub_job")),
    )
    op.create_index(op.f("ix_joint_runs_state"), "joint_runs", ["state"])
    op.create_table(
        "site_parts",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("answers", sa.Integer(), nullable=False),
        sa.Column("reason", sa.String(length=500), nullable=True),
        sa.Column("receipt", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_site_parts_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_site_parts")),
    )
    op.create_table(
        "site_answers",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("label", sa.String(length=40), nullable=False),
        sa.Column("numbers", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_site_answers_job_id")),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_site_answers")),
    )


def downgrade() -> None:
    connection = op.get_bind()
    for found in (
        "SELECT 1 FROM datasets WHERE at_site IS NOT NULL LIMIT 1",
        "SELECT 1 FROM joint_runs LIMIT 1",
    ):
        if connection.scalar(sa.text(found)):
            raise RuntimeError("there are datasets or questions of sites, whose rows nothing here would find")
    op.drop_table("site_answers")
    op.drop_table("site_parts")
    op.drop_index(op.f("ix_joint_runs_state"), table_name="joint_runs")
    op.drop_table("joint_runs")
    op.drop_column("datasets", "at_site")
