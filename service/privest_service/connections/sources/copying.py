"""Helpers of all sources: refusals, names below a root, and copying within a limit."""

from collections.abc import Iterable
from pathlib import Path

from privest_service.formats import Format, format_of_name
from privest_service.problems import Fault
from privest_service.upload_errors import RefusedUploadError


def refused(rule: str) -> RefusedUploadError:
    """A refusal of what a handle names."""
    return RefusedUploadError([Fault(location="uri", rule=rule)])


def too_large(limit: int) -> RefusedUploadError:
    """Refusal of rows that are larger than the limit, in bytes."""
    return refused(f"must name data of at most {limit} bytes")


def parts_of(path: str) -> list[str]:
    """The components of a path that can only lead downwards.

    Raises:
        RefusedUploadError: it could lead elsewhere.
    """
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise refused("must have a relative path without . and .. in it")
    return parts


def format_of(path: str) -> Format:
    """The format that a name ends in. Raises RefusedUploadError: none that is read."""
    if form := format_of_name(path):
        return form
    raise refused("must name a file that ends in a known format, such as .npy, .csv or .parquet")


def copy(pieces: Iterable[bytes], target: str, limit: int) -> None:
    """Write pieces into a file that is there already.

    Raises:
        RefusedUploadError: they are more than the limit.
    """
    size = 0
    with Path(target).open("r+b") as file:
        for piece in pieces:
            size += len(piece)
            if size > limit:
                raise too_large(limit)
            file.write(piece)
