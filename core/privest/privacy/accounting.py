"""Privacy costs, the (ε, δ) of a request, and exact conversion between (ε, δ), μ and guessing probability.

The unit of account is μ² of Gaussian differential privacy, beside a probability of failure. All conversions
are rounded to the safe side.

δ(ε, μ) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2) (Balle and Wang 2018, Theorem 8; Dong et al. 2022,
Corollary 1). Let a = ε/μ − μ/2 and b = ε/μ + μ/2, so that e^ε φ(b) = φ(a). Then δ is computed without
cancellation of large terms as ½ exp(−a²/2) (erfcx(a/√2) − erfcx(b/√2)).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, expm1, inf, isfinite, log, nextafter, pi, sqrt, tanh

import numpy as np
from scipy.special import erfcinv, erfcx, erfinv, log_ndtr, ndtr

from privest.memo import memoized


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
        """Return whether its budgets add up ε and δ, so that pure noise costs no more than its ε."""
        return self.slack_per_mu_squared is None


_MARGIN = 2e-10
"""Relative margin on μ and ε: far above this module's rounding errors, and below the 1e-9 it promises."""

_COVER = 1 - 2.0**-50
"""Factor on δ that covers rounding near δ = 1, where a margin on μ has no effect."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """The least δ for which every μ-Gaussian private mechanism is (ε, δ)-private; ε may be negative."""
    if mu == 0.0:
        return max(0.0, -float(np.expm1(epsilon)))
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if b < -5.0:
        return float(ndtr(-a) - np.exp(epsilon + log_ndtr(-b)))
    if a < -5.0:
        return float(ndtr(-a)) - 0.5 * exp(-a * a / 2) * float(erfcx(b / sqrt(2)))
    return 0.5 * exp(-a * a / 2) * _erfcx_drop(a / sqrt(2), mu / sqrt(2))


def _erfcx_drop(low: float, width: float) -> float:
    """erfcx(low) − erfcx(low + width). For small widths it integrates −erfcx′(x) = 2/√π − 2x·erfcx(x)."""
    if width > 0.2:
        return float(erfcx(low) - erfcx(low + width))
    x = low + width * (_NODES + 1) / 2
    slope = 2 / sqrt(pi) - 2 * x * erfcx(x)
    if x[-1] >= 25.0:  # the largest node
        far = np.clip(x, 25.0, 1e30)  # beyond, the slope is too small to count
        series = (1 / far**2 - 1.5 / far**4 + 3.75 / far**6 - 13.125 / far**8) / sqrt(pi)
        slope = np.where(x < 25.0, slope, series)
    return float(width / 2 * (_WEIGHTS @ slope))


def largest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The largest float in [low, high] up to which a monotone condition holds, by bisection.

    The condition was evaluated at the result and held there, unless the result is `low`: that is also
    returned if the condition never holds.
    """
    if holds(high):
        return high
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _tail(delta: float) -> float:
    """√(2 log(2/δ)), an upper bound on the (1 − δ)-quantile of a standard normal variable."""
    return sqrt(2 * (log(2) - log(delta)))


@memoized
def mu_for(epsilon: float, delta: float) -> float:
    """The largest μ for which every μ-Gaussian private mechanism is (ε, δ)-private.

    The result is at most the exact optimum, and within a relative 1e-9 of it.

    Raises:
        ValueError: ε is not positive and finite, or δ is outside (0, 1).
    """
    if not (0.0 < epsilon < inf and 0.0 < delta < 1.0):
        raise ValueError("epsilon must be positive and finite, delta between 0 and 1")
    # The answer satisfies μ²/2 − μ·√(2 log(1/tail)) <= ε, with tail = min(δ, 1 − δ).
    delta *= _COVER
    high = 3 * (_tail(min(delta, 1 - delta)) + 2) + sqrt(2) * sqrt(epsilon)
    found = largest(lambda mu: gaussian_delta(epsilon, mu) <= delta, 0.0, high)
    return found * (1 - _MARGIN)


