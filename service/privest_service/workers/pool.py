"""Worker processes of this machine: each does one thing at a time, within bounds of time and memory."""

import gc
import os
import resource
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import InvalidStateError
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import forkserver, get_context
from types import MappingProxyType
from typing import Any, TypeVar

from pebble import ProcessFuture, ProcessPool

from privest_service.telemetry import metrics
from privest_service.workers.memory import keep_freed

T = TypeVar("T")

_PRELOADED = [
    "privest_service.workers.preloading",
    "privest_service.estimates.worker",
    "privest_service.estimates.tasks",
    "privest_service.datasets.parsing",
    __name__,
]
"""Modules that are loaded once, before workers are forked. A wrong name would be passed over."""

_KEPT = ("HOME", "LANG", "LC_", "LD_", "MALLOC_", "OMP_", "OPENBLAS_", "PATH", "PYTHON", "TMPDIR", "TZ")
"""Beginnings of the names of environment variables that workers inherit."""

_environment_lock = threading.Lock()

_STALLED = 60.0
"""Seconds in which calls wait and no process is busy before the pool counts as stalled."""


class Processes:
    """Worker processes that are started when they are needed, and replaced when they crash.

    A process that is killed while it has nothing to do, or between a call and its word that it took it,
    breaks the whole pool for ever, and one that is killed as it begins may leave it waiting for ever: then
    the pool is replaced, and what was under way in it is lost.

    Args:
        workers: at most.
        memory: bytes that each may take.
        prepare: done in each of them before its first call.
        environment: variables that each gets besides the few that Python needs.
    """

    def __init__(
        self,
        workers: int,
        memory: int,
        prepare: Callable[[], None] | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # the threads are ours, over chunks
        self.slots, self._begun = workers, (memory, prepare, dict(environment))
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)
        self._lock = threading.Lock()
        self._pool: ProcessPool | None = None
        self._calls = set[ProcessFuture[Any]]()
        self._moved = 0.0
        self._stopped = False

    @property
    def healthy(self) -> bool:
        """Whether a call can be expected to end: always, because broken processes are replaced here."""
        self.restart_if_broken()
        return True

    def start(self) -> None:
        """Start the process from which workers are forked; each worker starts with the call that needs it.

        That is before uploads go elsewhere: the path of its socket must be short.
        """
        _ensure_forkserver()

    def call(self, seconds: float, function: Callable[..., T], *args: Any) -> ProcessFuture[T]:
        """Begin a call; after so many seconds its process is killed.

        Raises:
            RuntimeError: there are no workers any more, or none can be started.
        """
        self.restart_if_broken()
        with self._lock:
            if self._stopped:
                raise RuntimeError("stopped")
            if self._pool is None:
                _ensure_forkserver()
                self._pool = ProcessPool(
                    self.slots, initializer=begin, initargs=self._begun, context=self._context
                )
            call = self._pool.schedule(function, args=args, timeout=seconds)
            self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    def restart_if_broken(self) -> None:
        """Restart a broken pool with the next call, and end what is left of it and its calls.

        To be called now and then, as nothing else sees that a pool waits for ever.
        """
        with self._lock:
            now = time.monotonic()
            if not self._calls or any(call.running() for call in list(self._calls)):
                self._moved = now
            if (broken := self._pool) is None or (_is_usable(broken) and now - self._moved < _STALLED):
                return
            self._pool, lost = None, list(self._calls)
        metrics.RENEWALS.inc()
        # Elsewhere, as ending processes takes time, and callbacks may call.
        threading.Thread(target=_clear, args=(broken, lost), name="broken-pool", daemon=True).start()

    def stop(self) -> None:
        """Wait for all calls to end, end the processes, and take no more."""
        with self._lock:
            self._stopped = True
            pool = self._pool
        if pool is not None:
            pool.close()
        while pool is not None:
            try:
                pool.join(1.0)
                break
            except TimeoutError:
                self.restart_if_broken()
                pool = self._pool


def _is_usable(pool: ProcessPool) -> bool:
    """Whether a pool takes calls. Asked first, it starts its processes, and raises where it cannot."""
    try:
        return pool.active
    except (OSError, RuntimeError):
        return False


def _clear(broken: ProcessPool, lost: list[ProcessFuture[Any]]) -> None:
    broken.stop()
    broken.join()
    for call in lost:
        with suppress(InvalidStateError):  # it ended
            call.set_exception(BrokenProcessPool())


def require_worker() -> None:
    """Start a process as workers are started, and wait for its end.

    Raises:
        RuntimeError: it came to another end.
        OSError: none can be started.
    """
    process = get_context("forkserver").Process(target=os.getpid, name="probe", daemon=True)
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError("a process that does nothing failed")


def _ensure_forkserver() -> None:
    """Start the process from which workers are forked, without the service's environment.

    It holds keys and passwords, and stays readable in the memory of every process that was started with it,
    whatever is removed from `os.environ` later.
    """
    with _environment_lock:
        whole = dict(os.environ)
        for name in whole:
            if not name.startswith(_KEPT):
                del os.environ[name]
        try:
            forkserver.ensure_running()
        finally:
            os.environ.update(whole)


def begin(
    allowed: int,
    prepare: Callable[[], None] | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Make this process a worker, which says nothing and may take so many bytes.

    Whatever a library would print here, a warning or none, may tell of the rows. Beyond those bytes it meets
    a MemoryError, and others do not meet the kernel. What counts is memory of its own that it may write to:
    rows are mapped to be read only, or shared with their file, and take none of it, however many there are.
    """
    gc.freeze()  # what was loaded before the fork, and is shared: see `preloading`
    gc.enable()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
    keep_freed()  # of what it may take
    os.environ.update(environment)
    if prepare is not None:
        prepare()
