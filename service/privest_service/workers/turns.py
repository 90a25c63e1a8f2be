"""`Turns`: whose call a planning process makes next."""

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition
from typing import Literal

Priority = Literal["charged", "free", "idle"]
"""Priority of a call: plans of queries that are to be charged come before free work; `idle` never waits."""


class NoTurnError(Exception):
    """A call got no turn."""


@dataclass(frozen=True, eq=False)
class _Call:
    caller_id: str
    priority: Priority


class Turns:
    """Decides which of the waiting calls begins next.

    Calls that are to be charged come first. Within a priority callers take turns, in the order in which they
    began to wait. At most one call of a caller runs at a time. One process is kept for calls to be charged.

    Args:
        processes: number of calls that can run at a time, at least 2.
    """

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._changed = Condition()
        self._running = set[_Call]()
        # Callers in the order of their next turns, each with its calls.
        self._waiting: dict[Priority, dict[str, deque[_Call]]] = {"charged": {}, "free": {}}

    @contextmanager
    def turn(self, caller_id: str, priority: Priority, seconds: float) -> Generator[None]:
        """Wait for a turn, and hold it in this block.

        Raises:
            NoTurnError: no turn came within so many seconds, or it is `idle` and other calls run or wait.
        """
        call = _Call(caller_id, priority)
        with self._changed:
            if priority == "idle":
                if self._running or any(self._waiting.values()):
                    raise NoTurnError
                self._running.add(call)
            else:
                self._wait(call, seconds)
        try:
            yield
        finally:
            with self._changed:
                self._running.remove(call)
                for waiting in self._waiting.values():  # this caller's next turn comes after all others'
                    if caller_id in waiting:
                        waiting[caller_id] = waiting.pop(caller_id)
                self._begin_next()

    def _wait(self, call: _Call, seconds: float) -> None:
        calls = self._waiting[call.priority].setdefault(call.caller_id, deque())
        calls.append(call)
        self._begin_next()
        if not self._changed.wait_for(lambda: call in self._running, seconds):
            calls.remove(call)
            self._forget_if_empty(call.priority, call.caller_id)
            raise NoTurnError

    def _begin_next(self) -> None:
        """Begin all calls that can run now."""
        while (priority_and_caller := self._next()) is not None:
            priority, caller_id = priority_and_caller
            self._running.add(self._waiting[priority][caller_id].popleft())
            self._forget_if_empty(priority, caller_id)
            self._changed.notify_all()

    def _forget_if_empty(self, priority: Priority, caller_id: str) -> None:
        if not self._waiting[priority][caller_id]:
            del self._waiting[priority][caller_id]

    def _next(self) -> tuple[Priority, str] | None:
        """Return the priority and the caller of the next call, or None if no call can run now."""
        if len(self._running) == self._processes:
            return None
        callers = {call.caller_id for call in self._running}
        uncharged = sum(call.priority != "charged" for call in self._running)
        for priority, waiting in self._waiting.items():
            if priority == "free" and uncharged == self._processes - 1:
                continue
            for caller_id in waiting:
                if caller_id not in callers:
                    return priority, caller_id
        return None
