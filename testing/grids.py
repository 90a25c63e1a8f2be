"""Grids of parameters: what a usual run makes of them, so that any two values meet. `make prove` runs all."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations

import pytest


def thin(items: Iterable[pytest.Item]) -> None:
    """Mark as long proofs what is more of a grid than it takes for any two of its values to meet.

    A grid is what three or more `parametrize`, or fixtures with parameters, make together. Lists of
    combinations in one `parametrize` were written by hand, and stay whole. One that is called for by its
    name, parameters and all, is run.

    Args:
        items: the tests that were found.
    """
    grids = defaultdict[str, list[pytest.Function]](list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            grids[item.nodeid.partition("[")[0]].append(item)
    for tests in grids.values():
        kept = meeting([_place(test) for test in tests])
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


def meeting(places: Sequence[Sequence[int]]) -> set[int]:
    """Choose places of a grid so that any two values meet that meet in it; greedily, the first of equals.

    Args:
        places: where each is along each side.

    Returns:
        Which of them are chosen: all, where the grid has fewer than three sides.
    """
    moving = [side for side, values in enumerate(zip(*places, strict=True)) if len({*values}) > 1]
    if len(moving) < 3:
        return {*range(len(places))}
    pairs = [{*combinations([(side, place[side]) for side in moving], 2)} for place in places]
    left, chosen = set().union(*pairs), set[int]()
    while left:
        best = max(range(len(pairs)), key=lambda at: len(pairs[at] & left))
        left -= pairs[best]
        chosen.add(best)
    return chosen
