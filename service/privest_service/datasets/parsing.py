"""Has an upload parsed where a hostile one can do little, and believes little of what comes back."""

import errno
import os
import stat
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module
from math import prod
from pathlib import Path

from pydantic import BaseModel, NonNegativeInt, ValidationError

from privest_service.datasets import confinement
from privest_service.datasets.import_spec import ImportSpec
from privest_service.datasets.ingest import LEAST_RECORDS, Ingested, header, ingest, stored_shape
from privest_service.formats import Format
from privest_service.problems import Fault
from privest_service.upload_errors import RefusedUploadError

UPLOAD, ROWS = "upload", "rows.npy"
"""File names in the folder of an upload: the upload as it came, and the validated rows."""

_SPARE = 2**26
"""Bytes by which a file may be longer than all rows may: small uploads always unpack to 32 MiB."""

_LOADED = (
    *(f"encodings.{name}" for name in ("cp437", "cp1252", "utf_8_sig")),  # of names in zip files, and of csv
    *(f"encodings.utf_{bits}{order}" for bits in (16, 32) for order in ("", "_be", "_le")),  # as JSON may be
    "privest.privacy.noise",
    "privest_service.datasets.readers.tables",
    "pyarrow.pandas_compat",
    "pyarrow.vendored.version",
)
"""Modules that only parsing needs, and some of it only now and then."""


class _Answer(BaseModel):
    """The parser's answer, which comes as JSON on a pipe: pickled objects from there could run code here."""

    n: int = 0
    digest: str = ""
    outside: list[NonNegativeInt] = []
    faults: list[Fault] = []
    errno: int | None = None


def prepare() -> None:
    """Make a worker ready: load all that parsing needs, as nothing is loaded where it is done."""
    # Arrow looks for it, and would load it anew for each upload.
    sys.modules["pandas"] = None  # pyright: ignore[reportArgumentType]
    for name in _LOADED:
        import_module(name)
    with suppress(AttributeError):  # its first look trips over what stands there, later ones are content
        import_module("pyarrow").scalar("")
    confinement.prepare()


def parse(
    folder: str, form: Format, intake: ImportSpec, limit: int, seconds: float, *, ordered: bool = True
) -> Ingested:
    """Validate the upload in a folder and leave its rows beside it; for a worker, which does not read it.

    The arguments are those of `ingest`, but for the folder, which is this upload's alone, and the seconds
    that it may compute on each processor.

    Raises:
        RefusedUploadError: with the first faults, by record.
        OSError: this machine could not do it, or the parser told what is not so.
    """
    place = Path(folder)
    bounds = confinement.Bounds(seconds, limit + _SPARE)
    told = confinement.confined(place, partial(_told, form, intake, limit, ordered), bounds, ROWS)
    try:
        answer = _Answer.model_validate_json(told)
    except ValidationError:
        raise ChildProcessError("the parser told nothing that can be read") from None
    if answer.errno is not None:
        raise OSError(answer.errno, os.strerror(answer.errno))
    if answer.faults:
        raise RefusedUploadError(answer.faults)
    _require_rows(place / ROWS, answer.n, intake)
    if len(answer.outside) != len(intake.layout.columns or ()):
        raise ChildProcessError("the parser counted values of other columns")
    return Ingested(answer.n, answer.digest, tuple(answer.outside))


def _told(form: Format, intake: ImportSpec, limit: int, ordered: bool) -> bytes:
    """Validate the upload in the present folder, and tell the outcome as JSON."""
    try:
        found = ingest(UPLOAD, form, intake, ROWS, limit, ordered=ordered)
        answer = _Answer(n=found.n, digest=found.digest, outside=list(found.outside))
    except RefusedUploadError as refused:
        answer = _Answer(faults=refused.faults)
    except OSError as error:
        answer = _Answer(errno=error.errno or errno.EIO)
    return answer.model_dump_json().encode()


def _require_rows(path: Path, n: int, intake: ImportSpec) -> None:
    """Look whether a file is one of so many records, and no link to somebody else's; keep it to the service.

    Raises:
        OSError: it is not.
    """
    begin, record = header(n, stored_shape(intake)), 8 * prod(stored_shape(intake))
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
        about = os.fstat(file.fileno())
        plain = stat.S_ISREG(about.st_mode) and about.st_nlink == 1
        whole = about.st_size == len(begin) + n * record and file.read(len(begin)) == begin
        if not (plain and whole and n >= LEAST_RECORDS):
            raise ChildProcessError("the parser left other rows than it told of")
        os.fchmod(file.fileno(), 0o600)  # which the parser may not do, nor be trusted with
