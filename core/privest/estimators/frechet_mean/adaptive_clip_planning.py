"""Plan of the default solver: histograms of distances, and alternatives of which the run makes one."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, sqrt

from privest.estimators.frechet_mean.adaptive_clip import Run
from privest.estimators.frechet_mean.losses import CandidateDistances, ScaledGradient
from privest.estimators.frechet_mean.planning import ProblemBounds, SolverPlan, longest
from privest.estimators.frechet_mean.schedule import Schedule
from privest.privacy.budget import PrivacyBudget
from privest.privacy.mechanisms import AlternativeSum, NoisySum, SampledSum
from privest.privacy.statistic import AnyStatistic
from privest.records import CHUNK


@dataclass(frozen=True)
class _Shares:
    """Shares of the budget: of ε if the noise is Laplace's, else of μ².

    Attributes:
        rounds: largest number of rough rounds.
        rough: largest shares of a rough histogram and of a rough gradient.
        all_rough: largest share of all rough rounds.
        look: of the histogram that decides; the unused share of rough rounds is added.
        check: of a plain gradient that checks a clipped answer, of the rest after histograms.
        near, far: of gradients on curved space, from near and from afar, of the same rest.
        last_look: of the histogram in a run from afar.
        paths: of each gradient on the way to a candidate, and their number for each.
        values: of the objective at the candidates.
        several: of the gradients from the best candidate.
    """

    rounds: int
    rough: tuple[float, float]
    all_rough: float
    look: float
    check: float
    near: tuple[float, ...]
    far: tuple[float, ...]
    last_look: float
    paths: tuple[float, int]
    values: float
    several: tuple[float, ...]


def _growing(growth: float, count: int) -> tuple[float, ...]:
    """Return shares of sum 1 that grow by a factor."""
    weights = [growth**place for place in range(count)]
    return tuple(each / sum(weights) for each in weights)


_OF_MU = _Shares(
    3,
    (0.01, 0.02),
    0.06,
    0.08,
    0.25,
    _growing(2.5, 3),
    _growing(1.8, 8),
    0.05,
    (0.02, 4),
    0.14,
    _growing(2.0, 4),
)
_OF_EPSILON = _Shares(
    2,
    (0.006, 0.012),
    0.03,
    0.05,
    0.25,
    _growing(6.0, 2),
    _growing(3.0, 5),
    0.05,
    (0.03, 2),
    0.14,
    _growing(6.0, 2),
)

_ENOUGH = 0.01, 0.02
"""Noise that is enough for rough rounds: of histograms in shares, of gradients in clips."""

_TOO_NOISY = 0.1, 0.5
"""Noise beyond which histograms and rough gradients are useless: on a share, and in clips."""

_SAMPLE, _PART, _OF_SAMPLE = 16 * CHUNK, 16, 0.004
"""Records in a sample for rough rounds, or this part of all if that is less, and a gradient's share of μ²."""


def adaptive_clip(bounds: ProblemBounds) -> SolverPlan:
    """Return the plan of the default solver.

    Raises:
        ValueError: this privacy cannot be certified in float64.
    """
    budget = bounds.budget()
    shares = _OF_EPSILON if budget.pure else _OF_MU
    ranged = () if bounds.has_ball else (_range(bounds, budget),)
    looks = _looks(bounds, budget, shares)
    spent = _spent(budget, (*ranged, *looks))
    alternatives = tuple(_alternatives(bounds, budget, shares, 1 - spent, looked=bool(looks)))
    plain = [each for each in alternatives if each.statistic == Run.PLAIN.gradient]
    joint = sum(each.deviation**-2 for each in plain) ** -0.5
    noise = bounds.clip * joint * sqrt(bounds.space.dim)
    chosen = Schedule(1.0, tuple(1.0 for _ in plain), noise, noise)
    return SolverPlan("rgd", (*ranged, *looks, *alternatives), chosen)


def _spent(budget: PrivacyBudget, releases: tuple[NoisySum, ...]) -> float:
    """Return the share of the budget that releases take."""
    if budget.pure:
        return sum(each.epsilon for each in releases) / budget.whole
    return sum(each.cost.mu_squared for each in releases) / budget.whole**2


