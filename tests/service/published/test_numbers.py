"""Numbers of answers as rows: each with the name and the interval that the answer gives it."""

from dataclasses import astuple
from typing import Any

import pytest

from privest_service.published.numbers import numbers_of


def rows(kind: str, answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [astuple(each) for each in numbers_of(kind, answer, None)]


def test_bounds_tell_quantiles_with_intervals_and_dates_as_days() -> None:
    place = {"name": "age", "low": 0.0, "center": 40.0, "high": 90.0, "scale": 12.0}
    unknown = {"level": 0.99, "low": None, "value": 90.0, "high": None}  # as at the ends of few records
    place["quantiles"] = [{"level": 0.5, "low": 39.0, "value": 40.0, "high": 41.0}, unknown]  # pyright: ignore
    born = {"name": "born", "low": "1970-01-02", "center": "1980-01-01", "high": "1969-12-31", "scale": 2.0}
    told = rows("bounds", {"places": [place, born | {"quantiles": []}]})
    days = "days since 1970-01-01"
    assert told == [
        ("age", "lower bound", 0.0, None, None, None),
        ("age", "upper bound", 90.0, None, None, None),
        ("age", "spread", 12.0, None, None, None),
        ("age", "quantile 0.5", 40.0, 39.0, 41.0, None),
        ("age", "quantile 0.99", 90.0, None, None, None),
        ("born", "lower bound", 1.0, None, None, days),
        ("born", "upper bound", -1.0, None, None, days),
        ("born", "spread", 2.0, None, None, None),
    ]


def test_loadings_are_told_by_columns_where_these_have_names() -> None:
    answer = {
        "basis": [[1.0, 0.0], [0.0, 1.0]],
        "columns": ["a", "b"],
        "center": [3.0, 4.0],
        "explained": None,
    }
    assert [row[:3] for row in rows("robust-pca", answer)] == [
        ("a", "basis 1", 1.0),
        ("a", "basis 2", 0.0),
        ("b", "basis 1", 0.0),
        ("b", "basis 2", 1.0),
        ("a", "center", 3.0),
        ("b", "center", 4.0),
    ]
    answer = {"basis": [[1.0], [2.0]], "columns": None, "center": None}
    assert [row[:3] for row in rows("robust-pca", answer)] == [("1, 1", "basis", 1.0), ("2, 1", "basis", 2.0)]


def test_scores_are_told_with_their_intervals() -> None:
    answer = {
        "metric": "log-loss",
        "value": 0.5,
        "standard_error": 0.03,
        "sampling_error": 0.04,
        "accuracy": None,
    }
    ((item, measure, value, low, high, unit),) = rows("classifier-score", answer)
    assert (item, measure, value, unit) == ("all records", "log-loss", 0.5, None)
    assert (low, high) == pytest.approx((0.5 - 1.96 * 0.05, 0.5 + 1.96 * 0.05))  # of an older version
    stated = {"population": {"low": 0.4, "high": 0.7}, "these_records": {"low": 0.45, "high": 0.55}}
    assert [row[1:5] for row in rows("classifier-score", answer | stated)] == [
        ("log-loss", 0.5, 0.4, 0.7),
        ("log-loss on these records", 0.5, 0.45, 0.55),
    ]


def test_an_estimator_that_nobody_knows_here_is_told_by_its_arrays() -> None:
    """As of a new one: what is no number is left out, and nothing has to be added for it."""
    answer = {
        "mean_of_all": 2.0,
        "point": [[1.0, 2.0]],
        "name": "x",
        "ok": True,
        "gap": None,
        "mixed": [1, [2]],
    }
    assert rows("toy-mean", answer) == [
        ("all records", "mean of all", 2.0, None, None, None),
        ("1, 1", "point", 1.0, None, None, None),
        ("1, 2", "point", 2.0, None, None, None),
    ]
