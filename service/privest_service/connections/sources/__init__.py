"""Sources of rows: each is fetched into one local file, in a worker process.

What a source answers, be it a driver's message or a path, stays in the worker: it may hold what opens it.
"""

from collections.abc import Generator
from contextlib import contextmanager

from privest_service.connections.schemas import NewConnection, NewFiles, NewObjectStore
from privest_service.connections.sources import database, files, object_store
from privest_service.connections.sources.copying import refused
from privest_service.formats import Format
from privest_service.upload_errors import RefusedUploadError


def fetch(connection: NewConnection, path: str, target: str, limit: int, data_dir: str) -> Format:
    """Copy what an owner's handle names into a local file.

    Args:
        connection: one that is assigned to the owner.
        path: the handle's part after the colon.
        target: an empty file, which is opened and never made: it may be gone by now, and stays so.
        limit: bytes that it may grow to.
        data_dir: of the service, which is never a source.

    Returns:
        The format of the copy.

    Raises:
        RefusedUploadError: there is nothing to be had under this path, in words that tell nothing else.
        OSError: this machine could not do it.
    """
    with _contained():
        if isinstance(connection, NewFiles):
            return files.fetch(connection, path, target, limit, data_dir)
        if isinstance(connection, NewObjectStore):
            return object_store.fetch(connection, path, target, limit)
        return database.fetch(connection, path, target, limit)


def put(connection: NewObjectStore, key: str, content: bytes) -> None:
    """Write a new object into a store.

    Raises:
        RefusedUploadError: it was not taken.
    """
    with _contained():
        object_store.put(connection, key, content)


def check(connection: NewConnection, data_dir: str) -> None:
    """Refuse a connection that can never work; whether its other end answers is not asked.

    Raises:
        RefusedUploadError: why.
    """
    with _contained():
        if isinstance(connection, NewFiles):
            files.check(connection, data_dir)
        elif isinstance(connection, NewObjectStore):
            object_store.check(connection)
        else:
            database.check(connection)


@contextmanager
def _contained() -> Generator[None]:
    """Let out nothing but refusals and faults of this machine: no driver's message.

    The panics of obstore are no Exceptions.
    """
    try:
        yield
    except (RefusedUploadError, OSError, MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        raise refused("could not be read from the source") from None
