"""Jobs in worker processes of this machine."""

from collections.abc import Callable
from concurrent.futures import Future

from privest_service.workers.pool import Processes


class LocalRunners:
    """Runs in worker processes; one that crashes or takes too long is replaced.

    Args:
        workers: processes, and runs at a time.
        memory: bytes that each process may take.
    """

    def __init__(self, workers: int, memory: int) -> None:
        self.slots = workers
        self._memory = memory
        self._processes: Processes | None = None

    @property
    def healthy(self) -> bool:
        """Whether there are workers: as long as the service runs, since broken ones are replaced here."""
        if self._processes is None:
            return False
        self._processes.restart_if_broken()
        return True

    def start(self) -> None:
        """Make ready; processes start when they are needed."""
        self._processes = Processes(self.slots, self._memory)

    def run(self, seconds: float, function: Callable[..., str], *args: str) -> Future[str]:
        """Begin a run; after so many seconds its process is killed.

        Raises:
            RuntimeError: there are no workers.
        """
        if self._processes is None:
            raise RuntimeError("not started")
        return self._processes.call(seconds, function, *args)

    def stop(self) -> None:
        """Wait for all runs to end, and end the processes."""
        if self._processes is not None:
            self._processes.stop()
