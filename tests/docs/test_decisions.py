"""The numbers in docs/decisions that can be computed again, and whether every record is found."""

import re
from math import inf, log, log1p, sqrt
from pathlib import Path

import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent, RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import minimize_scalar
from scipy.special import expit, ndtri

from benchmarks.several_fits import SCORES, SMALL, least_exponential
from privest.arrays import Array
from privest.privacy.accounting import gaussian_delta, largest, mu_for

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs" / "decisions"
N, DELTA = 10_000, 1e-5
QUESTION = mu_for(0.1, N**-1.5) ** 2
"""μ² of one question of the table."""


def zero_concentrated(mu_squared: float) -> float:
    """ε at Δ: Bun and Steinke 2016, Proposition 1.3, with ρ = μ²/2."""
    return mu_squared / 2 + 2 * sqrt(mu_squared / 2 * log(1 / DELTA))


def renyi(mu_squared: float) -> float:
    """ε at Δ: Balle et al. 2020, Theorem 21, of the best order."""

    def epsilon(order: float) -> float:
        return order * mu_squared / 2 + log(1 - 1 / order) - (log(DELTA) + log(order)) / (order - 1)

    return minimize_scalar(epsilon, bounds=(1.0001, 2000), method="bounded").fun


def test_how_many_questions_fit() -> None:
    text = (DECISIONS / "0001-gaussian-dp-as-the-one-currency.md").read_text()
    told = [int(number) for number in re.findall(r"^\| .* \| (\d+) \|$", text, re.MULTILINE)]
    assert told == [
        round(1 / 0.1),
        max(k for k in range(200) if zero_concentrated(k * QUESTION) <= 1),
        max(k for k in range(1, 200) if renyi(k * QUESTION) <= 1),
        int(mu_for(1, 0.9 * DELTA) ** 2 / QUESTION),
    ]


ORDERS = np.concatenate([1 + np.geomspace(1e-3, 1, 30), np.geomspace(2.01, 1e3, 120)])
GRID = np.linspace(0, 2, 161)
CHOICE = 1e-6
"""δ of the table of choices."""


def stopped(mu: float, mean: float, epsilons: Array) -> Array:
    """δ(ε) of the best of a Poisson number of μ-Gaussian runs: Papernot and Steinke 2022, Theorem 6."""
    short = np.array([gaussian_delta(log1p(1 / (order - 1)), mu) for order in ORDERS])
    renyi = ORDERS * mu**2 / 2 + mean * short + log(mean) / (ORDERS - 1)
    logs = (ORDERS - 1) * (renyi - epsilons[:, None] + np.log1p(-1 / ORDERS)) - np.log(ORDERS)
    return np.exp(np.minimum(logs.min(axis=1), 0.0))


def covers(mu: float, told: Array) -> bool:
    """Whether (μ², slack) may be the cost of what has these δ(ε); of smaller ε by Kairouz et al. 2015."""
    slack = CHOICE / 200
    implied = told + (1 - told) * (np.exp(GRID) - np.exp(GRID)[:, None]) / (1 + np.exp(GRID))
    known = np.where(GRID[:, None] <= GRID, implied, 1.0).min(axis=1)
    pairs = zip(GRID.tolist(), known, strict=True)
    return all(least <= slack + (1 - slack) * gaussian_delta(each, mu) for each, least in pairs)


@pytest.mark.parametrize(
    ("record", "count"),
    [
        *(("0014-no-mechanism-for-choosing", count) for count in (8, 20)),
        *(("0016-one-question-for-a-choice", count) for count in (2, 4, 8, 20)),
    ],
)
def test_what_a_choice_among_candidates_costs(record: str, count: int) -> None:
    text = (DECISIONS / f"{record}.md").read_text()
    row = re.search(rf"^\| {count} \| (.*) \|$", text, re.MULTILINE)
    assert row is not None
    whole, mean = mu_for(1, CHOICE), count * log(10)
    one = largest(lambda mu: stopped(mu, mean, np.ones(1))[0] <= CHOICE, 1e-3, whole)
    in_mu = largest(lambda mu: covers(whole, stopped(mu, mean, GRID)), 1e-3, whole)
    assert [float(cell) for cell in row[1].split(" | ")] == [
        round(times, 1) for times in (sqrt(count), whole / one, whole / in_mu, (1 - SMALL - SCORES) ** -0.5)
    ]
    peer = RdpAccountant(ORDERS).compose(RepeatAndSelectDpEvent(GaussianDpEvent(1 / one), mean, inf))
    assert peer.get_epsilon(CHOICE) >= 1.0 - 1e-9


@pytest.mark.parametrize("mu", [0.01, 0.3, 2.0])
def test_an_exponential_mechanism_is_certified_by_its_range(mu: float) -> None:
    """No two points whose log-ratios are t and t − ε tell more, and two candidates reach it."""
    rate = 1 / least_exponential(mu)
    t = np.linspace(1e-6, 1 - 1e-6, 10_001) * 2 * rate
    q = -np.expm1(t - 2 * rate) / (np.exp(t) - np.exp(t - 2 * rate))
    assert (ndtri(np.exp(t) * q) - ndtri(q)).max() <= mu * (1 + 1e-9)
    # A record that counts for the one candidate is replaced by one that counts for the other.
    assert ndtri(expit(rate)) - ndtri(expit(-rate)) == pytest.approx(mu, rel=1e-9)


def test_every_record_is_listed_in_order_and_complete() -> None:
    records = sorted(DECISIONS.glob("0*.md"))
    listed = re.findall(r"\]\((\S+\.md)\)", (DECISIONS / "index.md").read_text())
    assert listed == [record.name for record in records]
    assert len(records) >= 12
    navigation = (ROOT / "zensical.toml").read_text()
    for number, record in enumerate(records, 1):
        text = record.read_text()
        assert text.startswith(f"# {number}. ")
        headings = [line for line in text.splitlines() if line.startswith("## ") and line != "## Measured"]
        assert headings == ["## Context", "## Decision", "## Consequences", "## Alternatives"]
        assert f"decisions/{record.name}" in navigation
