"""The interface of what runs jobs: worker processes of this machine, or a cluster."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from privest_service.workers.pool import Processes


class Runners(Protocol):
    """Run functions elsewhere, for a limited time, and keep to themselves why one failed."""

    @property
    def slots(self) -> int:
        """Number of runs at a time."""
        ...

    @property
    def healthy(self) -> bool:
        """Whether a run that is begun now can be expected to end."""
        ...

    def start(self) -> None:
        """Make ready; what takes long goes on behind."""
        ...

    def call(self, seconds: float, function: Callable[..., str], *args: str) -> Future[str]:
        """Begin a run. It may be tried twice; what it returns is delivered once, or an exception is.

        Args:
            seconds: that it may take.
            function: takes the other arguments.
            args: of the function.

        Raises:
            RuntimeError: nothing runs here any more.
        """
        ...

    def stop(self) -> None:
        """Wait for all runs to end, and take no more."""
        ...


def runners(engine: str, *, workers: int, memory: int) -> Runners:
    """Make the runners that an engine's name stands for.

    The engine is `local`, or a scheduler as `dask://host:port` or `dask+tls://host:port`. Processes of this
    machine may take `memory` bytes each.
    """
    if engine == "local":
        return Processes(workers, memory)
    from privest_service.estimates.runners.dask import DaskRunners  # noqa: PLC0415 - optional, and heavy

    return DaskRunners(engine, workers)
