"""Jobs on several datasets: one for the question, and a part of it for each dataset and its owner."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_ANSWERED = "(state = 'committed') = (result IS NOT NULL)"
_WHOLE = "(state = 'committed' AND part_of IS NULL) = (result IS NOT NULL)"
_OF_ONE_DATASET = ("owner_id", "dataset_id")
_NEW = {
    "owner_of_dataset": "(owner_id IS NULL) = (dataset_id IS NULL)",
    "place_of_part": "(part_of IS NULL) = (place IS NULL)",
    "dataset_of_part": "part_of IS NULL OR dataset_id IS NOT NULL",
}
_FIRST = "CONSTRAINT ck_jobs_result_when_committed"
_WITH_NEW = "".join(f"CONSTRAINT ck_jobs_{name} CHECK ({rule}), " for name, rule in _NEW.items()) + _FIRST


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute("ALTER TABLE jobs ADD part_of VARCHAR(40) CONSTRAINT fk_jobs_part_of REFERENCES jobs (id)")
        op.add_column("jobs", sa.Column("place", sa.Integer(), nullable=True))
        _rewrite(_ANSWERED, _WHOLE)
        _rewrite(_FIRST, _WITH_NEW)
        for name in _OF_ONE_DATASET:
            _rewrite(f"{name} VARCHAR(40) NOT NULL", f"{name} VARCHAR(40)")
    else:
        op.add_column("jobs", sa.Column("part_of", sa.String(length=40), nullable=True))
        op.add_column("jobs", sa.Column("place", sa.Integer(), nullable=True))
        op.create_foreign_key(op.f("fk_jobs_part_of"), "jobs", "jobs", ["part_of"], ["id"])
        _check(_WHOLE)
        for name in _OF_ONE_DATASET:
            op.alter_column("jobs", name, nullable=True)
        for name, rule in _NEW.items():
            op.create_check_constraint(op.f(f"ck_jobs_{name}"), "jobs", rule)
    op.create_index(op.f("ix_jobs_part_of"), "jobs", ["part_of"])


def downgrade() -> None:
    if op.get_bind().scalar(sa.text("SELECT 1 FROM jobs WHERE part_of IS NOT NULL LIMIT 1")):
        raise RuntimeError("there are jobs on several datasets, for which the former tables have no place")
    op.drop_index(op.f("ix_jobs_part_of"), table_name="jobs")
    if op.get_bind().dialect.name == "sqlite":
        _rewrite(_WITH_NEW, _FIRST)
        _rewrite(_WHOLE, _ANSWERED)
        for name in _OF_ONE_DATASET:
            _rewrite(f"{name} VARCHAR(40)", f"{name} VARCHAR(40) NOT NULL")
    else:
        for name in _NEW:
            op.drop_constraint(op.f(f"ck_jobs_{name}"), "jobs", type_="check")
        _check(_ANSWERED)
        for name in _OF_ONE_DATASET:
            op.alter_column("jobs", name, nullable=False)
    op.drop_column("jobs", "place")
    op.drop_column("jobs", "part_of")


def _check(rule: str) -> None:
    op.drop_constraint(op.f("ck_jobs_result_when_committed"), "jobs", type_="check")
    op.create_check_constraint(op.f("ck_jobs_result_when_committed"), "jobs", rule)


def _rewrite(old: str, new: str) -> None:
    """Change a constraint on SQLite where it is written down.

    It is SQLite's own procedure for that (lang_altertable.html, section 7). A new table in place of the old
    one would have to be referred to by all that refers to that, with foreign keys off, which no transaction
    can do.
    """
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
