"""How often an attacker guesses right which of two values a record has, in view of all that was released.

The attacker knows all other records and holds both values for equally likely. Its best guess is right with
probability (1 + TV)/2 (Neyman and Pearson), where TV is the total variation distance between what is released
for the one value and for the other: the least δ for which the release is (0, δ)-private. Without any release
it is right half of the time.
"""

from math import exp, expm1, nextafter

from privest.privacy.calibration import gaussian_delta
from privest.privacy.cost import Cost, PrivacyTarget

_MARGIN = 1e-9
"""Relative margin on TV. It covers the rounding errors of `gaussian_delta`, which are below it."""


def best_guess(promise: Cost | PrivacyTarget) -> float:
    """The largest probability with which an attacker guesses a record's value right: ½ to 1, rounded up.

    For a `Cost` with μ² and slack it is Φ(μ/2) + slack·(1 − Φ(μ/2)), from the TV of two normal distributions
    that are μ apart (Dong et al. 2022, Section 2.1). The most telling of all (ε, δ)-private releases gives
    (e^ε + δ)/(e^ε + 1) (Kairouz et al. 2015, Theorem 2.1).
    """
    if isinstance(promise, Cost):
        distance = promise.slack + (1 - promise.slack) * gaussian_delta(0.0, promise.mu_squared**0.5)
    else:
        told = exp(-promise.epsilon)
        distance = (-expm1(-promise.epsilon) + 2 * promise.delta * told) / (1 + told)
    return min(1.0, nextafter(0.5 + distance * (1 + _MARGIN) / 2, 1.0)) if distance else 0.5
