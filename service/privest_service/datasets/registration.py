"""Registration: rows are copied from their source, checked in a worker and stored as a dataset."""

import asyncio
import hashlib
import hmac
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakValueDictionary

from anyio import CancelScope
from sqlalchemy.orm import Session

from privest_service import acts
from privest_service.connections.schemas import NewConnection, NewDatabase
from privest_service.connections.sources import fetch
from privest_service.database import Database
from privest_service.database.tables import new_id
from privest_service.datasets.ingest import Ingested
from privest_service.datasets.models import Dataset
from privest_service.datasets.parsing import ROWS, UPLOAD, parse
from privest_service.datasets.schemas import DatasetSchema
from privest_service.datasets.store import Store
from privest_service.datasets.table_schema import TableSchema
from privest_service.formats import Format
from privest_service.inputs import require_printable
from privest_service.ledger import service as ledger
from privest_service.limits import in_thread
from privest_service.problems import (
    WHEN_FULL,
    DatabaseUnavailable,
    DatasetInvalid,
    Fault,
    Invalid,
    TooLarge,
    Unavailable,
)
from privest_service.upload_errors import RefusedUploadError
from privest_service.workers.service import Workers


@dataclass(frozen=True)
class Arrived:
    """A source's report on the file that it filled.

    Attributes:
        form: the file's format.
        ordered: whether the records stand in an order of the file's own: none decides another's place.
    """

    form: Format
    ordered: bool = True


Source = Callable[[Path], Awaitable[Arrived]]
"""Fills an empty file with rows as they arrive."""


def uploaded(upload: BinaryIO, form: Format, sha256: str | None = None) -> Source:
    """A file that came with the request.

    If the caller says its SHA-256, in hexadecimal digits, that is checked.
    """

    async def spool(target: Path) -> Arrived:
        await in_thread(_spool, upload, target, sha256)
        return Arrived(form)

    return spool


def inline(rows: list[Any]) -> Source:
    """Records that came in a request."""

    async def write(target: Path) -> Arrived:
        await in_thread(lambda: target.write_text(json.dumps(rows)))
        return Arrived("json")

    return write


@dataclass(frozen=True)
class Draft:
    """A dataset that is about to be: what its owner says of it, before its rows were looked at.

    Attributes:
        owner_id: whose rows they are.
        schema: what they must be.
        lineage: of the dataset that is declared to hold the same rows, or the dataset's own id.
        name: by which people know it.
        ephemeral: for one question, after which `sweep` removes it.
    """

    id: str
    owner_id: str
    schema: DatasetSchema
    lineage: str
    name: str | None
    ephemeral: bool


