"""Bounds a few units in the last place apart, between which one record once changed a release by 10⁷."""

import numpy as np
import pytest

from privest.arrays import lengths
from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column
from privest.estimators.registry import ESTIMATORS
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise

N = 2_000
ESTIMATOR = ESTIMATORS["logistic-regression"]
SPEC, TARGET = ESTIMATOR.spec(standardisation="private"), PrivacyTarget(5.0, 1e-6)

CLOSE = [(1e17, 1e17 + 500), (1e17, 1e17 + 16), (-1e17 - 64, -1e17), (1.0, 1 + 2.0**-50)]


def shape_of(low, high):
    columns = (Column("a", "number", low, high), Column("b", "number", 0.0, 1.0), Column("y", "boolean"))
    return metadata_for(LabelledMetadata, TableMetadata(N, columns), TableChoice(label="y"))


@pytest.mark.parametrize(("low", "high"), [*CLOSE, (0.0, 5e-324)])
def test_a_plan_between_such_bounds_is_refused(low, high):
    with pytest.raises(ValueError, match="a has low and high too close for float64"):
        ESTIMATOR.plan(SPEC, shape_of(low, high), TARGET)


@pytest.mark.parametrize(("low", "high"), CLOSE)
@pytest.mark.parametrize("other", [np.inf, np.nan, -np.inf, 1e300, None])
def test_one_record_moves_no_release_by_more_than_its_sensitivity(low, high, other):
    """The plan is made without the rule, like one stored before it: sums are total by themselves."""
    shape = shape_of(low, high)
    planned = ESTIMATOR.planner(SPEC, shape, TARGET)
    rng = np.random.default_rng(0)
    rows = np.column_stack([np.full(N, low), rng.random(N), np.arange(N) % 2.0])
    changed = rows.copy()
    changed[0, 0] = high if other is None else other
    gates = [
        Gate(Records(r, 1, recipe=shape.recipe), planned.statistics, planned.releases, ScaledNoise(seed=1))
        for r in (rows, changed)
    ]
    asked = []

    def listen(point, statistic="gradient"):
        one, two = (Gate.mean(gate, point, statistic) for gate in gates)
        asked.append(statistic)
        release = next(each for each in planned.releases if each.statistic == statistic)
        assert lengths(one - two) * release.divisor <= release.sensitivity
        return one

    gates[0].mean = listen
    ESTIMATOR.run(planned, gates[0])
    assert {"columns", "spreads"} <= set(asked) or "spread" in asked
