"""Servers of the audit's own: one as it is shipped, others with faults, started when they are needed."""

import atexit
import os
import sys
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.harness import Server

from audit.faulty import NOISE

_open = ExitStack()


@cache
def shipped() -> Server:
    """As everybody runs it behind a proxy of this machine, on SQLite."""
    return _started()


@cache
def faulty(noise: float) -> Server:
    """The same with this factor of its noise, and the other faults of `audit.faults`."""
    os.environ[NOISE] = str(noise)
    return _started(sys.executable, "-m", "audit.faulty")


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
