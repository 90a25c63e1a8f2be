"""Private bounds over HTTP: asked of a frame without any, declared in a next upload."""

import json

import numpy as np
import pandas as pd
import pytest

from privest_client import Client, InvalidRequest, load
from testing.server import Caller, Server

N = 2_000


@pytest.fixture
def owner(server: Server) -> Caller:
    return server.owner(epsilon=500.0, delta=1e-3)


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "mass": rng.normal(4200, 800, N),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 100, N), unit="D"),
            "sex": rng.choice(["f", "m"], N),
        }
    )


def test_bounds_of_a_frame_may_be_declared_in_the_next(client: Client, tmp_path) -> None:
    """At ε = 100 a share is off by .003: no interval here is missed by less than a hundred deviations."""
    rows = frame()
    known = {"sex": {"categories": ["f", "m"]}}
    wide = {"mass": {"low": 0, "high": 1e6}, "day": {"low": "1900-01-01", "high": "2100-01-01"}}
    data = client.upload(rows, columns=known | wide, confirm=True)
    found = client.bounds(data, epsilon=100)
    low, high = found.bounds["mass"].values()
    assert rows["mass"].quantile(0.001) - 800 < low < rows["mass"].quantile(0.03)
    assert rows["mass"].quantile(0.97) < high < rows["mass"].quantile(0.999) + 800
    first, last = found.bounds["day"].values()
    assert "2019-12-20" <= first <= "2020-01-08"
    assert "2020-04-01" <= last <= "2020-04-20"
    quantiles = pd.DataFrame(found.quantiles("mass"))
    assert quantiles["low"][4] < rows["mass"].median() < quantiles["high"][4]
    assert abs(quantiles["value"][4] - rows["mass"].median()) < 60
    again = client.upload(rows, columns=known | found.bounds, confirm=True)
    assert json.loads(again.schema_.model_dump_json())["columns"][0]["low"] == low
    # It is read like any answer.
    assert "mass" in repr(found)
    assert "lower bound" in found._repr_html_()
    assert len(found.to_frame()) == 2
    assert found.plot() is not None
    found.save(tmp_path / "found.json")
    assert load(tmp_path / "found.json").bounds == found.bounds


def test_a_plan_says_what_finding_costs_and_nothing_where_nothing_is_sought(client: Client) -> None:
    data = client.upload(frame(), columns={"sex": {"categories": ["f", "m"]}}, confirm=True)
    asked = {"columns": ["mass"], "epsilon": 5}
    plan = client.plan("frechet-mean", data, **asked)
    assert plan.told.finding.rounds == 6
    share, times = plan.told.finding.share, plan.told.finding.times
    assert f"{share:.0%} of the budget, in 6 rounds; the error is at most about {times:.3g} times" in repr(
        plan
    )
    assert share <= 0.25 + 1e-9
    told = client.plan("logistic-regression", data, label="sex", features=["mass"], epsilon=5).told.finding
    # Histograms, the mean and spread, and the lengths of features: 20, 10 and 5 %.
    assert round(told.share, 6) == 0.35
    plain = client.plan("robust-pca", data, rank=1, columns=["sex"], epsilon=5)
    assert plain.told.finding is None
    assert "finding" not in repr(plain)


@pytest.mark.parametrize("verb", ["robust-pca", "matrix-completion"])
def test_directions_of_columns_without_bounds_are_in_units_that_are_found(client: Client, verb: str) -> None:
    """At ε = 20 a share is off by .001: where columns are is not missed."""
    data = client.upload(frame(), columns={"sex": {"categories": ["f", "m"]}}, confirm=True)
    asked = {"columns": ["mass", "day"], "rank": 1, "epsilon": 20}
    plan = client.plan(verb, data, **asked)
    assert 0 < plan.told.finding.share <= 0.25 + 1e-9
    assert plan.told.finding.rounds == 6
    assert "25% of the budget, in 6 rounds" in repr(plan)
    found = client.estimate(verb, data, **asked)
    assert np.abs(np.asarray(found.job.estimate.centers) - [4200, 18_312 + 49.5]).max() < 300
    assert np.allclose(np.log(found.job.estimate.scales), np.log([640, 25]), atol=0.5)
    assert "units of a scale for each column" in found.job.uncertainty.of
    if verb == "robust-pca":
        along = found.to_sklearn().transform(frame()[["mass", "day"]])
        assert 0.8 < along.std() < 1.7


@pytest.mark.parametrize("verb", ["robust-pca", "matrix-completion"])
def test_bounds_are_the_units_of_columns_and_an_answer_warns_where_they_are_far_too_wide(
    client: Client, verb: str
) -> None:
    """One of three answers warns: all three fail to in less than one run in 80,000.

    Robust PCA compares its noise with a length that it sees through noise, less two deviations of that.
    """
    wide = {"mass": {"low": 0, "high": 8e6}, "day": {"low": "1700-01-01", "high": "2500-01-01"}}
    data = client.upload(frame(), columns={"sex": {"categories": ["f", "m"]}} | wide, confirm=True)
    asked = {"columns": ["mass", "day"], "rank": 1, "epsilon": 1}
    plan = client.plan(verb, data, **asked)
    assert plan.told.finding is None
    found = client.estimate(verb, data, **asked)
    assert "half its declared range" in found.job.uncertainty.of
    assert "half its declared range" in repr(found)
    assert found.job.estimate.degrees_95 == pytest.approx(np.degrees(found.radius_95))
    assert f"{found.radius_95:.4g} rad ({found.job.estimate.degrees_95:.3g}°)" in repr(found)
    assert ("entries held out" in repr(found)) == (verb == "matrix-completion")
    answers = [found] + [client.estimate(verb, data, **asked, reuse=False) for _ in range(2)]
    warned = [words for answer in answers for words in answer.job.uncertainty.warnings]
    assert any("closer low and high" in words for words in warned)


def test_what_has_no_bounds_to_find_is_refused_with_a_word(client: Client) -> None:
    data = client.upload(pd.DataFrame({"sex": [True, False] * 20}), confirm=True)
    with pytest.raises(InvalidRequest, match="at least one column of numbers"):
        client.bounds(data, epsilon=1)
