"""Which of a test's parameters a usual run makes: of grids what lets values meet, of costly lists a few."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from zlib import crc32

import pytest

_SERVERS = {"server", "shared_server", "start_server"}
"""Fixtures of tests that ask over HTTP."""


def thin(items: Iterable[pytest.Item]) -> None:
    """Mark as long proofs what is more of a grid than it takes for any two of its values to meet.

    A grid is what three or more `parametrize`, or fixtures with parameters, make together. Lists of
    combinations in one `parametrize` were written by hand, and stay whole. One that is called for by its
    name, parameters and all, is run.

    Of a test with the mark `sparse` each value is met, and no pair need be. One with the mark `either` runs
    on one database or the other, as its name has it, and so does one that asks over HTTP, without the mark
    `both`: what the service tells databases is the matter of tests that hold one themselves.

    Args:
        items: the tests that were found.
    """
    grids, twins = (defaultdict[str, list[pytest.Function]](list) for _ in range(2))
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            backend = item.callspec.params.get("backend")
            if isinstance(backend, str) and _is_for_either(item):
                twins[item.nodeid.replace(backend, "")].append(item)
            else:
                grids[item.nodeid.partition("[")[0]].append(item)
    for name, tests in twins.items():
        _keep(tests, {crc32(name.encode()) % len(tests)})
    for tests in grids.values():
        ways = 1 if tests[0].get_closest_marker("sparse") else 2
        _keep(tests, meeting([_place(test) for test in tests], ways))


def keep_few(items: Iterable[pytest.Item]) -> None:
    """Mark as costly, of each test with the mark `few`, all but so many of its parameters, evenly spread.

    Args:
        items: the tests that were found, thinned already.
    """
    lists = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("few") and not item.get_closest_marker("prove"):
            lists[item.nodeid.partition("[")[0]].append(item)
    for tests in lists.values():
        few = next(tests[0].iter_markers("few")).args[0]
        kept = {at * len(tests) // few for at in range(few)}
        for at, test in enumerate(tests):
            if at not in kept:
                test.add_marker("costly")


def _is_for_either(test: pytest.Function) -> bool:
    if test.get_closest_marker("both"):
        return False
    return bool(test.get_closest_marker("either") or _SERVERS & {*test.fixturenames})


def _keep(tests: Sequence[pytest.Function], kept: set[int]) -> None:
    for at, test in enumerate(tests):
        if at not in kept:
            test.add_marker("prove")


def _place(test: pytest.Function) -> list[int]:
    """Where a test is along each side of its grid: a side's values are the same objects in all tests."""
    params = dict(test.callspec.params)
    sides = [mark.args[0] for mark in test.iter_markers("parametrize")]
    together = [side.split(",") if isinstance(side, str) else side for side in sides]
    values = [tuple(id(params.pop(name.strip())) for name in names) for names in together]
    return [hash(value) for value in (*values, *((id(each),) for each in params.values()))]


def meeting(places: Sequence[Sequence[int]], ways: int = 2) -> set[int]:
    """Choose places of a grid so that any values meet that meet in it.

    Greedily: the place where most meet anew, of equals one of values that were seldom chosen, and the first.

    Args:
        places: where each is along each side.
        ways: how many values are to meet.

    Returns:
        Which of them are chosen: all, where the grid has no more sides than that.
    """
    moving = [side for side, values in enumerate(zip(*places, strict=True)) if len({*values}) > 1]
    if len(moving) <= ways:
        return {*range(len(places))}
    met = [{*combinations([(side, place[side]) for side in moving], ways)} for place in places]
    left, chosen, uses = set().union(*met), set[int](), Counter[tuple[int, int]]()

    def worth(at: int) -> tuple[int, int]:
        return len(met[at] & left), -sum(uses[value] for value in enumerate(places[at]))

    while left:
        best = max(range(len(met)), key=worth)
        left -= met[best]
        uses.update(enumerate(places[best]))
        chosen.add(best)
    return chosen