def _range(bounds: ProblemBounds, budget: PrivacyBudget) -> NoisySum:
    """Return the histogram over many orders of magnitude, where nobody declared a radius."""
    counts, power = bounds.range.counts, 1 if budget.pure else 2
    share = min(0.03, (budget.release(counts, "range", 1.0).deviation / _ENOUGH[0]) ** power)
    return budget.release(counts, "range", 1.0, share=share)


def _looks(bounds: ProblemBounds, budget: PrivacyBudget, shares: _Shares) -> tuple[NoisySum, ...]:
    """Return the histograms and gradients by which the run chooses, or none where noise hides all of them."""
    space, power = bounds.space, 1 if budget.pure else 2
    counts, scaled = bounds.distance_shares, ScaledGradient(space)

    def deviation(statistic: AnyStatistic, share: float) -> float:
        return budget.release(statistic, "", 1.0, share=share).deviation

    if deviation(counts, shares.look) > _TOO_NOISY[0] and bounds.is_flat and bounds.has_ball:
        return ()
    step = sqrt(scaled.size)
    wanted = (
        (deviation(counts, 1.0) / _ENOUGH[0]) ** power,
        (step * deviation(scaled, 1.0) / _ENOUGH[1]) ** power,
    )
    look, gradient = (min(most, each) for most, each in zip(shares.rough, wanted, strict=True))
    rounds = min(shares.rounds, int((shares.all_rough - look) / (look + gradient)))
    if step * deviation(scaled, gradient) > _TOO_NOISY[1] or deviation(counts, look) > _TOO_NOISY[0]:
        return (budget.release(counts, "distances", 1.0, share=shares.look),)
    sample = budget.sample(gradient)

    def rough(statistic: AnyStatistic, name: str, share: float) -> NoisySum:
        if not sample:
            return budget.release(statistic, name, 1.0, share=share)
        size = max(sample, min(_SAMPLE, CHUNK * (bounds.n // (_PART * CHUNK))))
        paid = min(_OF_SAMPLE, share * (bounds.n / size) ** 2)
        return SampledSum.of(budget.release(statistic, name, 1.0, share=paid), size)

    found = list[NoisySum]()
    for _ in range(rounds):
        found += [rough(counts, "rough-distances", look), rough(scaled, "rough-gradient", gradient)]
    found.append(rough(counts, "rough-distances", look))
    rest = shares.look + shares.all_rough - _spent(budget, tuple(found))
    return (*found, budget.release(counts, "distances", 1.0, share=rest))


def _alternatives(
    bounds: ProblemBounds, budget: PrivacyBudget, shares: _Shares, left: float, *, looked: bool
) -> Iterator[NoisySum]:
    """Yield the releases of each alternative."""
    space, left = bounds.space, left * (1 - 1e-9)
    scaled, counts = ScaledGradient(space), bounds.distance_shares

    def made(run: Run, statistic: AnyStatistic, name: str, share: float) -> AlternativeSum:
        return AlternativeSum.of(budget.release(statistic, name, 1.0, share=share * left), run, name)

    def gradients(run: Run, parts: tuple[float, ...], of: float) -> Iterator[NoisySum]:
        return (made(run, scaled, run.gradient, part * of) for part in parts)

    near = (1.0,) if bounds.is_flat else shares.near
    if not looked:
        yield from (budget.release(scaled, Run.PLAIN.gradient, 1.0, share=part * left) for part in near)
        return
    yield from gradients(Run.PLAIN, near, 1.0)
    yield from gradients(Run.CLIPPED, near, 1 - shares.check)
    yield made(Run.CLIPPED, scaled, Run.CLIPPED.check, shares.check)
    if bounds.is_flat:
        return
    look = shares.last_look
    for run, check in ((Run.FAR_PLAIN, 0.0), (Run.FAR_CLIPPED, shares.check)):
        yield from gradients(run, shares.far, 1 - look - check)
        yield made(run, counts, run.look, look)
        if check:
            yield made(run, scaled, run.check, check)
    if space.cut_distance == inf:
        return
    path, each = shares.paths
    run, count = Run.SEVERAL, 2 * each
    candidates = CandidateDistances(space, 2, longest(space, bounds.radius))
    yield from (made(run, scaled, "several-paths", path) for _ in range(count))
    yield made(run, candidates, "several-values", shares.values)
    yield made(run, counts, run.look, look)
    yield from gradients(run, shares.several, 1 - count * path - shares.values - look)
