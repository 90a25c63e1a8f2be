"""How often an attacker guesses right, by integrating over what it sees, and by trying every test."""

import mpmath
import numpy as np
import pytest

from privest.privacy.best_guess import best_guess
from privest.privacy.cost import Cost, PrivacyTarget

mp = mpmath.mp
mp.dps = 60


@pytest.mark.few(3)
@pytest.mark.sparse
@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1254, 0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("slack", [0.0, 1e-12, 1e-3, 0.5])
def test_of_a_normal_release_it_is_the_integral_over_the_likelier_density(mu, slack):
    """With probability `slack` the attacker sees the value itself, otherwise a normal number."""

    def seen(x, value):
        return mp.npdf(x, value * mp.mpf(mu), 1)

    ends = [-mp.inf, 0, mp.mpf(mu) / 2, mp.mpf(mu), mp.inf]
    right = mp.quad(lambda x: max(seen(x, 0), seen(x, 1)) / 2, ends)
    exact = mp.mpf(slack) + (1 - mp.mpf(slack)) * right
    found = best_guess(Cost(mu**2, slack))
    assert exact <= found <= exact + (exact - mp.mpf("0.5")) * 2e-8 + mp.mpf("1e-15")


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 0.1, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("delta", [0.0, 1e-9, 1e-3, 0.5])
def test_of_epsilon_and_delta_it_is_the_best_that_the_definition_leaves(epsilon, delta):
    """A linear program in two numbers: how often the guess is "first" under either value.

    Every guess obeys p <= e^ε q + δ and 1 − q <= e^ε (1 − p) + δ with 0 <= q <= p <= 1, and p + 1 − q is
    largest at a corner of that.
    """
    e, d = mp.exp(mp.mpf(epsilon)), mp.mpf(delta)
    both = (1 - d) / (1 + e)  # where both hold with equality
    corners = [(mp.mpf(1), mp.mpf(1)), (e * both + d, both), (d, mp.mpf(0)), (mp.mpf(1), 1 - d)]
    tiny = e * mp.mpf("1e-55")
    assert all(p <= e * q + d + tiny and 1 - q <= e * (1 - p) + d + tiny for p, q in corners)
    exact = max((p + 1 - q) / 2 for p, q in corners)
    found = best_guess(PrivacyTarget(epsilon, delta))
    assert exact <= found <= exact + (exact - mp.mpf("0.5")) * 1e-8 + mp.mpf("1e-15")


def test_nothing_released_tells_nothing_and_more_tells_more():
    assert best_guess(Cost()) == 0.5
    assert best_guess(Cost(1e6)) == best_guess(Cost(0.0, 1.0)) == best_guess(PrivacyTarget(900.0, 0.0)) == 1.0
    grown = [best_guess(Cost(mu**2, slack)) for slack in (0.0, 1e-6, 0.1) for mu in np.linspace(0, 4, 40)]
    for each in np.split(np.array(grown), 3):
        assert np.all(np.diff(each) > 0)
