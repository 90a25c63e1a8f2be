"""Tags of questions: words of whoever asked."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("tag", sa.String(length=100), nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "tag")
