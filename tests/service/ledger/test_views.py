"""How often an attacker guesses right, from sums and limits as the ledger counts them."""

import pytest
from scipy.stats import norm

from privest.privacy.accounting import mu_for
from privest_service.ledger.units import Charge, Limits
from privest_service.ledger.views import chance_of_guessing

GDP, BASIC = Limits.of(1, 1e-6, "gdp"), Limits.of(1, 1e-6, "basic")


def test_each_budget_counts_its_own_two_sums() -> None:
    charge = Charge(epsilon=10**9, delta=10**16, mu_squared=10**12, slack=10**16)
    assert chance_of_guessing(GDP, charge, "") == pytest.approx(norm.cdf(0.5) + 0.01 * norm.sf(0.5), abs=1e-9)
    assert chance_of_guessing(BASIC, charge, "") == pytest.approx((2.718281828 + 0.01) / 3.718281828)


def test_a_whole_budget_of_both_kinds() -> None:
    of_mu = norm.cdf(mu_for(1, 0.9e-6) / 2)
    assert of_mu <= chance_of_guessing(GDP, GDP, "") <= of_mu + 1e-6
    assert chance_of_guessing(BASIC, BASIC, "") == pytest.approx((2.718281828 + 1e-6) / 3.718281828)


@pytest.mark.parametrize("limits", [GDP, BASIC])
def test_nothing_spent_and_no_limit_at_all(limits: Limits) -> None:
    assert chance_of_guessing(limits, Charge(0, 0, 0, 0), "") == 0.5
    assert chance_of_guessing(limits, Limits.none(limits.composition), "") == 1.0
    assert chance_of_guessing(BASIC, Charge(0, 10**17, 0, 0), "") == pytest.approx(0.55)