@dataclass(frozen=True)
class Registered:
    """A new dataset, with what only the response to its upload may say.

    Attributes:
        dataset: as stored.
        outside_bounds: number of values outside the declared bounds, by names of the columns that have any;
            None where records are no rows of a table. Neither stored nor logged.
    """

    dataset: Dataset
    outside_bounds: Mapping[str, int] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Registrar:
    """Registers datasets, and forgets those that came to nothing.

    Attributes:
        database: where datasets are noted.
        store: where their rows are.
        workers: that fetch and check rows.
        secret: of the service, which keys the fingerprints.
        data_dir: of the service, which is never a source.
        max_dataset_bytes, max_owner_bytes: as the settings of these names.
        timeout: seconds that checking one dataset may take.
    """

    database: Database
    store: Store
    workers: Workers
    secret: bytes = field(repr=False)
    data_dir: Path
    max_dataset_bytes: int
    max_owner_bytes: int
    timeout: float
    _turns: WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=WeakValueDictionary[str, asyncio.Lock], repr=False
    )

    @asynccontextmanager
    async def turn(self, owner_id: str) -> AsyncIterator[None]:
        """Hold the turn of an owner, who has one: no owner ever has all of two workers.

        Others wait behind one upload of theirs at most.
        """
        lock = self._turns.setdefault(owner_id, asyncio.Lock())
        async with lock:
            yield

    def behind(self, connection: NewConnection, path: str) -> Source:
        """Return a source that copies what a path behind a connection names."""

        async def copy(target: Path) -> Arrived:
            limit, data_dir = self.max_dataset_bytes, str(self.data_dir.resolve())
            form = await self.workers.in_worker(
                "fetch", fetch, connection, path, str(target), limit, data_dir
            )
            # A database sorts by a key that each record has a part in.
            return Arrived(form, ordered=not isinstance(connection, NewDatabase))

        return copy

    async def register(
        self,
        owner_id: str,
        source: Source,
        schema: DatasetSchema,
        *,
        name: str | None = None,
        rows_of: str | None = None,
        header: bool | None = None,
        ephemeral: bool = False,
    ) -> Registered:
        """Copy rows from their source, validate them in a worker and make them a dataset.

        Nothing half-written is ever visible, and nothing is left of what was refused or came to no end.

        Args:
            owner_id: whose rows they are.
            source: of the rows.
            schema: what they must be.
            name: by which people know them.
            rows_of: a dataset of the owner's, deleted or not, that the owner declares to hold the same rows.
            header: whether the first line of a csv file names its columns, if anybody said so.
            ephemeral: for one question, after which `sweep` removes them.

        Raises:
            DatasetInvalid: the source is refused, or its rows break a rule of the schema.
            Invalid: the owner has no dataset that `rows_of` names, or a name in the schema is not printable.
            TooLarge: the owner's datasets would take more than they may; or have no room, before any look.
        """
        require_printable(schema.model_dump(mode="json", by_alias=True), ("schema",))
        dataset_id = new_id("ds")
        lineage = await in_thread(self._lineage, owner_id, rows_of) or dataset_id
        draft = Draft(dataset_id, owner_id, schema, lineage, name, ephemeral)
        folder = self.store.incoming / dataset_id
        try:
            # From the source to the folder's end: else one owner's files, or copies, would take the disk or
            # the turn of all.
            async with self.turn(owner_id), _removed(folder):
                await in_thread(self._require_room, owner_id, 1)
                await in_thread(_begin, folder)
                found = await source(folder / UPLOAD)
                accepted = await self._accepted(folder, found, schema, header)
                dataset = await in_thread(self._adopt, draft, folder / ROWS, accepted)
                return Registered(dataset, _outside_bounds(schema, accepted))
        except RefusedUploadError as refused:
            raise DatasetInvalid(faults=refused.faults) from None
        except OSError:
            raise Unavailable(
                "There is no room for this at present. Nothing was stored. Try again later.",
                retry_after=WHEN_FULL,
            ) from None

    async def _accepted(
        self, folder: Path, found: Arrived, schema: DatasetSchema, header: bool | None
    ) -> Ingested:
        """Have a worker check the rows that arrived in a folder."""
        return await self.workers.in_worker(
            "intake",
            partial(parse, ordered=found.ordered),
            str(folder),
            found.form,
            schema.intake().of_csv(header),
            self.max_dataset_bytes,
            self.timeout,
        )

    def _adopt(self, draft: Draft, rows: Path, accepted: Ingested) -> Dataset:
        """Move validated rows to their place, and write down that they are there; or neither."""
        self._require_room(draft.owner_id, rows.stat().st_size)

        def note(session: Session) -> Dataset:
            dataset = Dataset(
                id=draft.id,
                owner_id=draft.owner_id,
                name=draft.name,
                kind=draft.schema.kind,
                dataset_schema=draft.schema.model_dump_json(),
                n=accepted.n,
                fingerprint=fingerprint(self.secret, draft.owner_id, accepted.digest),
                lineage=draft.lineage,
                ephemeral=draft.ephemeral,
            )
            session.add(dataset)
            session.flush()
            if not draft.ephemeral:
                ledger.ensure_account(session, draft.owner_id, "dataset", draft.lineage)
                details = {
                    "name": draft.name,
                    "n": accepted.n,
                    "rows_of": None if draft.lineage == draft.id else draft.lineage,
                }
                acts.record(session, draft.owner_id, "dataset.made", subject=draft.id, details=details)
            return dataset

        try:
            self.store.adopt(rows, draft.owner_id, draft.id)
            return self.database.run(note)
        except DatabaseUnavailable:  # perhaps it was noted: if not, `clear` removes the rows
            raise
        except BaseException:
            self.store.remove(draft.owner_id, draft.id)
            raise

    def _lineage(self, owner_id: str, rows_of: str | None) -> str | None:
        """The lineage of the dataset that an upload is declared to hold the rows of.

        Raises:
            Invalid: the owner has no such dataset.
        """
        if rows_of is None:
            return None
        with self.database.read() as session:
            of = session.get(Dataset, rows_of)
            if of is None or of.owner_id != owner_id or of.ephemeral:
                raise Invalid(faults=[Fault(location="rows_of", rule="must be the id of a dataset of yours")])
            return of.lineage

    def _require_room(self, owner_id: str, size: int) -> None:
        most = self.max_owner_bytes
        if self.store.bytes_of(owner_id) + size > most:
            raise TooLarge(
                f"Your datasets may take at most {most} bytes together. Delete some, then upload again."
            )

    def forget(self, dataset: Dataset) -> None:
        """Undo the registration of rows that came to no question."""
        self.database.run(lambda session: session.delete(session.get_one(Dataset, dataset.id)))
        self.store.remove(dataset.owner_id, dataset.id)


@asynccontextmanager
async def _removed(folder: Path) -> AsyncIterator[None]:
    """Remove an upload's folder at the end, with what a worker left that was stopped, or a parser.

    It is removed also if the caller went away meanwhile.
    """
    try:
        yield
    finally:
        with CancelScope(shield=True):
            await in_thread(partial(shutil.rmtree, folder, ignore_errors=True))


def _outside_bounds(schema: DatasetSchema, accepted: Ingested) -> Mapping[str, int] | None:
    if not isinstance(schema, TableSchema):
        return None
    counts = zip(schema.columns, accepted.outside, strict=True)
    return {column.name: count for column, count in counts if count}


def _begin(folder: Path) -> None:
    """Make the folder of an upload, with an empty file in it."""
    folder.mkdir(mode=0o700)
    (folder / UPLOAD).touch(0o600)


def fingerprint(secret: bytes, owner_id: str, digest: str) -> str:
    """The mark of an owner's rows; nobody without the secret can compute it from rows.

    The process that reads the rows has no secret. The owner's id keeps the fingerprints of two owners apart.
    """
    return hmac.new(secret, f"{owner_id}\0{digest}".encode(), hashlib.sha256).hexdigest()


def _spool(upload: BinaryIO, target: Path, sha256: str | None) -> None:
    digest = hashlib.sha256()
    with target.open("r+b") as file:
        while piece := upload.read(2**20):
            digest.update(piece)
            file.write(piece)
    if sha256 is not None and digest.hexdigest() != sha256.lower():
        raise DatasetInvalid(
            faults=[
                Fault(
                    location="sha256",
                    rule="is not the SHA-256 of the file that arrived: send the file again",
                )
            ]
        )
