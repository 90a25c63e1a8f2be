"""A Dask cluster that runs jobs, seen from the service. Only imported where one is configured."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any

import structlog
from distributed import Client

from privest_service.estimates.cluster import attempt

_LOOK = 1.0
"""Seconds between looks at the cluster, and between attempts to reach it."""

_CONNECT = 5.0
"""Seconds that one attempt to reach the scheduler may take."""

log = structlog.get_logger()


class RunLostError(RuntimeError):
    """A run came to no end; there is no word on why, which may tell of the rows."""


class DaskRunners:
    """Whole jobs on a cluster, from one connection in a thread of its own that is made anew when it is lost.

    The engine is named as `dask://host:port` or `dask+tls://host:port`.
    """

    def __init__(self, engine: str, workers: int) -> None:
        protocol, _, place = engine.partition("://")
        self.slots = workers
        self._address = f"{'tls' if protocol == 'dask+tls' else 'tcp'}://{place}"
        self._client: Client | None = None
        self._able = False
        self._running: set[Future[str]] = set()
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=(self._keep(),), name="cluster", daemon=True
        )

    @property
    def healthy(self) -> bool:
        """Whether the scheduler answers, and has workers."""
        return self._able and self._thread.is_alive()

    def start(self) -> None:
        """Begin to look for the scheduler."""
        self._thread.start()

    def call(self, seconds: float, function: Callable[..., str], *args: str) -> Future[str]:
        """Begin a run, whose answer is waited for so many seconds.

        Raises:
            RuntimeError: the connection's thread is gone.
        """
        if not self._thread.is_alive():
            raise RuntimeError("stopped")
        future = asyncio.run_coroutine_threadsafe(self._run(seconds, function, *args), self._loop)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    def stop(self) -> None:
        """Wait for all runs to end, and leave the cluster."""
        wait(list(self._running))
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    async def _run(self, seconds: float, function: Callable[..., str], *args: str) -> str:
        """One run. Dask tries a task again whose worker is lost, whatever is said here: permits are for that.

        Raises:
            RunLostError: it came to no end in time.
        """
        if self._client is None:
            raise RunLostError
        # Under a random name, as all names are shown; and with no traceback, as they are logged.
        task = self._client.submit(attempt, seconds, function, *args, pure=False, retries=0)
        try:
            async with asyncio.timeout(seconds):
                answer = await task
        finally:
            task.release()  # cancels it unless it is over: nobody else wants it
        if answer is None:
            raise RunLostError
        return answer

    async def _keep(self) -> None:
        """Hold a connection, and make another when it is lost."""
        while not self._end.is_set():
            try:
                await self._hold()
            except Exception as error:  # whatever it is, the next attempt may be better
                log.warning("cluster lost", address=self._address, why=type(error).__name__)
            await self._pause()

    async def _hold(self) -> None:
        client = Client(self._address, asynchronous=True, set_as_default=False, timeout=_CONNECT)
        try:
            await client
            self._client = client
            await self._watch(client)
        finally:
            self._client, self._able = None, False
            with suppress(Exception):
                closing: Any = client.close()  # which can be awaited, this client being asynchronous
                await closing

    async def _watch(self, client: Client) -> None:
        """Look for workers, until the connection is given up. Dask tries to mend it at first."""
        while client.status in ("running", "connecting") and not self._end.is_set():
            able = False
            if client.status == "running":
                with suppress(OSError, TimeoutError):
                    async with asyncio.timeout(_CONNECT):
                        able = bool(await client.nthreads())
            if able != self._able:
                log.info("cluster", address=self._address, able=able)
            self._able = able
            await self._pause()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK):
                await self._end.wait()
