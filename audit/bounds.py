"""What a distinguisher's hits prove: lower bounds on ε and μ that hold with stated confidence."""

from math import inf, log

import numpy as np
from scipy.stats import beta, norm

from privest.arrays import Array

CONFIDENCE = 0.999
"""Confidence of all statistical lines together. Each gets an equal share of the remainder (Bonferroni)."""

ATTACKS = 250
"""Lines of one report, at most; `tests/audit` counts them."""

ALPHA = (1 - CONFIDENCE) / ATTACKS
"""Probability with which one line may be wrong."""


def rates(hits: int, runs: int, alpha: float) -> tuple[float, float]:
    """Clopper and Pearson: bounds from below and above, each wrong with a probability of at most alpha."""
    low = float(beta.ppf(alpha, hits, runs - hits + 1)) if hits else 0.0
    high = float(beta.isf(alpha, hits + 1, runs - hits)) if hits < runs else 1.0
    return low, high


def mu_proven(scores: tuple[Array, Array], slack: float) -> float:
    """The μ below which the mechanism is not, but for one report in a thousand.

    Whoever calls the second world where a score is above 0 is right there with probability p and wrong in the
    first with probability q: no μ-private mechanism lets Φ⁻¹(p) − Φ⁻¹(q) be above μ (Dong, Roth and Su 2022).

    Args:
        scores: of runs in the first world and in the second; their zero was chosen before.
        slack: probability that the claim leaves out.
    """
    low, high = _error_rates(*scores, 0.0)
    return float(norm.ppf(max(low - slack, 0.0)) - norm.ppf(high))


def epsilon_proven(scores: tuple[Array, Array]) -> float:
    """The ε below which the mechanism is not, at δ = 0, but for one report in a thousand.

    log(p/q) for the threshold that is best on the first half of the runs, measured on the second.

    Args:
        scores: of runs in the first world and in the second, likelihood ratios at best.
    """
    first = [np.array_split(world, 2)[0] for world in scores]
    second = [np.array_split(world, 2)[1] for world in scores]
    candidates = np.quantile(np.concatenate(first), np.linspace(0.01, 0.999, 200))
    best = max(candidates, key=lambda t: _epsilon(*_error_rates(first[0], first[1], float(t))))
    return _epsilon(*_error_rates(second[0], second[1], float(best)))


def _error_rates(one: Array, other: Array, threshold: float) -> tuple[float, float]:
    """The probability of a score above it in the other world, from below, and in the one, from above."""
    low, _ = rates(int(np.count_nonzero(other > threshold)), len(other), ALPHA / 2)
    _, high = rates(int(np.count_nonzero(one > threshold)), len(one), ALPHA / 2)
    return low, high


def _epsilon(low: float, high: float) -> float:
    return log(low / high) if low > 0 else -inf
