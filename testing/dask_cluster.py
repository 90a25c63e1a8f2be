"""A Dask cluster on this machine: a scheduler and workers, each in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from testing import ROOT
from testing.server import HANG_GUARD, has_open


class Cluster:
    """Started with one call for each process; what they say goes to one log.

    Args:
        directory: for its log and whatever workers write.
        port: of the scheduler.
        options: of all its processes, as for TLS.
        preloaded: a module that its workers import first.
    """

    def __init__(
        self,
        directory: Path,
        port: int,
        options: Sequence[str] = (),
        scheme: str = "dask",
        preloaded: str = "",
    ) -> None:
        self.directory, self.log = directory, directory / "cluster.log"
        self.port, self.options = port, options
        self.preload = ["--preload", preloaded] if preloaded else []
        self.engine = f"{scheme}://127.0.0.1:{port}"
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, workers: int) -> None:
        """Start a scheduler, and workers that wait for it."""
        self.scheduler = self._begin("scheduler", "--host", "127.0.0.1", "--port", str(self.port))
        for _ in range(workers):
            self.add()

    def add(self) -> None:
        """One more worker, with one thread."""
        scheme = "tls" if self.options else "tcp"
        self.workers.append(
            self._begin(
                "worker", f"{scheme}://127.0.0.1:{self.port}", "--no-nanny", "--nthreads=1",
                "--memory-limit=0", f"--death-timeout={HANG_GUARD:.0f}",
                f"--local-directory={self.directory}", *self.preload,
            )
        )  # fmt: skip

    def _begin(self, role: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{role}", *arguments, "--no-dashboard"]
        path = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
        with self.log.open("ab") as log:
            return subprocess.Popen([*command, *self.options], env=environment, stdout=log, stderr=log)

    def reading(self, path: str) -> subprocess.Popen[bytes] | None:
        """The worker that has a file open."""
        for worker in self.workers:
            try:
                if has_open(worker.pid, path):
                    return worker
            except OSError:  # it ended
                continue
        return None

    def kill(self, process: subprocess.Popen[bytes] | None) -> None:
        """End a process at once, as a crash would."""
        if process is not None:
            process.kill()
            process.wait()
            self.workers = [worker for worker in self.workers if worker is not process]

    def stop(self) -> None:
        """End all of it."""
        for process in (*self.workers, self.scheduler):
            self.kill(process)
        self.scheduler = None
