"""Reading and validating an upload, in a worker process: hostile files never meet the web process.

What is wrong is told by record index, field and rule, to the owner who uploads; never by value.
"""

import errno
import hashlib
import io
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array
from privest.data.table_metadata import TableMetadata
from privest_service.datasets.import_spec import ImportSpec
from privest_service.datasets.readers import Block, Texts, read
from privest_service.datasets.readers.marks import Tally
from privest_service.formats import Format
from privest_service.problems import Fault
from privest_service.upload_errors import RefusedUploadError, refusal
from privest_service.validation import MOST_FAULTS

LEAST_RECORDS = 2

_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ENOENT)
"""Errors of the disk, which are no fault of an upload."""

_AT_ONCE = 2**20
"""Bytes of records that are gathered at a time."""


@dataclass(frozen=True)
class Ingested:
    """Facts about accepted rows.

    Attributes:
        n: number of records, public.
        digest: SHA-256 of the rows, which the service keys before anybody sees it.
        outside: number of values outside the declared bounds, for each column of a table; empty of other
            records. For the response to the owner's upload alone.
    """

    n: int
    digest: str
    outside: tuple[int, ...] = ()


def ingest(
    source: str, form: Format, intake: ImportSpec, target: str, limit: int, *, ordered: bool = True
) -> Ingested:
    """Validate a file of records and write them as a float64 npy file.

    Args:
        source: the uploaded file.
        form: its format.
        intake: what the schema says of it.
        target: where the rows go.
        limit: bytes that the rows may take.
        ordered: whether the records stand in an order of the file's own. Where a record may decide the
            places of others, as in a table that a database sorts, they are stored in a random order.

    Raises:
        RefusedUploadError: with the first faults, by record.
    """
    mark = hashlib.sha256()
    outside = np.zeros(len(intake.layout.columns or ()), dtype=np.int64)
    loose = Path(target).with_suffix(".loose")
    try:
        units = _Units() if intake.places else None
        moved = units is not None or not ordered
        with closing(read(Path(source), form, intake.layout, limit)) as raw:  # which leaves nothing behind
            blocks = _checked(raw, intake, units, mark, outside)
            rows = n = _write(blocks, loose if moved else Path(target), intake.shape.record, limit)
        if moved:
            records = _shuffled(loose) if units is None else _gathered(loose, units, intake)
            n = _write(records, Path(target), stored_shape(intake), limit)
    except RefusedUploadError:
        raise
    except MemoryError:
        raise refusal(
            "needs more memory to be read than is allowed: upload a file with smaller blocks"
        ) from None
    except Exception as error:
        if isinstance(error, ImportError) or (isinstance(error, OSError) and error.errno in _OF_THE_DISK):
            raise
        # Whatever a reader's library met in a hostile file: its own words may quote what is in it.
        raise refusal(f"is not a whole {form} file") from None
    finally:
        loose.unlink(missing_ok=True)
    if n < LEAST_RECORDS:
        raise refusal(f"must have at least {LEAST_RECORDS} records")
    mark.update(f"\0{rows}".encode())
    return Ingested(n, mark.hexdigest(), tuple(outside.tolist()))


def _random_order(n: int) -> NDArray[np.int64]:
    """The numbers below n, in an order that nobody chose.

    Where a record's own value decides its place, replacing it moves others to other chunks, whose float sums
    then change. With an order drawn at random it does not: give every other record the place that it has in
    the one world, and both orders are still equally likely.
    """
    from privest.privacy.noise import SystemNoise  # noqa: PLC0415 - randomgen, for workers alone

    return SystemNoise(0).permutation(n)


def stored_shape(intake: ImportSpec) -> tuple[int, ...]:
    """Shape of a record in the store."""
    return (*([intake.places] if intake.places else []), *intake.shape.record)


def _write(blocks: Iterator[Array], target: Path, record: tuple[int, ...], limit: int) -> int:
    """Write blocks of records as one npy file; how many there were."""
    n = 0
    with target.open("xb") as file:
        file.write(header(0, record))
        for block in blocks:
            content = np.ascontiguousarray(block).tobytes()
            if file.tell() + len(content) > limit:
                raise refusal(f"must take at most {limit} bytes, 8 for each number")
            file.write(content)
            n += len(block)
        file.seek(0)
        file.write(header(n, record))
    return n


def header(n: int, record: tuple[int, ...]) -> bytes:
    """Return the beginning of an npy file of n records. Its length does not depend on n."""
    file = io.BytesIO()
    described = {"descr": "<f8", "fortran_order": False, "shape": (n, *record)}
    np.lib.format.write_array_header_1_0(file, described)
    return file.getvalue()


