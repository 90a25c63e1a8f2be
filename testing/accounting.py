"""What a run cost, computed again from the noise that was really drawn, by formulas of its own.

Nothing here is shared with core's accounting but where it is said: mpmath's digits stand against its closed
forms, and dp-accounting's composition against its certificates.
"""

import functools
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import expm1, log
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from scipy.optimize import brentq
from scipy.special import ndtr

from privest.arrays import Array
from privest.data.records import Records
from privest.privacy.accounting import mu_of_pure
from privest.privacy.gate import Gate, GateExhaustedError
from privest.privacy.laplace_accounting import MOST_SIZE, InSpace, OnALine, cost_of_pure, mu_of_laplace
from privest.privacy.mechanisms import amplified
from privest.privacy.subsampling import SubsampledRun
from testing.noise import RecordedNoise


def exact_delta(epsilon: float, mu: Any) -> Any:
    """δ(ε) of a μ-Gaussian mechanism, with as many digits as mpmath works with."""

    def tail(x: Any) -> Any:
        return mpmath.erfc(x / mpmath.sqrt(2)) / 2

    e = mpmath.mpf(epsilon)
    return tail(e / mu - mu / 2) - mpmath.exp(e) * tail(e / mu + mu / 2)


def within_request(plan: Any) -> None:
    """Fail where the stated cost, slack and all, is more than the plan's target allows."""
    with mpmath.workdps(60):
        stated = mpmath.sqrt(mpmath.mpf(plan.cost.mu_squared))
        spent = mpmath.mpf(plan.cost.slack) + exact_delta(plan.target.epsilon, stated)
        assert spent <= mpmath.mpf(plan.target.delta)


def pure_mu_squared(epsilon: Fraction) -> Any:
    """μ² of a mechanism that is ε-private with δ = 0."""
    return 8 * mpmath.erfinv(mpmath.tanh(mpmath.mpf(epsilon.numerator) / epsilon.denominator / 2)) ** 2


def laplace_mu_squared(ratio: Fraction, size: int) -> Any:
    """μ² of noise of density ∝ exp(−|z|/b) on R^size at sensitivity ratio·b, by Bessel functions."""
    half, order = mpmath.mpf(ratio.numerator) / ratio.denominator / 2, mpmath.mpf(size) / 2
    upper = mpmath.besselk(order, half) * mpmath.struvel(order - 1, half)
    lower = mpmath.besselk(order - 1, half) * mpmath.struvel(order, half)
    return 8 * mpmath.erfinv(half * (upper + lower)) ** 2


def drawn_laplace(draws: Sequence[tuple[Fraction, int]]) -> Any:
    """μ² of noise of density ∝ exp(−|z|/b) that was drawn at these sensitivities over b, in these sizes.

    What was drawn once is added by Bessel functions. What came again is composed as core does it, which its
    own tests hold against dp-accounting.
    """
    spent = mpmath.mpf(0)
    for (ratio, size), count in Counter(draws).items():
        alone = count * laplace_mu_squared(ratio, size)
        law = OnALine(float(ratio), float(ratio) / 2) if size == 1 else InSpace(float(ratio), size)
        together = (
            count == 1 or size > MOST_SIZE or cost_of_pure(law, mu_of_laplace(float(ratio), size), count)
        )
        spent += alone if together is True else min(alone, mpmath.mpf(together.mu_squared) * (1 - 1e-8))
    return spent


def drawn_over_batches(draws: Sequence[Any], rate: float) -> Any:
    """μ² of Laplace noise that was drawn over Poisson batches at these C/b, composed as core does it."""
    spent = mpmath.mpf(0)
    for far, count in Counter(map(float, draws)).items():
        epsilon = amplified(2 * far, rate, "poisson")
        spent += cost_of_pure(OnALine(epsilon, far, rate), mu_of_pure(epsilon), count).mu_squared * (1 - 1e-8)
    return spent


def taken_apart(drawn: Sequence[Any]) -> tuple[list[Any], list[tuple[Any, Any]]]:
    """The draws over all records, and those over batches with how each batch was drawn."""
    whole, sampled, events = list[Any](), list[tuple[Any, Any]](), iter(drawn)
    for event in events:
        if isinstance(event[0], str):
            whole.append(event)
        else:
            sampled.append((event, next(events)))
    return whole, sampled


