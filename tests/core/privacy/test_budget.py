"""Shares of a target, and what the releases of a run cost together."""

from fractions import Fraction

import pytest

from privest.privacy.accounting import PrivacyTarget, mu_for
from privest.privacy.budget import cost_of_all, part_of
from privest.privacy.cross_check import second_opinion
from privest.privacy.mechanisms import AlternativeSum, noisy_sum

GAUSSIAN, PURE = PrivacyTarget(1.0, 1e-6), PrivacyTarget(1.0, 0.0)


def release(loss, noise="gaussian"):
    return noisy_sum(noise, n=100, size=3, clip=1.0, loss=loss)


def of_run(run, *losses, noise="gaussian"):
    return [AlternativeSum.of(release(loss, noise), run, f"run {run}") for loss in losses]


def exact(releases):
    """μ² of Gaussian releases one after another, in fractions."""
    return sum((Fraction(r.sensitivity) / Fraction(r.scale)) ** 2 * r.count for r in releases)


def test_alternatives_cost_what_the_costliest_run_does():
    shared, cheap, dear = [release(0.05)], of_run(0, 0.06, 0.02), of_run(1, 0.03, 0.05, 0.03)
    for order in ([*shared, *cheap, *dear], [*dear, *cheap, *shared], [cheap[0], *dear, *shared, cheap[1]]):
        cost = cost_of_all(order, GAUSSIAN)
        assert exact(shared) + exact(dear) <= Fraction(cost.mu_squared)
        assert cost.mu_squared == pytest.approx(float(exact(shared) + exact(dear)), rel=1e-12)
        assert cost.mu_squared > float(exact(shared) + exact(cheap)) * 1.01


def test_a_run_that_is_too_dear_is_refused_wherever_it_stands():
    mu = mu_for(GAUSSIAN.epsilon, GAUSSIAN.delta)
    for run in (0, 1):
        runs = [*of_run(run, 1.01 * mu), *of_run(1 - run, 0.5 * mu)]
        with pytest.raises(ValueError, match="cannot be certified"):
            cost_of_all(runs, GAUSSIAN)
        pure = [*of_run(run, 1.01, noise="laplace"), *of_run(1 - run, 0.5, noise="laplace")]
        with pytest.raises(ValueError, match="cannot be certified"):
            cost_of_all(pure, PURE)
    within = [*of_run(0, 0.5, 0.49, noise="laplace"), *of_run(1, 0.99, noise="laplace")]
    cost_of_all(within, PURE)
    with pytest.raises(ValueError, match="cannot be certified"):
        cost_of_all([release(0.02, "laplace"), *within], PURE)


def test_another_accountant_counts_one_run_too():
    shared, cheap, dear = [release(0.05)], of_run(0, 0.06), of_run(1, 0.03, 0.05, 0.03)
    told = second_opinion([*shared, *cheap, *dear], 1e-6).epsilon
    plain = [release(loss) for loss in (0.05, 0.03, 0.05, 0.03)]
    assert told == pytest.approx(second_opinion(plain, 1e-6).epsilon, rel=1e-9)


@pytest.mark.parametrize("share", [1e-3, 0.1, 0.85])
def test_parts_of_a_target_are_of_its_epsilon_or_of_mu_squared(share):
    assert part_of(PURE, share) == PrivacyTarget(share, 0.0)
    part, mu = part_of(GAUSSIAN, share), mu_for(GAUSSIAN.epsilon, GAUSSIAN.delta)
    assert mu_for(part.epsilon, part.delta) <= mu * share**0.5
    assert mu_for(part.epsilon, part.delta) == pytest.approx(mu * share**0.5, rel=1e-6)


def test_a_part_that_buys_nothing_is_refused():
    with pytest.raises(ValueError, match="epsilon must be positive"):
        part_of(PrivacyTarget(1e-6, 1e-2), 1e-9)
