"""What waits in one line is done together, in the order in which it came."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from privest_service import groups as module
from privest_service.groups import MOST, Groups, Turns
from privest_service.problems import DatabaseUnavailable
from testing.server import HANG_GUARD


def test_what_comes_meanwhile_is_the_next_group_in_its_order() -> None:
    groups, go, done = Groups[int, int](), threading.Event(), list[list[int]]()

    def act(some: Sequence[int]) -> Sequence[int]:
        done.append(list(some))
        assert go.wait(HANG_GUARD)
        return [10 * each for each in some]

    async def main() -> list[int]:
        first = asyncio.create_task(groups.do(0, 0, act))
        while not done:
            await asyncio.sleep(0)
        # Even numbers wait in one line.
        come = ((0, 3), (2, 1), (4, 2))
        others = [asyncio.create_task(groups.do(about, each, act)) for about, each in come]
        await asyncio.sleep(0)
        go.set()
        return [await each for each in (first, *others)]

    assert asyncio.run(main()) == [0, 30, 10, 20]
    assert done == [[0], [3, 1, 2]]


def test_who_waits_in_the_other_line_does_not_wait_for_this() -> None:
    groups, go = Groups[str, str](), threading.Event()

    def wait(some: Sequence[str]) -> Sequence[str]:
        assert go.wait(HANG_GUARD)
        return some

    async def main() -> None:
        held = asyncio.create_task(groups.do(0, "held", wait))
        assert await groups.do(1, "free", lambda some: some) == "free"
        assert not held.done()
        go.set()
        assert await held == "held"

    asyncio.run(main())


def test_each_hears_what_came_of_its_own_and_all_of_what_stopped_the_group() -> None:
    groups = Groups[int, int]()

    def act(some: Sequence[int]) -> Sequence[int | Exception]:
        if 9 in some:
            raise RuntimeError("the whole group")
        return [ValueError(each) if each % 2 else each for each in some]

    async def main() -> list[object]:
        found = list[object]()
        for about, some in (("a", (1, 2)), ("b", (8, 9))):
            each = (groups.do(about, one, act) for one in some)
            found += await asyncio.gather(*each, return_exceptions=True)
        return found

    odd, even, *stopped = asyncio.run(main())
    assert isinstance(odd, ValueError)
    assert even == 2
    # Both came before the first group began, so that they are one.
    assert [type(each) for each in stopped] == [RuntimeError, RuntimeError]


def test_one_who_does_not_wait_any_more_stops_nobody() -> None:
    groups, go = Groups[int, int](), threading.Event()

    def act(some: Sequence[int]) -> Sequence[int]:
        assert go.wait(HANG_GUARD)
        return some

    async def main() -> None:
        gone, stays = (asyncio.create_task(groups.do("a", each, act)) for each in (1, 2))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        go.set()
        assert await stays == 2
        assert await groups.do("a", 3, act) == 3

    asyncio.run(main())


@pytest.mark.parametrize(
    ("sizes", "groups_of"),
    [
        ([1] * (MOST + 1), [MOST, 1]),
        ([MOST - 2, 1, 2, MOST - 2, 1], [2, 2, 1]),
        ([1, 3 * MOST, 1], [1, 1, 1]),
    ],
)
def test_a_group_is_closed_at_a_size_and_what_is_larger_is_one_alone(
    sizes: list[int], groups_of: list[int]
) -> None:
    groups, go, done = Groups[int, int](), threading.Event(), list[int]()

    def act(some: Sequence[int]) -> Sequence[int]:
        done.append(len(some))
        assert go.wait(HANG_GUARD)
        return some

    async def main() -> None:
        first = asyncio.create_task(groups.do("a", 0, act))
        while not done:
            await asyncio.sleep(0)
        others = [asyncio.create_task(groups.do("a", each, act, each)) for each in sizes]
        await asyncio.sleep(0)
        go.set()
        assert await asyncio.gather(first, *others) == [0, *sizes]

    asyncio.run(main())
    assert done == [1, *groups_of]


class _PanicError(BaseException):
    """What comes of a fault in a library in Rust."""


def test_a_line_outlives_whatever_happens_in_a_thread() -> None:
    groups = Groups[int, int]()

    def act(some: Sequence[int]) -> Sequence[int]:
        if 9 in some:
            raise _PanicError
        return some

    async def main() -> None:
        with pytest.raises(_PanicError):
            await asyncio.wait_for(groups.do("a", 9, act), HANG_GUARD)
        assert await asyncio.wait_for(groups.do("a", 1, act), HANG_GUARD) == 1

    asyncio.run(main())


def test_a_turn_is_waited_for_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()

    async def taken(about: str) -> None:
        async with turns.turn(about):
            pass

    async def main() -> None:
        async with turns.turn("a"), turns.turn("b"):
            monkeypatch.setattr(module, "_PATIENCE", 0.0)
            with pytest.raises(DatabaseUnavailable):
                await taken("a")
            monkeypatch.undo()
            later = asyncio.create_task(taken("a"))
            await asyncio.sleep(0)
            assert not later.done()
        await later

    asyncio.run(main())