def epsilon_for(mu: float, delta: float) -> float:
    """The least ε >= 0 for which every μ-Gaussian private mechanism is (ε, δ)-private.

    The result is at least the exact optimum. It is 0 if δ alone suffices.

    Raises:
        ValueError: μ is negative or not finite, or δ is outside (0, 1).
    """
    if not (0.0 <= mu < inf and 0.0 < delta < 1.0):
        raise ValueError("mu must not be negative, delta between 0 and 1")
    mu, delta = nextafter(mu * (1 + _MARGIN), inf), delta * _COVER
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    high = mu * mu / 2 + mu * (_tail(delta) + 2)
    if high == inf:
        return inf
    below = largest(lambda epsilon: gaussian_delta(epsilon, mu) > delta, 0.0, high)
    return nextafter(below, inf) * (1 + _MARGIN)


def epsilon_within(mu: float, delta: float) -> float:
    """The largest ε >= 0 for which `mu_for(ε, delta)` is at most μ: the ε of the largest query that μ allows.

    The result is at most the exact optimum. It is 0 if no query with this δ fits.

    Raises:
        ValueError: μ is negative or not finite, or δ is outside (0, 1).
    """
    if not (0.0 <= mu < inf and 0.0 < delta < 1.0):
        raise ValueError("mu must not be negative, delta between 0 and 1")
    mu *= 1 - _MARGIN
    if mu == 0.0 or gaussian_delta(0.0, mu) <= delta:
        return 0.0
    high = mu * mu / 2 + mu * (_tail(delta) + 2)
    return largest(lambda epsilon: gaussian_delta(epsilon, mu) > delta, 0.0, high)


def mu_of_pure(epsilon: float) -> float:
    """The least μ for which every ε-private mechanism is μ-Gaussian private: 2Φ⁻¹(e^ε/(1+e^ε)), rounded up.

    Above ε = 700 the quantile is too small for float64. There the result is the bound 2√(2ε), which follows
    from Φ(−x) <= exp(−x²/2)/2.
    """
    if epsilon > 700.0:
        mu = 2 * sqrt(2 * epsilon)
    elif epsilon > 1.0:
        mu = 2 * sqrt(2) * float(erfcinv(2 / (1 + exp(epsilon))))
    else:
        mu = 2 * sqrt(2) * float(erfinv(tanh(epsilon / 2)))
    return nextafter(mu * (1 + _MARGIN), inf) if epsilon > 0.0 else 0.0


_VARIATION_MARGIN = 1e-9
"""Relative margin on TV. It covers the rounding errors of `gaussian_delta`, which are below it."""


def best_guess(promise: Cost | PrivacyTarget) -> float:
    """The largest probability with which an attacker guesses a record's value right: ½ to 1, rounded up.

    The attacker knows all other records, and holds two values of this one for equally likely. Its best guess
    is right with probability (1 + TV)/2 (Neyman and Pearson). TV is the total variation distance between the
    releases for the one value and for the other: the least δ for which they are (0, δ)-private.

    For a `Cost` with μ² and slack it is Φ(μ/2) + slack·(1 − Φ(μ/2)), from the TV of two normal distributions
    that are μ apart (Dong et al. 2022, Section 2.1). The most telling of all (ε, δ)-private releases gives
    (e^ε + δ)/(e^ε + 1) (Kairouz et al. 2015, Theorem 2.1).
    """
    if isinstance(promise, Cost):
        distance = promise.slack + (1 - promise.slack) * gaussian_delta(0.0, promise.mu_squared**0.5)
    else:
        told = exp(-promise.epsilon)
        distance = (-expm1(-promise.epsilon) + 2 * promise.delta * told) / (1 + told)
    return min(1.0, nextafter(0.5 + distance * (1 + _VARIATION_MARGIN) / 2, 1.0)) if distance else 0.5
