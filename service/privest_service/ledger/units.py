"""Privacy as integers: what is stored, and how it is rounded. Costs up, limits down, no tolerance.

μ² is counted in 1e-12, ε in 1e-9, slack and δ in 1e-18.
"""

from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from math import ceil, floor, inf, nextafter, sqrt
from typing import Literal

from privest.privacy.accounting import Cost, PrivacyTarget, mu_for

Composition = Literal["gdp", "basic"]

MU_SQUARED = 10**12
EPSILON = 10**9
PROBABILITY = 10**18

_MOST = 2**61
"""More than any limit and less than half of an int64: what is larger is stored as this, and refused."""

_SLACK_SHARE = 10
"""One part in this many of a gdp budget's δ is kept for slack."""


INFORMATIVE_CAP = 2**62
"""Sums in the currency that an account does not limit stop here instead of overflowing: twice any limit."""


def moved(spent: int, amount: int) -> int:
    """A sum of an account after a movement.

    One that came to the cap stays there. What it would be is not known any more: to take a void off it would
    tell less than is charged, and after some more of them less than nothing.
    """
    return INFORMATIVE_CAP if spent == INFORMATIVE_CAP else min(spent + amount, INFORMATIVE_CAP)


def _decimal(value: float | Decimal) -> Decimal:
    """The number as it was written: the shortest decimal that is this float."""
    return value if isinstance(value, Decimal) else Decimal(repr(value))


def _units(value: float | Decimal, per_one: int, rounding: str) -> int:
    with localcontext(prec=60):
        return int((_decimal(value) * per_one).to_integral_value(rounding=rounding))


def _up(value: float | Decimal, per_one: int) -> int:
    return min(_units(value, per_one, ROUND_CEILING), _MOST)


def _down(value: float | Decimal, per_one: int) -> int:
    return min(_units(value, per_one, ROUND_FLOOR), _MOST - 1)


def chargeable(target: PrivacyTarget) -> PrivacyTarget:
    """Round ε and δ down to the ledger's units, so that a query runs with exactly what it is charged.

    An amount below one unit stays as it is, and is charged as one unit.
    """
    return replace(
        target,
        epsilon=_whole_units(target.epsilon, EPSILON),
        delta=_whole_units(target.delta, PROBABILITY),
    )


def _whole_units(value: float, per_one: int) -> float:
    # `_decimal` reads these units back exactly: the float nearest to them is written as they are.
    return _units(value, per_one, ROUND_FLOOR) / per_one or value


@dataclass(frozen=True)
class Charge:
    """The cost of one query, in both currencies, as integers."""

    epsilon: int
    delta: int
    mu_squared: int
    slack: int

    @classmethod
    def of(cls, target: PrivacyTarget, cost: Cost) -> "Charge":
        """The charge for a query of (ε, δ) whose run is certified to cost this."""
        return cls(
            epsilon=_up(target.epsilon, EPSILON),
            delta=_up(target.delta, PROBABILITY),
            # The certificate is a float64, so its exact value is what is rounded.
            mu_squared=min(ceil(Fraction(cost.mu_squared) * MU_SQUARED), _MOST),
            slack=min(ceil(Fraction(cost.slack) * PROBABILITY), _MOST),
        )

    def __add__(self, other: "Charge") -> "Charge":
        return Charge(
            self.epsilon + other.epsilon,
            self.delta + other.delta,
            self.mu_squared + other.mu_squared,
            self.slack + other.slack,
        )

    def __neg__(self) -> "Charge":
        return Charge(-self.epsilon, -self.delta, -self.mu_squared, -self.slack)


