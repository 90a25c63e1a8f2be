"""Copies of ledger and rows, made while the service runs, and services made of such copies.

A backup is a directory with a SQLite database of this service, whatever the original is, the files of the
rows, and signed heads. Keys are not in it.
"""

import hashlib
import hmac
import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import BaseModel, ValidationError
from sqlalchemy import Table, func, insert, select, update
from sqlalchemy.orm import Session

from privest_service.database import Base, Database, now
from privest_service.database.migrate import is_current, migrate, require_current
from privest_service.database.tables import import_all
from privest_service.datasets.models import Dataset
from privest_service.datasets.store import Store
from privest_service.exports.export import chains_of, heads, lines
from privest_service.exports.lines import Heads
from privest_service.exports.verify import verify
from privest_service.jobs import service as jobs
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account
from privest_service.published.service import withdraw_all
from privest_service.security.models import Owner
from privest_service.security.service import revoke_all
from privest_service.settings import Settings

_LEDGER, _MANIFEST = "ledger.db", "backup.json"

_AT_ONCE = 500
"""Rows of a table that are copied in one go."""


class Manifest(BaseModel):
    """The secret's mark and the chains' ends of a backup. It is written last: a whole backup has it."""

    secret: str
    heads: Heads


class _RefusedError(Exception):
    """Rolls back a transaction, and carries the faults that were found in it."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__()
        self.faults = faults


def backup(settings: Settings, directory: Path) -> int:
    """Copy ledger and rows as they are at one moment; how many datasets have rows.

    Raises:
        ValueError: the directory has something in it, or the database is of another version.
        OSError: there is no room.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise ValueError(f"{directory} is not empty. Name a new or an empty directory.")
    source, store = Database(settings.url, signer=settings.signer), Store(settings.data_dir)
    require_current(source)
    copy = _sqlite(directory / _LEDGER)
    with source.read(snapshot=True) as old, copy.write() as new:
        _copy(old, new)
    with copy.read() as session:
        datasets = session.scalars(select(Dataset).where(Dataset.deleted_at.is_(None))).all()
        accounts = list(session.scalars(select(Account).order_by(Account.id)))
        ends = heads(settings.signer, accounts, list(session.scalars(chains_of(None))))
    rows = Store(directory)
    # Files never change, and are there before their dataset is: those of the moment of the ledger's copy.
    copied = sum(_rows_copied(source, store, rows, copy, dataset) for dataset in datasets)
    for each in (source, copy):
        each.close()
    with closing(sqlite3.connect(directory / _LEDGER)) as file:
        file.execute("PRAGMA journal_mode=DELETE")  # so that it is one file, whoever copies it
    os.sync()
    manifest = Manifest(secret=_mark(settings), heads=ends)
    (directory / _MANIFEST).write_text(manifest.model_dump_json(indent=2))
    return copied


def _rows_copied(source: Database, store: Store, rows: Store, copy: Database, dataset: Dataset) -> bool:
    """Copy the rows of a dataset; false if it was deleted meanwhile, which the copy then says too."""
    try:
        _copy_rows(store, rows, dataset)
    except FileNotFoundError:
        with source.read() as session:
            present = session.get_one(Dataset, dataset.id).deleted_at is None
        if present:
            raise ValueError(
                f"The rows of {dataset.id} are missing in {store.path('', '').parent}. Restore its file."
            ) from None
        with copy.write() as session:
            session.execute(update(Dataset).where(Dataset.id == dataset.id).values(deleted_at=now()))
        return False
    return True


