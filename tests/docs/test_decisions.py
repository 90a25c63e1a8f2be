"""The numbers in docs/decisions that can be computed again, and whether every record is found."""

import re
from math import log, sqrt
from pathlib import Path

from scipy.optimize import minimize_scalar

from privest.privacy.calibration import mu_for

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


def test_every_record_is_listed_in_order_and_complete() -> None:
    records = sorted(DECISIONS.glob("0*.md"))
    listed = re.findall(r"\]\((\S+\.md)\)", (DECISIONS / "index.md").read_text())
    assert listed == [record.name for record in records]
    assert len(records) >= 12
    navigation = (ROOT / "mkdocs.yml").read_text()
    for number, record in enumerate(records, 1):
        text = record.read_text()
        assert text.startswith(f"# {number}. ")
        headings = [line for line in text.splitlines() if line.startswith("## ") and line != "## Measured"]
        assert headings == ["## Context", "## Decision", "## Consequences", "## Alternatives"]
        assert f"decisions/{record.name}" in navigation
