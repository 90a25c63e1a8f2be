"""Worker processes of this machine: each does one thing at a time, within bounds of time and memory."""

import os
import resource
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing import forkserver, get_context

from pebble import ProcessPool

from privest_service.estimates.runners.memory import keep_freed

_PRELOADED = [
    "privest_service.estimates.worker",
    "privest_service.estimates.kinds",
    "privest_service.estimates.runners.local",
]
"""Loaded once, before workers are forked from it."""


def processes(workers: int, memory: int) -> ProcessPool:
    """Worker processes that are started when they are needed, and replaced when they crash.

    Args:
        workers: at most.
        memory: bytes that each may take.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the threads are ours, over chunks
    context = get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    forkserver.ensure_running()  # before uploads go elsewhere: a socket's path must be short
    return ProcessPool(workers, initializer=limit_memory, initargs=(memory,), context=context)


def limit_memory(allowed: int) -> None:
    """Let this process take so many bytes: beyond, it meets a MemoryError, and others do not meet the kernel.

    What counts is memory of its own that it may write to. Rows are mapped to be read only, or shared with
    their file: they take none of it, however many there are.
    """
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
    keep_freed()  # of what it may take


class LocalRunners:
    """Runs in worker processes; one that crashes or takes too long is replaced.

    Args:
        workers: processes, and runs at a time.
        memory: bytes that each process may take.
    """

    def __init__(self, workers: int, memory: int) -> None:
        self.slots = workers
        self._memory = memory
        self._pool: ProcessPool | None = None

    @property
    def healthy(self) -> bool:
        """Whether there are workers."""
        return self._pool is not None and self._pool.active

    def start(self) -> None:
        """Make the pool; its processes start behind."""
        self._pool = processes(self.slots, self._memory)

    def run(self, seconds: float, function: Callable[..., str], *args: str) -> Future[str]:
        """Begin a run; after so many seconds its process is killed.

        Raises:
            RuntimeError: the pool broke down.
        """
        if self._pool is None:
            raise RuntimeError("not started")
        return self._pool.schedule(function, args=args, timeout=seconds)

    def stop(self) -> None:
        """Wait for all runs to end, and end the processes."""
        if self._pool is not None:
            self._pool.close()
            self._pool.join()
