"""Turns at the planning processes: who comes next, tried with calls that end when the test says so."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from privest_service.workers.turns import NoTurnError, Priority, Turns
from testing.server import HANG_GUARD, until


class Line:
    """Calls of several callers, each named by its caller and a number, in the order in which they began.

    Args:
        processes: that run calls.
    """

    def __init__(self, processes: int = 2) -> None:
        self.turns, self.begun = Turns(processes), list[str]()
        self._pool, self._ends = ThreadPoolExecutor(20), dict[str, threading.Event]()
        self._calls = dict[str, Future[None]]()

    def call(self, name: str, priority: Priority = "free") -> None:
        """Begin to wait for a turn; returns once the call runs or waits."""
        self._ends[name] = threading.Event()
        before = self.known()
        self._calls[name] = self._pool.submit(self._run, name, priority)
        until(lambda: self.known() > before)

    def known(self) -> int:
        """Number of calls that wait, or have begun."""
        with self.turns._changed:
            waiting = [calls for line in self.turns._waiting.values() for calls in line.values()]
            return len(self.begun) + sum(map(len, waiting))

    def end(self, name: str) -> None:
        """End a running call, and wait until all calls that follow from it have begun."""
        self._ends[name].set()
        self._calls[name].result(HANG_GUARD)
        until(lambda: len(self.turns._running) == len(self._going()))

    def end_all(self) -> list[str]:
        """End the oldest running call again and again; return all calls in the order in which they began."""
        while going := self._going():
            self.end(going[0])
        return self.begun

    def _going(self) -> list[str]:
        return [name for name in self.begun if not self._ends[name].is_set()]

    def _run(self, name: str, priority: Priority) -> None:
        with self.turns.turn(name.split(maxsplit=1)[0], priority, HANG_GUARD):
            self.begun.append(name)
            self._ends[name].wait(HANG_GUARD)

    def stop(self) -> None:
        """End all calls."""
        for end in self._ends.values():
            end.set()
        self._pool.shutdown()


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.stop()


def test_callers_take_turns(line: Line) -> None:
    for name in ("ann 1", "ann 2", "ann 3", "ann 4", "bob 1", "bob 2", "cid 1"):
        line.call(name)
    assert line.end_all() == ["ann 1", "bob 1", "cid 1", "ann 2", "bob 2", "ann 3", "ann 4"]


def test_one_who_comes_again_waits_for_those_who_waited_before(line: Line) -> None:
    for name in ("ann 1", "bob 1", "bob 2", "cid 1"):
        line.call(name)
    line.end("ann 1")
    line.call("ann 2")
    assert line.end_all() == ["ann 1", "bob 1", "cid 1", "ann 2", "bob 2"]


def test_queries_to_be_charged_come_before_free_plans(line: Line) -> None:
    line.call("ann 1", "charged")
    line.call("bob 1", "charged")
    for name in ("cid 1", "dan 1"):
        line.call(name)
    line.call("eve 1", "charged")
    line.call("eve 2", "charged")
    line.call("fay 1", "charged")
    line.end("ann 1")
    assert line.begun == ["ann 1", "bob 1", "eve 1"]
    line.end("eve 1")
    assert line.begun[3:] == ["fay 1"]
    assert line.end_all()[4:] == ["eve 2", "cid 1", "dan 1"]


def test_one_call_of_a_caller_runs_at_a_time_whatever_its_priority(line: Line) -> None:
    line.call("ann 1", "charged")
    line.call("ann 2", "charged")
    line.call("ann 3", "free")
    assert line.begun == ["ann 1"]
    line.call("bob 1", "charged")
    assert line.begun == ["ann 1", "bob 1"]


def test_free_plans_leave_a_process_to_queries_to_be_charged(line: Line) -> None:
    line.call("ann 1")
    line.call("bob 1")
    assert line.begun == ["ann 1"]
    line.call("cid 1", "charged")
    assert line.begun == ["ann 1", "cid 1"]


def test_a_call_without_urgency_runs_where_nothing_else_runs_and_holds_a_process_like_a_free_one(
    line: Line,
) -> None:
    line.call("ann 1", "idle")
    line.call("bob 1")
    line.call("cid 1", "charged")
    assert line.begun == ["ann 1", "cid 1"]
    with pytest.raises(NoTurnError), line.turns.turn("dan", "idle", HANG_GUARD):
        pass
    line.end("cid 1")
    with pytest.raises(NoTurnError), line.turns.turn("dan", "idle", HANG_GUARD):
        pass
    assert line.end_all() == ["ann 1", "cid 1", "bob 1"]
    with line.turns.turn("dan", "idle", HANG_GUARD):
        pass


def test_a_call_that_is_given_up_or_fails_holds_nothing(line: Line) -> None:
    line.call("ann 1")
    for _ in range(2):
        with pytest.raises(NoTurnError), line.turns.turn("bob", "free", 0.0):
            pass
    line.call("bob 1")
    with pytest.raises(NoTurnError), line.turns.turn("bob", "free", 0.0):
        pass
    assert line.end_all() == ["ann 1", "bob 1"]
    with pytest.raises(KeyError), line.turns.turn("cid", "charged", HANG_GUARD):
        raise KeyError
    assert not line.turns._running
    assert not any(line.turns._waiting.values())
