"""A Dask cluster that runs jobs, seen from the service. Nothing of Dask is loaded here: see `dask_client`."""

import asyncio
import json
import os
import sys
import threading
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from itertools import count

import structlog
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json

_PAUSE = 1.0
"""Seconds between two attempts to reach the cluster."""

_LONGEST = 2**27
"""Most bytes of a line from the process that speaks to the scheduler. No estimate is nearly as long."""

_KEPT = ("HOME", "LANG", "LC_", "LD_", "PATH", "PYTHON", "TMPDIR", "TZ", "DASK_")
"""Beginnings of the names of environment variables that this process inherits: none holds a key of ours."""

log = structlog.get_logger()


class RunLostError(RuntimeError):
    """A run came to no end; there is no word on why, which may tell of the rows."""


class _Word(BaseModel):
    """A line from the process that speaks to the scheduler. A worker may control it, so all is checked.

    Attributes:
        able: whether the scheduler answers, and has workers.
        run: number of the run that ended.
        answer: of the run; null where there is none.
        why: type of the error for which no connection was made.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    able: bool | None = None
    run: int | None = None
    answer: str | None = None
    why: str | None = Field(None, pattern="^[A-Za-z]{1,40}$")


class DaskRunners:
    """Whole jobs on a cluster, through a process without keys that is started again when it ends.

    The engine is named as `dask://host:port` or `dask+tls://host:port`.
    """

    def __init__(self, engine: str, workers: int) -> None:
        protocol, _, place = engine.partition("://")
        self.slots = workers
        self._address = f"{'tls' if protocol == 'dask+tls' else 'tcp'}://{place}"
        self._process: Process | None = None
        self._able = False
        self._numbers = count()
        self._answers: dict[int, asyncio.Future[str]] = {}
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
        """Have the process run a function on the cluster, and return its answer, which is JSON.

        Raises:
            RunLostError: it came to no end in time.
        """
        if not self._able:
            raise RunLostError
        number, answered = next(self._numbers), self._loop.create_future()
        self._answers[number] = answered
        called = (function.__module__, function.__name__)
        try:
            async with asyncio.timeout(seconds):
                await self._tell(run=number, seconds=seconds, function=called, args=args)
                return await answered
        finally:
            del self._answers[number]
            if not answered.done() or answered.cancelled():
                with suppress(OSError, RunLostError, TimeoutError):
                    async with asyncio.timeout(_PAUSE):
                        await self._tell(run=number)  # nobody waits for it any more

    async def _tell(self, **word: object) -> None:
        if self._process is None or self._process.stdin is None:
            raise RunLostError
        self._process.stdin.write(json.dumps(word).encode() + b"\n")
        await self._process.stdin.drain()

    async def _keep(self) -> None:
        """Hold a process that speaks to the scheduler, and start another when it ends."""
        ending = asyncio.ensure_future(self._end.wait())
        while not self._end.is_set():
            why = ""
            try:
                process = await self._start()
                heard = asyncio.ensure_future(self._listen(process))
                await asyncio.wait((heard, ending), return_when=asyncio.FIRST_COMPLETED)
                heard.cancel()
                why = await heard
            except asyncio.CancelledError:
                pass
            except Exception as error:  # whatever it is, the next attempt may be better
                why = type(error).__name__
            await self._lose()
            if not self._end.is_set():
                log.warning("cluster lost", address=self._address, why=why)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_PAUSE):
                        await asyncio.shield(ending)

    async def _start(self) -> Process:
        """Start the process: afresh, as a fork would have this one's memory, with the keys in it."""
        kept = {name: value for name, value in os.environ.items() if name.startswith(_KEPT)}
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "privest_service.estimates.runners.dask_client", self._address),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=kept | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            cwd="/",
            limit=_LONGEST,
        )
        return self._process

    async def _listen(self, process: Process) -> str:
        """Take what the process says until it ends.

        Returns:
            the type of the error for which it made no connection, if it told one.

        Raises:
            ValueError: it said what it may not say, or too much.
        """
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        while line := await process.stdout.readline():
            word = _Word.model_validate_json(line)
            if word.why is not None:
                return word.why
            if word.able is not None and word.able != self._able:
                log.info("cluster", address=self._address, able=word.able)
                self._able = word.able
            answered = self._answers.get(-1 if word.run is None else word.run)
            if answered is not None and not answered.done():
                self._settle(answered, word.answer)
        return ""

    def _settle(self, answered: "asyncio.Future[str]", answer: str | None) -> None:
        """Take an answer that is JSON with finite numbers; lose the run otherwise."""
        try:
            from_json(answer or "", allow_inf_nan=False)
        except ValueError:
            answered.set_exception(RunLostError())
        else:
            answered.set_result(answer or "")

    async def _lose(self) -> None:
        """End the process and the runs that it had under way."""
        process, self._process, self._able = self._process, None, False
        if process is not None and process.stdout is not None:
            with suppress(ProcessLookupError):
                process.kill()
            with suppress(TimeoutError, OSError):
                async with asyncio.timeout(_PAUSE):
                    # Until the pipe ends, `wait` does not either.
                    while await process.stdout.read(2**16):
                        pass
                    await process.wait()
        for answered in self._answers.values():
            if not answered.done():
                answered.set_exception(RunLostError())
