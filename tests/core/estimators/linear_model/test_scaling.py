"""Private scaling of features: what its sums find of spreads within loose bounds."""

import numpy as np
import pytest

from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column
from privest.estimators.linear_model.logistic_regression import LOGISTIC_REGRESSION, LogisticSpec
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise


def scaled(rows, half_widths, epsilon, seed=0):
    """Plan a classifier of columns within ± these bounds, and return its sums and what they find."""
    n = len(rows)
    columns = [Column(f"x{at}", "number", -half, half) for at, half in enumerate(half_widths)]
    about = TableMetadata(n, (*columns, Column("y", "boolean")))
    shape = metadata_for(LabelledMetadata, about, TableChoice(label="y"))
    planned = LOGISTIC_REGRESSION.plan(LogisticSpec(), shape, PrivacyTarget(epsilon, n**-1.5))
    labels = np.arange(n) % 2.0
    records = Records(np.column_stack([rows, labels]), 1, recipe=shape.recipe)
    gate = Gate(records, planned.statistics, planned.releases, ScaledNoise(seed=[71, seed]))
    found = planned.scaling.find(gate, planned.looks, planned.configured_solver.feature_map)
    return planned.scaling.releases(), found


@pytest.mark.parametrize("width", [2.0, 8.0])
def test_a_feature_that_fills_little_of_its_bounds_is_in_units_of_its_spread(width):
    """Noise of one sum would hide a spread of a tenth of the bounds; each further sum clips closer.

    No seed of 100 had a scale outside these limits.
    """
    rows = np.random.default_rng(70).standard_normal((20_000, 3))
    for seed in range(5):
        (spread, *_), found = scaled(rows.clip(-4, 4), (4.0, 4.0, 4.0 * width), 1.0, seed)
        assert spread.count > 1
        assert not found.hidden.any()
        assert not found.warnings
        scale = found.feature_map.scale
        assert ((scale > 0.6) & (scale < 1.6)).all(), scale


def test_what_several_sums_cost_is_what_one_would():
    """Closer sums divide the share of one, and a wide table has one alone."""
    rng = np.random.default_rng(72)
    shares = {}
    for d in (3, 60):
        (spread, *_), _ = scaled(rng.standard_normal((20_000, d)).clip(-4, 4), d * [4.0], 1.0)
        shares[spread.count > 1] = spread.cost.mu_squared
    assert shares[True] == pytest.approx(shares[False], rel=1e-6)


def test_a_constant_feature_is_hidden_and_keeps_the_least_scale_that_noise_does_not_hide():
    rows = np.random.default_rng(73).standard_normal((20_000, 2)).clip(-4, 4)
    rows[:, 1] = 1.0
    for seed in range(5):
        _, found = scaled(rows, (4.0, 4.0), 1.0, seed)
        assert found.hidden.tolist() == [False, True]
        assert 1e-3 < found.feature_map.scale[1] < 0.4
        assert "x1" in found.warnings[0]
