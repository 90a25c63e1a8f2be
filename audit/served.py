"""Servers of the audit's own: one as it is shipped, others with faults, started when they are needed."""

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from audit.faulty import FAULTS, NOISE
from testing.server import SPD3, Server, npy, spd, until

_open = ExitStack()


@cache
def shipped() -> Server:
    """The service as everybody runs it, behind a proxy of this machine, on SQLite."""
    return _started()


@cache
def faulty(noise: float) -> Server:
    """The service with its noise times this factor, and with the other faults of `audit.faults`."""
    os.environ[NOISE] = str(noise)
    return _started(sys.executable, "-m", "audit.faulty")


everywhere: tuple[str, ...] = ()
"""Faults that `alone` gives every server: `audit.mutants` puts one in."""


@contextmanager
def alone(*faults: str) -> Iterator[Server]:
    """Yield a server that nobody else uses, so that its numbers begin anew.

    Args:
        faults: that it has, by their names in `audit.faulty`.
    """
    named = " ".join([*faults, *everywhere])
    with TemporaryDirectory(prefix="privest-audit-") as directory:
        program = (sys.executable, "-m", "audit.faulty") if named else ()
        environment = {NOISE: "1", FAULTS: named}
        url = f"sqlite:///{directory}/privest.db"
        server = Server(Path(directory), url, program, environment, workers=1)
        try:
            # A busy machine may need so long to start the workers that the first upload is given up.
            first = server.owner()
            until(lambda: first.upload(npy(spd(2)), SPD3).status_code == 201)
            yield server
        finally:
            server.kill()


def _started(*program: str) -> Server:
    directory = Path(_open.enter_context(TemporaryDirectory(prefix="privest-audit-")))
    database = f"sqlite:///{directory}/privest.db"
    server = Server(directory, database, program=program, workers=2, trusted_proxies="127.0.0.1")
    _open.callback(server.kill)
    return server


@atexit.register
def stop() -> None:
    """End them all, and remove what they wrote."""
    shipped.cache_clear()
    faulty.cache_clear()
    _open.close()