def gaussian_curve(alpha: float, mu: float) -> float:
    """H_α of N(μ, 1) against N(0, 1)."""
    if alpha <= 0:
        return 1.0
    return float(ndtr(mu / 2 - log(alpha) / mu) - alpha * ndtr(-mu / 2 - log(alpha) / mu))


def fixed_curve(alpha: float, rate: float, mu: float) -> float:
    """Balle, Barthe and Gaboardi 2018, Theorem 9, for G of parameter μ; below 1 by exchanging the pair."""
    if alpha < 1:
        return 1 - alpha + (alpha * fixed_curve(1 / alpha, rate, mu) if alpha > 0 else 0.0)
    return rate * gaussian_curve(1 + (alpha - 1) / rate, mu)


def poisson_curve(alpha: float, rate: float, bound: float, apart: float) -> float:
    """H_α of (1 − q)N(0, 1) + qN(C, 1) against (1 − q)N(0, 1) + qN(C − D, 1); below 1 by exchanging them."""
    if alpha < 1:
        exchanged = poisson_curve(1 / alpha, rate, bound, apart) if alpha > 0 else 0.0
        return 1 - alpha + alpha * exchanged
    shifts = bound, (1 - apart) * bound

    def excess(x: float) -> float:
        up, down = (1 + rate * expm1(shift * x - shift * shift / 2) for shift in shifts)
        return up - alpha * down

    high = 1.0
    while excess(high) <= 0:
        high *= 2
        if bound * high > 600 or high > 20:  # what lies beyond has a mass below 1e-80
            return 0.0
    least = brentq(excess, -1.0 / bound - 40, high, xtol=1e-14)
    up, down = ((1 - rate) * ndtr(-least) + rate * ndtr(shift - least) for shift in shifts)
    return float(up - alpha * down)


@functools.cache
def composed(
    run: SubsampledRun, cell: float, relation: NeighboringRelation = NeighboringRelation.REPLACE_ONE
) -> Any:
    """The composed loss distribution by dp-accounting, pessimistic; others from the curves above."""
    if run.scheme == "poisson" and run.apart == 2.0:
        step = privacy_loss_distribution.from_gaussian_mechanism(
            run.noise,
            sampling_prob=run.rate,
            value_discretization_interval=cell,
            neighboring_relation=relation,
        )._pmf_remove
    else:
        reach = int(min(12.0, 40 / run.noise + 4 / run.noise**2) / cell)
        alphas = np.exp(np.arange(-reach, reach + 1) * cell)
        if run.scheme == "poisson":
            curve = np.array([poisson_curve(a, run.rate, 1 / run.noise, run.apart) for a in alphas])
        else:
            curve = np.array([fixed_curve(a, run.rate, run.apart / run.noise) for a in alphas])
        step = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
            cell, -reach, reach, np.minimum.accumulate(curve)
        )
    return step.self_compose(run.steps, 1e-15)


class ListeningGate:
    """A gate that writes down which statistic was asked for.

    Args:
        gate: what answers.

    Attributes:
        asked: the statistics, in their order.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate, self.asked = gate, list[str]()

    def mean(self, point: Any, statistic: str = "gradient") -> Array:
        """The gate's answer, which must be finite."""
        self.asked.append(statistic)
        answer = self._gate.mean(point, statistic)
        assert np.isfinite(answer).all()
        return answer

    def pick(self, count: int) -> int:
        """The gate's."""
        return self._gate.pick(count)


def recorded_run(plan: Any, rows: Array, run: Callable[[Any, Any], Any]) -> tuple[Any, list[str], list[Any]]:
    """An estimator's answer, the statistics that it asked for, and the noise that was drawn for it.

    A warning is an error, and it fails where the run makes fewer releases than planned, or could make more.
    """
    source = RecordedNoise()
    gate = Gate(Records(rows, threads=1), plan.statistics, plan.releases, source)
    listening = ListeningGate(gate)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = run(plan, listening)
    assert gate.remaining == 0
    assert gate.answered == plan.steps == len(listening.asked)
    for statistic in plan.statistics:
        with pytest.raises(GateExhaustedError):
            gate.mean(None, statistic)
    return answer, listening.asked, list(source.drawn)


def label(options: Mapping[str, Any]) -> str:
    """What pytest calls a case of these options."""
    return "-".join(f"{name}={value}" for name, value in options.items()) or "defaults"
