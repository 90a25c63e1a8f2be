"""Every statistic at hostile points, among hostile rows: finite, bounded, and without a warning."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from privest.arrays import lengths
from testing.hostile_points import floats, hostile_points
from testing.hostile_rows import each_alone, total
from testing.neighbours import CASES

_ROUNDING = 1 + 1e-9


def _name(case):
    inner = getattr(case.statistic, "statistic", None)
    names = [type(each).__name__ for each in (case.statistic, inner) if each is not None]
    return "-".join([*names, f"{case.clip:.3g}"])


def rows_of(data, case, rng):
    """Three usual rows, one of them in part of any floats, and one of any floats."""
    rows = np.concatenate([case.record(rng.standard_normal(case.sizes[0])) for _ in range(4)])
    some = data.draw(arrays(np.float64, rows[:2].shape, elements=floats))
    mask = data.draw(arrays(np.bool_, rows[0].shape))
    rows[0], rows[1] = some[0], np.where(mask, some[1], rows[1])
    return rows


@pytest.mark.parametrize("case", CASES, ids=_name)
@settings(max_examples=15, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), seed=st.integers(0, 99))
def test_no_rows_and_no_point_make_a_sum_other_than_finite_and_bounded(case, data, seed):
    """A row adds no more than its clip, and is no further from another row, or from none, than declared."""
    rng = np.random.default_rng(seed)
    rows = rows_of(data, case, rng)
    point = data.draw(hostile_points(case.point(rng.standard_normal(case.sizes[1]))))
    assert lengths(total(case.statistic, point, rows, case.clip)) <= len(rows) * case.clip * _ROUNDING
    alone = each_alone(case.statistic, point, rows, case.clip)
    assert lengths(alone).max() <= case.clip * _ROUNDING
    for one, other in pairwise([*alone, 0 * alone[0], alone[0]]):
        assert lengths(one - other) <= case.declared() * _ROUNDING
