"""`least_epsilon`: what to ask with for the error to be foretold as small as is needed, by few plans."""

from collections.abc import Callable
from itertools import count
from math import exp, inf, log

LEAST, MOST = 1e-6, 1e3
"""Where ε is looked for. Below that nothing is learned, and above it nothing is promised."""

_NEAR = log(1.05)
"""In ln ε: how much larger than the least one may be what is found."""

_STRIDE = log(64.0)
"""The longest step in ln ε while all that was tried is too small, or all is large enough."""

_BEYOND = 0.015
"""In ln ε: how far on the safe side of where a line leads the next one is tried."""


def least_epsilon(ratio: Callable[[float], float]) -> float:
    """The least ε, or one that is at most 5 % larger, for which an error is foretold that is small enough.

    The error is taken to fall as ε grows, about like a power of it. Where it does not, what is found still
    reaches what is asked for.

    Args:
        ratio: of the error that the plan of an ε foretells to what is asked for, from public facts alone;
            infinite where there is no plan for so small an ε.

    Returns:
        an ε of four significant digits, at which `ratio` was seen to be at most 1.

    Raises:
        ValueError: no ε reaches it, or every one does, in words fit for the analyst.
    """
    tried, epsilon = dict[float, float](), 1.0
    for tries in count(1):
        tried[epsilon] = ratio(epsilon)
        low = max((each for each, error in tried.items() if error > 1.0), default=None)
        high = min(
            (each for each, error in tried.items() if error <= 1.0 and each > (low or 0.0)), default=None
        )
        if low == MOST:
            raise ValueError(
                f"No ε reaches this: with ε = {MOST:g} the plan still foretells {tried[MOST]:.3g} times what "
                "is asked for, as not all of the error is noise. Ask for less accuracy, or of fewer columns."
            )
        if high == LEAST:
            raise ValueError(
                "No ε is needed for this: by public facts alone no answer is further off than "
                f"{tried[LEAST]:.3g} times what is asked for. Ask for more accuracy."
            )
        if low is None or high is None:
            at = _onward(tried)
        elif log(high / low) <= _NEAR:
            return high
        else:
            at = _between((low, tried[low]), (high, tried[high]), tries)
        epsilon = float(f"{min(max(exp(at), LEAST), MOST):.4g}")
    raise AssertionError


def _between(low: tuple[float, float], high: tuple[float, float], tries: int) -> float:
    """The next ln ε between one that is too small and one that is large enough, each with its ratio."""
    (left, above), (right, below) = ((log(epsilon), _log(ratio)) for epsilon, ratio in (low, high))
    if above == inf or (tries > 3 and tries % 2 == 0):  # what falls in steps leads lines astray
        return (left + right) / 2
    crossing = left + (right - left) * above / (above - below)
    return crossing + _BEYOND if right - crossing > 2 * _BEYOND else right - 0.9 * _NEAR


def _onward(tried: dict[float, float]) -> float:
    """The next ln ε where none was too small yet, or none large enough, by a line through the last two."""
    *before, (epsilon, ratio) = tried.items()
    slope = -1.0
    if before and inf not in (ratio, before[-1][1]):
        drop = _log(before[-1][1]) - _log(ratio)
        slope = min(-0.1, drop / (log(before[-1][0]) - log(epsilon)))
    step = min(-_log(ratio) / slope, _STRIDE)
    step += _BEYOND if step > 0 else -_BEYOND
    return log(epsilon) + min(max(step, -_STRIDE), _STRIDE)


def _log(ratio: float) -> float:
    return log(max(ratio, 1e-300))