@dataclass(frozen=True)
class Limits:
    """A budget (E, Δ), and for `gdp` the two sums into which it is turned once and for all."""

    composition: Composition
    epsilon: int
    delta: int
    mu_squared: int
    slack: int

    @classmethod
    def of(cls, epsilon: float | Decimal, delta: float | Decimal, composition: Composition) -> "Limits":
        """The limits of a budget.

        For `gdp`, slack is limited to Δ/10, and μ² to the largest value with δ_Gμ(E) <= Δ − slack limit.

        Raises:
            ValueError: ε not positive, δ outside [0, 1), or a `gdp` budget that has no room for any query.
        """
        units = _down(epsilon, EPSILON), _down(delta, PROBABILITY)
        if epsilon <= 0 or not 0 <= delta < 1:
            raise ValueError("epsilon must be above 0, and delta at least 0 and below 1")
        if composition == "basic":
            if units[0] == 0:
                raise ValueError("epsilon must be at least 1e-9")
            return cls("basic", *units, 0, 0)
        slack = units[1] // _SLACK_SHARE
        if slack == 0:
            least = f"{_SLACK_SHARE / PROBABILITY:g}"
            raise ValueError(
                f"delta must be at least {least} in a gdp budget: choose a larger one, or composition basic"
            )
        mu = mu_for(_below(units[0], EPSILON), _below(units[1] - slack, PROBABILITY)) if units[0] else 0.0
        mu_squared = min(floor(Fraction(mu) ** 2 * MU_SQUARED), _MOST - 1)
        if mu_squared == 0:
            raise ValueError("epsilon and delta are too small for any query: choose larger ones")
        return cls("gdp", *units, mu_squared, slack)

    @classmethod
    def none(cls, composition: Composition) -> "Limits":
        """The limits of an account that only counts, above anything that an owner's account admits."""
        return cls(composition, _MOST, _MOST, _MOST, _MOST)

    @property
    def capped(self) -> bool:
        """Whether there is any limit."""
        return self != Limits.none(self.composition)

    def told(self) -> dict[str, float | None]:
        """(ε, δ) for people to read; of what has no limit None."""
        if not self.capped:
            return {"epsilon": None, "delta": None}
        return {"epsilon": as_number(self.epsilon, EPSILON), "delta": as_number(self.delta, PROBABILITY)}

    @property
    def counted(self) -> tuple[str, str]:
        """The two sums that are held to a limit."""
        return ("mu_squared", "slack") if self.composition == "gdp" else ("epsilon", "delta")

    @property
    def slack_per_mu_squared(self) -> float | None:
        """Slack that a query may use for each unit of μ², so that both run out together; None if basic."""
        if self.composition == "basic":
            return None
        return as_number(self.slack, PROBABILITY) / as_number(self.mu_squared, MU_SQUARED)

    @property
    def room(self) -> PrivacyTarget:
        """The part of a gdp budget for queries without slack: (E, Δ − slack limit), rounded down."""
        return PrivacyTarget(_below(self.epsilon, EPSILON), _below(self.delta - self.slack, PROBABILITY))


def _below(units: int, per_one: int) -> float:
    """The number of units as a float that is not more than it."""
    value = units / per_one
    return value if Fraction(value) <= Fraction(units, per_one) else nextafter(value, 0.0)


def number_above(units: int, per_one: int) -> float:
    """The number of units as a float that is not less than it."""
    value = units / per_one
    return value if Fraction(value) >= Fraction(units, per_one) else nextafter(value, inf)


def epsilon_below(value: float) -> float:
    """Return the largest whole number of the ledger's units of ε that is not more than this."""
    return as_number(_down(value, EPSILON), EPSILON)


def probability_units(delta: float) -> int:
    """Return the units that a query of this δ, once `chargeable`, is charged."""
    return _up(_whole_units(delta, PROBABILITY), PROBABILITY)


def as_number(units: int, per_one: int) -> float:
    """The number of units, for people."""
    return units / per_one


def as_exact(units: int, per_one: int) -> Decimal:
    """The number of units, exactly."""
    with localcontext(prec=60):
        return Decimal(units) / per_one


def mu_above(mu_squared: int) -> float:
    """A μ that is not less than the root of this many units of μ²."""
    return nextafter(sqrt(number_above(mu_squared, MU_SQUARED)), inf) if mu_squared else 0.0


def mu_below(mu_squared: int) -> float:
    """A μ that is not more than the root of this many units of μ²."""
    return nextafter(sqrt(_below(mu_squared, MU_SQUARED)), 0.0) if mu_squared > 0 else 0.0
