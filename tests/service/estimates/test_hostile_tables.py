"""Tables that no estimator likes, over HTTP: every answer is of finite numbers, or nothing was charged."""

import json
from collections.abc import Iterator
from math import isfinite
from typing import Any

import numpy as np
import pytest

from testing.server import Caller, Server, csv_of

N, LARGEST, WIDEST = 1_000, 1.7e308, 1e100
"""Bounds may reach 1e100, and values count as if none were beyond: squares of larger ones overflow."""
COLUMNS = ("usual", "odd", "other")
LABEL = {"name": "label", "type": "category", "categories": ["0.0", "1.0"]}

QUESTIONS: dict[str, dict[str, Any]] = {
    "frechet-mean": {"columns": COLUMNS},
    "bounds": {"columns": COLUMNS},
    "robust-pca": {"columns": COLUMNS, "rank": 1},
    "matrix-completion": {"columns": COLUMNS, "rank": 1},
    "logistic-regression": {"label": "label", "features": COLUMNS},
}


@pytest.fixture
def backend() -> str:
    """One database will do, as it plays no part here."""
    return "sqlite"


def tables() -> Iterator[tuple[str, np.ndarray, float | None]]:
    """Rows of a usual, an odd and another column, and how far bounds reach that are declared, if any are."""
    rng = np.random.default_rng(17)
    usual = rng.normal(50.0, 5.0, (N, 3))
    odd = usual.copy()
    odd[:, 1] = np.where(np.arange(N) % 2, 1e9, -1e9)
    yield "all equal", np.tile(usual[:1], (N, 1)), None
    yield "two far apart", odd, None
    odd = usual.copy()
    odd[0, 1] = 1e300
    yield "one at 1e300", odd, None
    yield "one at 1e300, widest bounds", odd, WIDEST
    yield "widest bounds", usual, WIDEST
    yield "all of float64", rng.uniform(-1.0, 1.0, (N, 3)) * LARGEST, None
    yield "ten", usual[:10], None


def numbers(told: Any) -> Iterator[float]:
    """All numbers of a JSON value."""
    if isinstance(told, dict | list):
        for each in told.values() if isinstance(told, dict) else told:
            yield from numbers(each)
    elif isinstance(told, float):
        yield told


def spent(owner: Caller) -> tuple[float, int]:
    """What an owner's budget has spent, and the number of its entries."""
    return owner.budget()["spent"]["epsilon"], len(owner.ledger())


@pytest.mark.few(5)
@pytest.mark.parametrize("epsilon", [0.5, 5.0])
@pytest.mark.parametrize(
    ("rows", "reach"), [pytest.param(rows, reach, id=name) for name, rows, reach in tables()]
)
def test_hostile_tables_have_an_honest_answer_or_are_refused_before_a_charge(
    server: Server, rows: np.ndarray, reach: float | None, epsilon: float
) -> None:
    """Noise is fresh: a mean lies outside three times its interval by chance in one run of 10⁸."""
    owner = server.owner(epsilon=1e3, delta=1e-4)
    bounds = {} if reach is None else {"low": -reach, "high": reach}
    schema = {"kind": "table", "columns": [{"name": n, "type": "number"} | bounds for n in COLUMNS] + [LABEL]}
    lines = csv_of(np.column_stack([rows, np.arange(len(rows)) % 2])).decode().splitlines()
    lines[0] = ",".join((*COLUMNS, "label"))
    answer = owner.upload("\n".join(lines).encode(), schema, "rows.csv")
    assert answer.status_code == 201, answer.text
    dataset = answer.json()["id"]
    for kind, question in QUESTIONS.items():
        before = spent(owner)
        answer = owner.estimate(dataset, kind=kind, epsilon=epsilon, **question)
        told = json.loads(answer.text)  # NaN and Infinity are read, and found below
        if answer.status_code == 422:
            assert spent(owner) == before, kind
            continue
        assert told["state"] == "committed", (kind, answer.text)
        assert all(isfinite(each) for each in numbers(told)), kind
        if kind == "frechet-mean":
            mean = told["estimate"]["columns"][0]
            exact = np.clip(rows[:, 0], -WIDEST, WIDEST).mean()
            if mean["low"] is None:
                assert told["uncertainty"]["warnings"], answer.text
                continue
            centre, half = (mean["low"] + mean["high"]) / 2.0, (mean["high"] - mean["low"]) / 2.0
            held = abs(exact - centre) <= 3.0 * half
            assert held or told["warnings"] or told["uncertainty"]["warnings"], told
