"""The least ε that reaches an accuracy: within 5 % of it, reaching it always, by few plans."""

from itertools import pairwise
from math import exp, hypot, inf, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privest.data.metadata import PointsMetadata
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column
from privest.estimators.epsilon_search import LEAST, MOST, least_epsilon
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FrechetMeanSpec
from privest.privacy.accounting import PrivacyTarget, mu_for
from privest.privacy.gate import Gate


@given(scale=st.floats(1e-3, 50), power=st.floats(0.3, 2), floor=st.floats(0, 0.9))
def test_it_is_the_least_within_five_percent(scale: float, power: float, floor: float) -> None:
    def ratio(epsilon: float) -> float:
        return hypot((scale / epsilon) ** power, floor)

    tried = list[float]()

    def seen(epsilon: float) -> float:
        tried.append(epsilon)
        return ratio(epsilon)

    least = scale / (1 - floor**2) ** (0.5 / power)  # where the ratio is 1
    if least * 1.05 >= MOST or least <= LEAST * 1.05:
        return
    found = least_epsilon(seen)
    assert ratio(found) <= 1.0
    assert least * (1 - 1e-9) <= found <= 1.05 * least
    assert found == float(f"{found:.4g}")
    assert found in tried
    assert len(tried) <= 20


def test_gaussian_noise_takes_few_plans() -> None:
    counts = list[int]()
    for wanted in (10, 3, 1, 0.3, 0.1, 0.03, 0.01):
        tried = list[float]()

        def ratio(epsilon: float, wanted: float = wanted, tried: list[float] = tried) -> float:
            tried.append(epsilon)
            return 0.1 / mu_for(epsilon, 1e-5) / wanted

        found = least_epsilon(ratio)
        assert ratio(found) <= 1 < ratio(found / 1.05)
        counts.append(len(tried) - 2)
    assert sum(counts) / len(counts) <= 5


@given(st.floats(-9, 9))
def test_what_falls_in_steps_is_reached_too(at: float) -> None:
    def ratio(epsilon: float) -> float:
        return 2.0 ** (at - log2(epsilon) // 1)

    found = least_epsilon(ratio)
    assert ratio(found) <= 1 < ratio(found / 1.05)


@given(st.floats(-8, 6))
def test_no_plan_below_some_epsilon_is_no_answer(log_least: float) -> None:
    found = least_epsilon(lambda epsilon: inf if epsilon < exp(log_least) else 0.5)
    assert exp(log_least) <= found <= 1.05 * exp(log_least)


def test_what_none_reaches_and_what_every_one_does_is_refused() -> None:
    with pytest.raises(ValueError, match="with ε = 1000 the plan still foretells 3 times"):
        least_epsilon(lambda epsilon: 3 + 1 / epsilon)
    with pytest.raises(ValueError, match=r"by public facts alone .* than 0.7 times"):
        least_epsilon(lambda epsilon: min(0.7, 1 / epsilon))
    with pytest.raises(ValueError, match="No ε reaches"):
        least_epsilon(lambda _: inf)


def mean_of_columns() -> PointsMetadata:
    table = TableMetadata(
        n=2_000,
        columns=(
            Column("age", "number", low=0.0, high=100.0),
            Column("kind", "category", categories=("a", "b")),
        ),
    )
    return metadata_for(PointsMetadata, table, TableChoice())


def test_columns_are_foretold_in_their_own_units_and_less_with_more_epsilon() -> None:
    shape = mean_of_columns()
    plans = [frechet_mean.plan(FrechetMeanSpec(), shape, PrivacyTarget(e, 1e-5)) for e in (0.1, 0.3, 1, 3)]
    told = [plan.columns for plan in plans]
    assert all(each is not None and [c.name for c in each] == ["age", "kind=a", "kind=b"] for each in told)
    for large, small in pairwise(told):
        assert large is not None
        assert small is not None
        assert all(a.radius_95 > b.radius_95 for a, b in zip(large, small, strict=True))
    age, kind, _ = told[0] or ()
    assert age.radius_95 == pytest.approx(100 * kind.radius_95)  # widths of 100 and of 1


def test_the_forecast_is_the_interval_of_an_answer_within_declared_bounds() -> None:
    shape = mean_of_columns()
    assert shape.recipe is not None
    spec = FrechetMeanSpec(solver="noisy-sum")
    plan = frechet_mean.plan(spec, shape, PrivacyTarget(1, 1e-5))
    rows = np.column_stack([np.full(shape.n, 50.0), np.arange(shape.n) % 2])
    gate = Gate(Records(rows, 1, recipe=shape.recipe), plan.statistics, plan.releases)
    answer = frechet_mean.FRECHET_MEAN.run(plan, gate).in_columns(shape.recipe, plan.expected_error)
    for told, column in zip(plan.columns or (), answer.columns or (), strict=True):
        assert told.name == column.name
        assert column.low is not None
        assert 2 * told.radius_95 == pytest.approx(float(column.high or 0.0) - float(column.low))