def restore(settings: Settings, directory: Path, keys: Sequence[str] = ()) -> list[str]:
    """Make a service of a backup, with every budget charged in full and frozen; or say what is wrong with it.

    The settings name an empty database. Entries may be signed with the present key and with these public keys
    (base64).

    Raises:
        ValueError: the directory holds no whole backup, the secret is another, or the database is not empty.
        OSError: there is no room.
    """
    try:
        manifest = Manifest.model_validate_json((directory / _MANIFEST).read_bytes())
    except (OSError, ValidationError):
        raise ValueError(
            f"{directory} does not hold a whole backup. Name the directory that `privest backup` wrote."
        ) from None
    if not hmac.compare_digest(manifest.secret, _mark(settings)):
        raise ValueError(
            "PRIVEST_SECRET_FILE is not the one of the backup. Put that file in its place first."
        )
    target, store = Database(settings.url, signer=settings.signer), Store(settings.data_dir)
    if not is_current(target):  # else the role need not be able to
        migrate(target, reader=settings.reading_role)
    with target.read() as session:
        if any(session.scalar(select(func.count()).select_from(table)) for table in _tables()):
            raise ValueError("The database is not empty. A backup can only be restored into an empty one.")
    with TemporaryDirectory(dir=store.incoming) as folder:
        # A backup by an earlier version is brought to the present one in a copy of the copy.
        shutil.copyfile(directory / _LEDGER, Path(folder) / _LEDGER)
        source = _sqlite(Path(folder) / _LEDGER)
        try:
            with source.read() as old, target.write() as new:
                _copy(old, new)
                _require_whole(new, manifest.heads, [settings.signer.public_key, *keys])
                _fill(old, new, Store(directory), store)
        except _RefusedError as refused:
            return refused.faults
        finally:
            source.close()
            target.close()
    return []


def _require_whole(session: Session, told: Heads, keys: Sequence[str]) -> None:
    """Verify a ledger, and that it ends where it did when it was saved. Raises _RefusedError: it does not."""
    faults = verify(lines(session), keys, [told]).faults
    ends = session.execute(select(Account.id, Account.seq, Account.head)).all()
    acts = {(chain.id, chain.seq, chain.head) for chain in session.scalars(chains_of(None))}
    same = {tuple(end) for end in ends} == {(head.account, head.seq, head.hash) for head in told.heads}
    # A backup of before there was a record has no heads of acts: those that it was migrated with are new.
    if not same or (told.acts is not None and acts != {(a.chain, a.seq, a.hash) for a in told.acts}):
        faults.append("this ledger does not end where the backup says")
    if faults:
        raise _RefusedError(faults)


def _fill(old: Session, new: Session, rows: Store, store: Store) -> None:
    """Fill the store, and see to it that nothing is spent a second time."""
    for dataset in old.scalars(select(Dataset).where(Dataset.deleted_at.is_(None))):
        if not store.path(dataset.owner_id, dataset.id).exists():
            _copy_rows(rows, store, dataset)
    jobs.abandon(new)
    for owner_id in new.scalars(select(Owner.id).order_by(Owner.id)).all():
        ledger.lose(new, owner_id)
    revoke_all(new)
    withdraw_all(new)


def _sqlite(path: Path) -> Database:
    database = Database(f"sqlite:///{path.resolve()}")
    migrate(database)
    return database


def _tables() -> list[Table]:
    """All but the sessions of browsers, those first that others refer to."""
    import_all()
    return [table for table in Base.metadata.sorted_tables if table.name != "sessions"]


def _copy(old: Session, new: Session) -> None:
    for table in _tables():
        # Of jobs the parts refer to the whole.
        own = [c for c in table.columns if any(key.column.table is table for key in c.foreign_keys)]
        found = select(table).order_by(*(c.is_not(None) for c in own)).execution_options(yield_per=_AT_ONCE)
        for some in old.execute(found).mappings().partitions():
            new.execute(insert(table), [dict(row) for row in some])
        number = table.autoincrement_column
        if number is not None and new.get_bind().dialect.name == "postgresql":
            last = select(func.max(number)).scalar_subquery()
            name = func.pg_get_serial_sequence(table.name, number.name)
            new.execute(select(func.setval(name, last)).where(last.is_not(None)))


def _copy_rows(old: Store, new: Store, dataset: Dataset) -> None:
    draft = new.incoming / dataset.id
    shutil.copyfile(old.path(dataset.owner_id, dataset.id), draft)
    draft.chmod(0o600)
    new.adopt(draft, dataset.owner_id, dataset.id)


def _mark(settings: Settings) -> str:
    """Tells the service's secret from others, and nothing else of it."""
    return hmac.new(settings.secret, b"privest backup", hashlib.sha256).hexdigest()
