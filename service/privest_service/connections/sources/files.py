"""Files below a root: opened component by component, so that no link and no `..` leads out of it."""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from privest_service.connections.schemas import NewFiles
from privest_service.connections.sources.copying import copy, format_of, parts_of, refused, too_large
from privest_service.formats import Format

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = (
    os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
)  # a FIFO opens at once, and is seen to be one
_PIECE = 2**20


def check(connection: NewFiles, data_dir: str) -> None:
    """Refuse a root that is no directory, or through which one owner could register another's rows.

    Raises:
        RefusedUploadError: it is such a root.
    """
    os.close(_open_root(connection, data_dir))


def fetch(connection: NewFiles, path: str, target: str, limit: int, data_dir: str) -> Format:
    """Copy a plain file; see `sources.fetch`."""
    parts, form = parts_of(path), format_of(path)
    with ExitStack() as opened:

        def keep(descriptor: int) -> int:
            opened.callback(os.close, descriptor)
            return descriptor

        here = keep(_open_root(connection, data_dir))
        try:
            for part in parts[:-1]:
                here = keep(os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=here))
            here = keep(os.open(parts[-1], _FILE | os.O_NOFOLLOW, dir_fd=here))
        except OSError:
            raise _no_file() from None
        found = os.fstat(here)
        if not stat.S_ISREG(found.st_mode):
            raise _no_file()
        if found.st_size > limit:
            raise too_large(limit)
        copy(_pieces(here), target, limit)
    return form


def _no_file() -> Exception:
    # The same for what is missing, closed, linked or no file: an owner has no business to find out.
    return refused("must name a plain file that exists (links are not followed)")


def _pieces(descriptor: int) -> Iterator[bytes]:
    while piece := os.read(descriptor, _PIECE):
        yield piece


def _open_root(connection: NewFiles, data_dir: str) -> int:
    """A descriptor of the root, once that is seen to be apart from the service's data.

    Directories are compared by what they are and not by name: mounts and links give them several.
    """
    try:
        root = os.open(connection.root, _FOLDER)
    except (OSError, ValueError):
        raise refused("must have a root that is a directory which this service may read") from None
    try:
        place = Path(os.path.realpath(connection.root))
        data = Path(os.path.realpath(data_dir))
        apart = (
            os.path.samestat(os.fstat(root), place.stat())  # nobody exchanged it meanwhile
            and not any(os.path.samestat(os.fstat(root), above.stat()) for above in (data, *data.parents))
            and not any(os.path.samestat(data.stat(), above.stat()) for above in (place, *place.parents))
        )
    except OSError:
        apart = False
    if not apart:
        os.close(root)
        raise refused("must have a root outside the service's data directory, and not above it")
    return root
