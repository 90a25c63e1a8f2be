"""The currency: what a run costs, and the privacy that an analyst asks for."""

from dataclasses import dataclass
from math import inf, isfinite, nextafter


def _add_up(a: float, b: float) -> float:
    """a + b, never less than the exact sum."""
    return a if b == 0.0 else b if a == 0.0 else nextafter(a + b, inf)


@dataclass(frozen=True)
class Cost:
    """Except with probability `slack`, the run is √mu_squared-Gaussian differentially private.

    Adjacency: one record replaced, the number of records public. Costs add, rounded up, also where
    queries and their costs are chosen in view of earlier answers.
    """

    mu_squared: float = 0.0
    slack: float = 0.0

    def __post_init__(self) -> None:
        if not (isfinite(self.mu_squared) and self.mu_squared >= 0.0 and 0.0 <= self.slack <= 1.0):
            raise ValueError("a cost is a finite mu_squared >= 0 with a slack in [0, 1]")

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(_add_up(self.mu_squared, other.mu_squared), min(1.0, _add_up(self.slack, other.slack)))


@dataclass(frozen=True)
class PrivacyTarget:
    """(ε, δ) as requested; δ = 0 asks for pure differential privacy."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not (isfinite(self.epsilon) and self.epsilon > 0.0):
            raise ValueError("epsilon must be positive and finite")
        if not 0.0 <= self.delta < 1.0:
            raise ValueError("delta must be in [0, 1)")
