"""The process that speaks to a Dask scheduler, so that the service does not. It is run as a script.

Dask's client unpickles what workers answer, so a worker can run code in it. This process is started fresh and
has no key of the service in its memory or environment. Before it connects it gives up other programs, other
files than libraries, and other ports than the scheduler's: see `confinement`. It takes runs from the service
and hands back results, as JSON lines. What it hands back is checked there.
"""

import asyncio
import json
import resource
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from distributed import Client

from privest_service.datasets import confinement
from privest_service.estimates.cluster import attempt

_PAUSE = 1.0
"""Seconds between two questions to the scheduler."""

_CONNECT = 5.0
"""Seconds that the scheduler has to answer."""

_MEMORY = 2**32
"""Bytes that this process may take: a result is much smaller."""

_LONGEST = 2**26
"""Most bytes in one line from the service: plans are much shorter."""


class Courier:
    """A connection to the scheduler, and the runs that the service has under way there."""

    def __init__(self, client: Client, writer: asyncio.StreamWriter) -> None:
        self._client, self._writer = client, writer
        self._runs: dict[int, asyncio.Task[None]] = {}

    async def follow(self, reader: asyncio.StreamReader) -> None:
        """Do what the service says, until it closes the pipe."""
        while line := await reader.readline():
            told = json.loads(line)
            number = told["run"]
            if "function" in told:
                self._runs[number] = asyncio.create_task(self._run(**told))
            elif number in self._runs:
                self._runs[number].cancel()

    async def watch(self) -> None:
        """Report whether there are workers, until the connection is given up. Dask tries to mend it first."""
        while self._client.status in ("running", "connecting"):
            able = False
            if self._client.status == "running":
                with suppress(OSError, TimeoutError):
                    async with asyncio.timeout(_CONNECT):
                        able = bool(await self._client.nthreads())
            self.tell(able=able)
            await asyncio.sleep(_PAUSE)

    def tell(self, **word: Any) -> None:
        """Send the service a line."""
        self._writer.write(json.dumps(word).encode() + b"\n")

    async def _run(self, run: int, seconds: float, function: list[str], args: list[str]) -> None:
        """Have a worker run a function; hand back its answer, or null if there is none.

        Dask tries a task again whose worker is lost, whatever `retries` is: run tokens are for that.
        """
        module, name = function
        answer = None
        try:
            called = getattr(import_module(module), name)
            # Under a random name, as all names are shown; and with no traceback, as they are logged.
            task = self._client.submit(attempt, seconds, called, *args, pure=False, retries=0)
            try:
                answer = await task
            finally:
                task.release()  # cancels it unless it is over: nobody else wants it
        except Exception:  # of any kind, as it may tell of the rows
            answer = None
        finally:
            self._runs.pop(run, None)
        self.tell(run=run, answer=answer if isinstance(answer, str) else None)


async def _serve(address: str) -> None:
    """Connect, and serve until the service closes the pipe or the connection is lost."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LONGEST)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    try:
        # Reads certificates, which are out of reach later.
        client = Client(address, asynchronous=True, set_as_default=False, timeout=_CONNECT)
        confinement.restrict_to_port(int(address.rpartition(":")[2]))
        await client
    except Exception as error:
        writer.write(json.dumps({"why": type(error).__name__}).encode() + b"\n")
        await writer.drain()
        return
    courier = Courier(client, writer)
    tasks = [asyncio.create_task(courier.follow(reader)), asyncio.create_task(courier.watch())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    with suppress(KeyboardInterrupt):  # of a terminal, which sends it to the service as well
        asyncio.run(_serve(sys.argv[1]))
