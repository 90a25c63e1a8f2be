"""What several windows promise together, by a second route: loss distributions composed, and 50 digits."""

from fractions import Fraction
from random import Random

import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from mpmath import exp, mp, mpf, ncdf

from privest_service.ledger.promises import together
from privest_service.ledger.renewals import part_of
from privest_service.ledger.units import MU_SQUARED, PROBABILITY, Limits
from privest_service.problems import Invalid


def exact_delta(epsilon: float, mu_squared: int) -> mpf:
    """δ of μ-Gaussian privacy at ε, to fifty digits."""
    with mp.workdps(50):
        mu, e = mp.sqrt(mpf(mu_squared) / MU_SQUARED), mpf(epsilon)
        return ncdf(mu / 2 - e / mu) - exp(e) * ncdf(-mu / 2 - e / mu)


@pytest.mark.few(3)
@pytest.mark.parametrize("number", [2, 12, 100])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (3.0, 1e-4)])
def test_windows_together_promise_the_least_that_their_sums_guarantee(
    epsilon: float, delta: float, number: int
) -> None:
    limits = Limits.of(epsilon, delta, "gdp")
    found = together([(limits, number - 1), (limits, 1)])
    assert found.windows == number
    assert found.promise is not None
    e, d = found.promise.epsilon, found.promise.delta
    assert d == pytest.approx(number * delta, rel=1e-12)
    left = mpf(number * (limits.delta - limits.slack)) / PROBABILITY
    assert exact_delta(e, number * limits.mu_squared) <= left
    assert exact_delta(e * (1 - 1e-6), number * limits.mu_squared) > left
    assert epsilon < e < number * epsilon
    # Windows that are spent to the last unit, composed as loss distributions.
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    noise = (limits.mu_squared / MU_SQUARED) ** -0.5
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(noise), number))
    assert accountant.get_epsilon(float(left)) == pytest.approx(e, rel=1e-2)


def test_windows_of_plain_sums_add_up_and_too_many_promise_nothing() -> None:
    found = together([(Limits.of(0.5, 1e-3, "basic"), 3), (Limits.of(1, 0, "basic"), 1)])
    assert found.promise is not None
    assert (found.windows, found.promise.epsilon, found.promise.delta) == (4, 2.5, 0.003)
    assert together([(Limits.of(0.5, 1e-3, "basic"), 1000)]).promise is None


def test_parts_of_a_budget_never_add_up_to_more() -> None:
    rng = Random(5)  # noqa: S311 - no secret
    for _ in range(200):
        composition = rng.choice(["gdp", "basic"])
        whole = Limits.of(10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-9, -3), composition)
        number = rng.randint(1, 400)
        part = part_of(whole, number)
        for name in ("delta", *whole.counted):
            assert number * getattr(part, name) <= getattr(whole, name) < number * (getattr(part, name) + 1)
        if composition == "gdp":  # what each window states for itself is true
            e = float(Fraction(part.epsilon, 10**9))
            assert exact_delta(e, part.mu_squared) * PROBABILITY <= part.delta - part.slack


def test_a_budget_that_leaves_a_window_nothing_is_not_divided() -> None:
    with pytest.raises(Invalid):
        part_of(Limits.of(1, 9e-17, "gdp"), 10)
