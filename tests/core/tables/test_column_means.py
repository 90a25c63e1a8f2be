"""Means of all columns in one question: their error, where no scale drowns another, and intervals."""

from math import sqrt

import numpy as np
import pytest

from benchmarks.column_means import answer
from privest.metadata import PointsMetadata
from privest.privacy.calibration import mu_for
from privest.privacy.cost import PrivacyTarget
from privest.tables.answers import column_means, loadings
from privest.tables.columns import Column
from privest.tables.metadata import TableChoice, TableMetadata, metadata_for

N, RUNS = 2000, 20
TARGET = PrivacyTarget(1.0, 1e-6)
WIDTHS = np.array([1.0, 10.0, 1000.0, 1e6, 1e-3, 50.0])
TABLE = TableMetadata(N, tuple(Column(f"c{at}", "number", 0.0, width) for at, width in enumerate(WIDTHS)))


def points(table: TableMetadata) -> PointsMetadata:
    made = metadata_for(PointsMetadata, table, TableChoice())
    assert isinstance(made, PointsMetadata)
    return made


def test_they_err_no_more_than_columns_alone_within_their_bounds_and_intervals_hold() -> None:
    """Noise has a fixed seed. Alone a column has a sixth of μ² for a sum within its bounds.

    Of ten other sets of runs none erred more than .72 of that, or held fewer than 94 %. Both bounds are
    further off than noise goes once in a million sets.
    """
    rng = np.random.default_rng(1)
    rows = WIDTHS * np.clip(rng.normal(0.4, 0.15, (N, 6)), -0.5, 1.5)  # some beyond their bounds
    exact = np.clip(rows, 0, WIDTHS).mean(axis=0)
    alone = WIDTHS * sqrt(6) / (N * mu_for(TARGET.epsilon, TARGET.delta))
    squares, held = np.zeros(6), 0
    for seed in range(RUNS):
        told = answer(points(TABLE), rows, TARGET, seed).columns
        assert told is not None
        values, low, high = (
            np.array([float(getattr(each, name)) for each in told]) for name in ("value", "low", "high")
        )
        squares += (values - exact) ** 2 / RUNS
        held += int(((low <= exact) & (exact <= high)).sum())
    assert (np.sqrt(squares) <= 1.3 * alone).all(), np.sqrt(squares) / alone
    assert held >= 0.88 * 6 * RUNS


def test_answers_are_in_units_and_dates_are_dates() -> None:
    table = TableMetadata(9, (Column("seen", "date", 0.0, 20.0), Column("tagged", "boolean")))
    recipe = points(table).recipe
    assert recipe is not None
    seen, tagged = column_means(np.array([0.0, 0.5]), recipe, 0.3, 0.0)
    assert (seen.name, seen.value, seen.kind) == ("seen", "1970-01-11", "mean")
    assert (seen.low, seen.high) == ("1970-01-08", "1970-01-14")
    assert (tagged.value, tagged.kind) == (0.75, "share")
    half = 1.96 * 0.3 / 2.4477  # the 95 % quantile of a length in two dimensions
    assert tagged.high == pytest.approx(0.75 + half / 2, abs=1e-4)
    (first, _) = loadings(np.eye(2), recipe)
    assert (first.name, first.loadings.tolist()) == ("seen", [1.0, 0.0])
