"""The deliverer: a thread of each replica that takes notices from the table and has them sent."""

import threading
from collections.abc import Callable, Sequence

import structlog

from privest_service.database import Database
from privest_service.notices import service
from privest_service.notices.sending import NotSentError, Put, send
from privest_service.problems import DatabaseUnavailable
from privest_service.settings import Settings

_PATIENCE = 1.0
"""Seconds between two looks for notices, which any process may have written."""

log = structlog.get_logger()


class Deliverer:
    """Delivers notices one after the other; a channel that fails waits longer every time.

    A notice is deleted once it was sent. If the process is killed in between, it is sent once more, with the
    same id.

    Args:
        database: where notices wait.
        settings: of the ways out.
        put: the way into object stores.
        tasks: called now and then; they may write notices.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        put: Put,
        tasks: Sequence[Callable[[], object]] = (),
    ) -> None:
        self._database, self._settings, self._put, self._tasks = database, settings, put, tasks
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._deliver, name="deliverer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the attempt that is made now, which a further start makes again if it is cut off."""
        self._stopping.set()
        self._thread.join(_PATIENCE)

    def _deliver(self) -> None:
        while not self._stopping.is_set():
            try:
                for task in self._tasks:
                    task()
                if self.deliver_one():
                    continue
            except DatabaseUnavailable:
                pass
            except Exception:
                log.exception("delivering failed")
            self._stopping.wait(_PATIENCE)

    def deliver_one(self) -> bool:
        """Try the next notice; false if there is none."""
        if not service.any_due(self._database):
            return False
        attempt = self._database.run(service.claim)
        if attempt is None:
            return False
        try:
            send(attempt, self._settings, self._put)
        except Exception as error:
            if not isinstance(error, NotSentError):  # a fault of ours must not be met again without an end
                log.exception("delivering failed")
            why = str(error) if isinstance(error, NotSentError) else "It could not be delivered."
            self._database.run(lambda session: service.failed(session, attempt, why))
            log.info("notice not delivered", channel=attempt.channel_id)
        else:
            self._database.run(lambda session: service.succeeded(session, attempt))
        return True
