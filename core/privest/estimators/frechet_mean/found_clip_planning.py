"""The plan of a descent that finds its clip, from far off or in units of columns that it finds first."""

from dataclasses import dataclass
from math import sqrt

from privest.estimators.column_scales import SHARE, ColumnScales
from privest.estimators.frechet_mean.distances import DistanceCounts
from privest.estimators.frechet_mean.losses import ScaledGradient
from privest.estimators.frechet_mean.planning import ProblemBounds, SolverPlan
from privest.estimators.frechet_mean.schedule import schedule
from privest.privacy.mechanisms import NoisySum, SampledSum
from privest.records import CHUNK


@dataclass(frozen=True)
class _Rounds:
    """How a descent that finds its clip spends its budget.

    Attributes:
        early: number of early rounds, of a look and a step each.
        most: largest shares of an early look and of an early step.
        late: shares of the two later looks.
        growth: of the share from one later step to the next.
    """

    early: int
    most: tuple[float, float]
    late: tuple[float, float]
    growth: float


_OF_MU, _OF_EPSILON = _Rounds(3, (0.02, 0.05), (0.04, 0.06), 1.6), _Rounds(1, (0.03, 0.1), (0.06, 0.1), 6.0)
"""Where noise is Gauss's, and where it is Laplace's, whose costs add up faster."""

_ROUGH = 0.05, 0.03
"""The noise that is enough for early looks, in shares, and for early steps, as a part of the distance.

Three such steps make up for a radius that is thousands of times too large.
"""

_SAMPLE, _PART, _OF_SAMPLE = 16 * CHUNK, 16, 0.004
"""Where samples suffice for early rounds they have so many records, or this part of all if that is less, and
early steps cost so much of μ² each.
"""

_FLAT_STEPS, _CURVED_STEPS = 2, 10
"""Later steps of a descent that finds its clip."""

_NEAR_STEPS, _GROWTH = 3, 2.5
"""Later steps that are enough where early ones saw samples and curvature is small, and how shares then grow.

They have 94 % of what all ten have together, so that it costs little not to make the others.
"""


def found_clip(bounds: ProblemBounds, scales: ColumnScales | None = None) -> SolverPlan:
    """DP-RGD with a clip that histograms of distances choose on the way, from far off if need be.

    Gradients are released in clips, so that their noise is fixed before the clip is. Where scales of columns
    are looked for first, no record is far off any more.

    Args:
        bounds: public facts.
        scales: of columns, if they are to be found.

    Raises:
        ValueError: this privacy cannot be certified in float64.
    """
    budget, scaled, counts = bounds.budget(), ScaledGradient(bounds.space), DistanceCounts(bounds.space)
    rounds, power = (_OF_EPSILON, 1) if budget.pure else (_OF_MU, 2)
    enough = zip((counts, scaled), (_ROUGH[0], _ROUGH[1] / sqrt(scaled.size)), rounds.most, strict=True)
    look, step = (
        min(most, (budget.release(statistic, "", 1.0).deviation / noise) ** power)
        for statistic, noise, most in enough
    )
    early = 0 if scales else rounds.early
    sample = None if scales else budget.sample(step)
    if sample:
        sample = max(sample, min(_SAMPLE, CHUNK * (bounds.n // (_PART * CHUNK))))
        look, step = look * (bounds.n / sample) ** 2, _OF_SAMPLE
    found = SHARE if scales else look
    whole = 1 - found - early * (look + step) - sum(rounds.late)
    alone = budget.release(scaled, "scaled", 1.0, share=whole)
    chosen = schedule(
        bounds.space.dim * (bounds.clip * alone.deviation) ** 2,
        power=1,
        curvature=bounds.curvature,
        distance=bounds.distance,
        clip=bounds.clip,
    )
    later = _FLAT_STEPS if bounds.curvature == (0, 0) else _CURVED_STEPS
    spare = later - _NEAR_STEPS if sample and later > _NEAR_STEPS else 0
    growing = [(_GROWTH if spare else rounds.growth) ** place for place in range(later)]
    steps = [step] * early + [whole * each / sum(growing) for each in growing]
    names = ["scaled"] * early + ["far"] * spare + ["scaled"] * (later - spare)
    if scales:
        first = scales.releases(budget, found)
    else:
        first = (budget.release(bounds.range.counts, "range", 1.0, share=found),)
    histograms = tuple(
        budget.release(counts, "distances", 1.0, share=share) for share in (*[look] * early, *rounds.late)
    )
    gradients = tuple(
        budget.release(scaled, name, 1.0, share=share) for name, share in zip(names, steps, strict=True)
    )
    if sample:
        first, histograms, gradients = (
            _sampled(releases, sample, count)
            for releases, count in ((first, 1), (histograms, early + bool(spare)), (gradients, early))
        )
    return SolverPlan("rgd", (*first, *histograms, *gradients), chosen)


def _sampled(releases: tuple[NoisySum, ...], sample: int, count: int) -> tuple[NoisySum, ...]:
    """The releases, of which so many at the beginning are of a sample."""
    return (*(SampledSum.of(release, sample) for release in releases[:count]), *releases[count:])
