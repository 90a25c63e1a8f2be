"""The currency: the privacy cost of a run, and the (ε, δ) that an analyst asks for."""

from dataclasses import dataclass
from math import inf, isfinite, nextafter


def _add_up(a: float, b: float) -> float:
    """a + b in float64, never less than the exact sum."""
    return a if b == 0.0 else b if a == 0.0 else nextafter(a + b, inf)


@dataclass(frozen=True)
class Cost:
    """The privacy cost of a run: except with probability `slack`, it is √mu_squared-Gaussian private.

    Neighbouring datasets differ by one replaced record. The number of records is public. Costs add,
    rounded up. They also add if an analyst chooses queries after seeing earlier answers.

    Raises:
        ValueError: `mu_squared` is negative or not finite, or `slack` is outside [0, 1].
    """

    mu_squared: float = 0.0
    slack: float = 0.0

    def __post_init__(self) -> None:
        if not (isfinite(self.mu_squared) and self.mu_squared >= 0.0 and 0.0 <= self.slack <= 1.0):
            raise ValueError("a cost is a finite mu_squared >= 0 with a slack in [0, 1]")

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(_add_up(self.mu_squared, other.mu_squared), min(1.0, _add_up(self.slack, other.slack)))


def repeated(mu: float, count: float) -> Cost:
    """The cost of `count` releases that are each μ-Gaussian private, rounded up."""
    return Cost(nextafter(count * nextafter(mu * mu, inf), inf))


@dataclass(frozen=True)
class PrivacyTarget:
    """The (ε, δ) that an analyst requests. δ = 0 asks for pure differential privacy.

    Attributes:
        epsilon: ε.
        delta: δ.
        slack_per_mu_squared: most slack that a run may use for each unit of its μ², or None where budgets add
            up ε and δ, so that slack is not counted.

    Raises:
        ValueError: ε is not positive and finite, or δ is outside [0, 1).
    """

    epsilon: float
    delta: float
    slack_per_mu_squared: float | None = None

    def __post_init__(self) -> None:
        if not (isfinite(self.epsilon) and self.epsilon > 0.0):
            raise ValueError("epsilon must be positive and finite")
        if not 0.0 <= self.delta < 1.0:
            raise ValueError("delta must be in [0, 1)")

    @property
    def adds_up(self) -> bool:
        """Whether the budgets that pay for it add up ε and δ, so that pure noise costs no more than its ε."""
        return self.slack_per_mu_squared is None