def _checked(
    blocks: Iterator[Block],
    intake: ImportSpec,
    units: "_Units | None",
    mark: "hashlib._Hash",
    outside: NDArray[np.int64],
) -> Iterator[Array]:
    """The records of blocks, as far as no rule is broken.

    Values outside the bounds of a table's columns are added to `outside`, (columns,).

    The fingerprint is marked by raw rows where records are made of them, so that it is of the data and not of
    the transform; else by what is stored, so that it is of the points and not of their rounding.

    Raises:
        RefusedUploadError: rules are, at the end of all blocks or once there are many faults.
    """
    faults: list[Fault] = []
    layout = intake.layout
    tally = Tally(layout.columns or (), layout.formats, layout.number_formats)
    start = 0
    step = max(1, _AT_ONCE // (8 * max(layout.width, prod(intake.shape.record))))
    for block in blocks:
        faults += block.faults
        if block.marked is not None:
            tally.add(block.marked, start)
        if tally.wrong:  # of a typed table, all of which is read, so that columns are told at once
            start += len(block.rows)
            continue
        for at in range(0, len(block.rows), step):
            rows = block.rows[at : at + step]
            if layout.partial:
                rows = intake.shape.canonical(rows)  # fingerprints know one NaN
            records = _records(rows, intake, start, faults)
            if not faults:
                if units is not None and block.units is not None:
                    units.add(block.units[at : at + step])
                records = intake.shape.canonical(records)
                if isinstance(intake.shape, TableMetadata):
                    outside += intake.shape.outside_bounds(rows)
                mark.update(np.ascontiguousarray(rows if intake.is_changed else records).tobytes())
                yield records
            start += len(rows)
        if len(faults) >= MOST_FAULTS:
            break
    faults.sort(key=lambda fault: fault.record or 0)
    if told := [*tally.faults(), *faults[:MOST_FAULTS]]:
        raise RefusedUploadError(told)


def _records(rows: Array, intake: ImportSpec, start: int, faults: list[Fault]) -> Array:
    """Records of raw ones; the faults of either are noted."""
    if intake.transform is not None:
        rules = ("finite", *intake.transform.rules)
        finite = np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
        broken = np.ones(len(rows), dtype=np.int64)
        found = np.asarray(intake.transform.broken_rule(rows[finite]))
        broken[finite] = np.where(found > 0, found + 1, 0)
        _note(rows, broken, rules, intake, start, faults)
        if broken.any():
            return rows
        rows = intake.transform(rows)
    _note(
        rows,
        np.asarray(intake.shape.broken_rule(rows), dtype=np.int64),
        intake.shape.rules,
        intake,
        start,
        faults,
    )
    return rows


def _note(
    rows: Array,
    broken: NDArray[np.int64],
    rules: Sequence[str],
    intake: ImportSpec,
    start: int,
    faults: list[Fault],
) -> None:
    known = {fault.record for fault in faults}
    for index in np.flatnonzero(broken)[:MOST_FAULTS]:
        if start + int(index) in known:
            continue
        field, rule = _field(rows[index], intake), rules[int(broken[index]) - 1]
        faults.append(Fault(record=start + int(index), field=field, rule=f"must be {rule}"))


def _field(record: Array, intake: ImportSpec) -> str | None:
    """Name the entry of a raw record that is not a number or of no category, if it is a single one."""
    layout = intake.layout
    if record.shape != layout.raw:
        return None
    if layout.names is None:
        places = np.argwhere(np.isinf(record) if layout.partial else ~np.isfinite(record))
        return "".join(f"[{i}]" for i in places[0]) if len(places) else None
    for place, value in enumerate(record):
        if not np.isfinite(value) or (value < 0 and layout.is_text(place)):
            return layout.field(place)
    return None


class _Units:
    """Assigns rows to records. Records stand in a random order, which neither rows nor names decide."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._codes: list[NDArray[np.int64]] = []

    def add(self, names: Texts) -> None:
        """The units of the next rows."""
        places = self._places
        self._codes.append(np.array([places.setdefault(name, len(places)) for name in names]))

    def groups(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Rows by unit, and where in that order each unit's begin, and how many they are."""
        ranks = _random_order(len(self._places))
        codes = ranks[np.concatenate([*self._codes, np.empty(0, dtype=np.int64)])]
        counts = np.bincount(codes, minlength=len(self._places))
        return np.argsort(codes, kind="stable"), np.cumsum(counts) - counts, counts


def _shuffled(loose: Path) -> Iterator[Array]:
    """Records in a random order."""
    rows = np.load(loose, mmap_mode="r")
    order = _random_order(len(rows))
    step = max(1, _AT_ONCE // (8 * prod(rows.shape[1:])))
    for at in range(0, len(order), step):
        yield rows[order[at : at + step]]


def _gathered(loose: Path, units: _Units, intake: ImportSpec) -> Iterator[Array]:
    """Records that are groups: the rows of a unit, spread evenly over its places in the order of the file.

    With fewer rows than places some stand twice, with more some are left out: which, the unit's rows alone
    decide.
    """
    assert intake.places  # noqa: S101 - of schemas with a unit
    rows = np.load(loose, mmap_mode="r")
    order, starts, counts = units.groups()
    places = np.arange(intake.places)
    step = max(1, _AT_ONCE // (8 * prod(stored_shape(intake))))
    for at in range(0, len(counts), step):
        begin, count = starts[at : at + step, None], counts[at : at + step, None]
        yield rows[order[begin + places * count // intake.places]]
