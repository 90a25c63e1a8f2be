"""What (ε, δ) buys: the one way from a share of a budget to a release, and what all releases cost."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, inf, nextafter, sqrt
from typing import TypedDict

from privest.privacy.calibration import gaussian_delta, mu_for
from privest.privacy.cost import Cost, PrivacyTarget
from privest.privacy.matrix_mechanism import PrefixProducts, PrefixSums
from privest.privacy.mechanisms import NoisySum, Release, Scheme, SubsampledSum, noisy_sum, subsampled_sum
from privest.privacy.statistic import AnyStatistic

LEAST_RATE = 1e-12
"""Least accepted probability of a record to be in a batch; below it, batches would always be empty."""

BATCH = 256
"""Expected size of a batch where the analyst gives no rate."""

_SLACK_SHARE = 200
"""The slack of a sampled run's certificate is δ divided by this."""

ROUNDING_GUARD = 1 - 1e-12
"""Factor on every part of a budget, so that the parts, rounded up, stay within the whole."""


def gaussian_budget(target: PrivacyTarget) -> tuple[float, float]:
    """μ and slack of a run that is certified with slack, both within (ε, δ).

    Raises:
        ValueError: δ is 0.
    """
    if target.delta == 0:
        raise ValueError("random batches need a delta above 0; take full gradients")
    slack = target.delta / _SLACK_SHARE
    return mu_for(target.epsilon, target.delta - slack), slack


@dataclass(frozen=True)
class PrivacyBudget:
    """A part of (ε, δ), to be spent on releases over n records.

    Attributes:
        n: number of records.
        pure: whether δ is 0, so that the noise is Laplace noise.
        whole: ε if `pure`, otherwise μ.
        slack: slack for the certificates of random batches; 0 where there are none.
    """

    n: int
    pure: bool
    whole: float
    slack: float = 0.0

    @classmethod
    def of(cls, target: PrivacyTarget, n: int, *, batches: bool = False) -> "PrivacyBudget":
        """The whole of a target.

        Args:
            target: (ε, δ) as requested.
            n: number of records.
            batches: whether random batches with Gaussian noise are to be certified, which takes slack.
        """
        if target.delta == 0:
            return cls(n, True, target.epsilon)
        if batches:
            return cls.for_gaussian_batches(target, n)
        return cls(n, False, mu_for(target.epsilon, target.delta))

    @classmethod
    def for_gaussian_batches(cls, target: PrivacyTarget, n: int) -> "PrivacyBudget":
        """The whole of a target, with slack for certificates of random batches.

        Raises:
            ValueError: δ is 0.
        """
        return cls(n, False, *gaussian_budget(target))

    def part(self, share: float) -> "PrivacyBudget":
        """A share of ε, or of μ²."""
        return replace(self, whole=self.whole * (share if self.pure else sqrt(share)))

    def release(
        self,
        statistic: AnyStatistic,
        name: str,
        clip: float,
        *,
        share: float = 1.0,
        count: int = 1,
    ) -> NoisySum:
        """`count` sums over all records that together cost a share of this budget.

        Args:
            statistic: what is summed.
            name: the statistic's name in the plan.
            clip: bound on the length of one record's vector.
            share: share of ε, or of μ².
            count: how often the sum is released.

        Raises:
            ValueError: float64 cannot carry this privacy.
        """
        return noisy_sum(
            "laplace" if self.pure else "gaussian",
            n=self.n,
            size=statistic.size,
            clip=clip,
            loss=self.part(share / count).whole * ROUNDING_GUARD,
            count=count,
            statistic=name,
            diameter=statistic.diameter(clip),
        )

    def rate(self, given: float | None, scheme: Scheme) -> float:
        """The probability of a record to be in a batch; a fixed size of batches is a whole number of records.

        Args:
            given: the analyst's choice; by default batches of about `BATCH` records.
            scheme: how batches are drawn.

        Raises:
            ValueError: the rate is out of range.
        """
        rate = min(1.0, BATCH / self.n) if given is None else given
        if not LEAST_RATE <= rate <= 1:
            raise ValueError(f"rate must be between {LEAST_RATE:g} and 1")
        return rate if scheme == "poisson" else max(1, round(rate * self.n)) / self.n

    def batches(
        self,
        statistic: AnyStatistic,
        name: str,
        clip: float,
        *,
        scheme: Scheme,
        rate: float,
        count: int,
        share: float = 1.0,
    ) -> SubsampledSum:
        """`count` sums over random batches, with Gaussian noise, that together cost a share of this budget.

        Args:
            statistic: what is summed.
            name: the statistic's name in the plan.
            clip: bound on the length of one record's vector.
            scheme: how batches are drawn.
            rate: probability of a record to be in a batch.
            count: number of batches.
            share: share of μ²; the slack is spent on these batches in any case.

        Raises:
            ValueError: no noise in range is certified to cost so little.
        """
        from privest.privacy.subsampling import noise_for  # noqa: PLC0415 - heavy

        run = noise_for(scheme, rate, count, self.part(share).whole * ROUNDING_GUARD, self.slack)
        return subsampled_sum(run, statistic=name, n=self.n, size=statistic.size, clip=clip)


def covers(cost: Cost, target: PrivacyTarget) -> bool:
    """Whether a cost is within (ε, δ)."""
    mu = nextafter(sqrt(cost.mu_squared), inf)
    return cost.slack + gaussian_delta(target.epsilon, mu) <= target.delta


def cost_of_all(releases: Sequence[Release], target: PrivacyTarget) -> Cost:
    """The cost of all releases of a run.

    Full sums, and batches with Laplace noise, are added up one by one. Batches with Gaussian noise have one
    certificate together. Of streams the costliest counts, as a gate hands a record to one leaf of one stream.

    Raises:
        ValueError: the cost is more than (ε, δ), which only rounding can bring about.
    """
    cost, together, streams = Cost(), list[SubsampledSum](), [Cost()]
    for release in releases:
        if isinstance(release, SubsampledSum) and release.noise == "gaussian":
            together.append(release)
        elif isinstance(release, PrefixSums | PrefixProducts):
            streams.append(release.cost)
        else:
            cost += release.cost
    cost += max(streams, key=lambda stream: stream.mu_squared)
    if together:
        from privest.privacy.subsampling import cost_of  # noqa: PLC0415 - heavy

        cost += cost_of(together, gaussian_budget(target)[1])
    if target.delta == 0:
        spent = fsum(nextafter(r.epsilon * r.count, inf) for r in releases)
        affordable = nextafter(spent, inf) <= target.epsilon
    else:
        affordable = covers(cost, target)
    if not affordable:
        raise ValueError("this privacy cannot be certified in float64")
    return cost


class Certified(TypedDict):
    """What every plan says of its privacy: fields of a plan, by their names."""

    target: PrivacyTarget
    cost: Cost
    mechanism: str
    warnings: tuple[str, ...]


def certified(
    releases: Sequence[Release],
    statistics: Mapping[str, AnyStatistic],
    target: PrivacyTarget,
    n: int,
    warnings: Iterable[str] = (),
) -> Certified:
    """The end of every planner: the cost of a run, its noise in words, and a warning of a weak δ.

    Args:
        releases: all of the run.
        statistics: what they are sums of, by name, in the order in which they are told.
        target: (ε, δ) as requested.
        n: number of records.
        warnings: what else the analyst should know.

    Raises:
        ValueError: the cost is more than (ε, δ), or a release is of none of these statistics.
    """
    weak = "delta is at least 1/n: such a guarantee allows a whole record to be published"
    return {
        "target": target,
        "cost": cost_of_all(releases, target),
        "mechanism": describe_mechanism(releases, statistics),
        "warnings": (*warnings, *([weak] if target.delta * n >= 1.0 else [])),
    }


def describe_mechanism(releases: Sequence[Release], statistics: Mapping[str, AnyStatistic]) -> str:
    """The noise on every statistic of a run, in words for analysts.

    Args:
        releases: all of the run.
        statistics: what they are sums of, by name, in the order in which they are told.

    Raises:
        ValueError: a release is of none of these statistics.
    """
    if unknown := {release.statistic for release in releases} - statistics.keys():
        raise ValueError(f"the plan has no statistic called {', '.join(sorted(unknown))}")
    by_name = {name: [r for r in releases if r.statistic == name] for name in statistics}
    return "; ".join(
        _describe(found, statistics[name].description) for name, found in by_name.items() if found
    )


def _describe(releases: Sequence[Release], summed: str) -> str:
    """The noise on the releases of one statistic."""
    first = releases[0]
    scales = [r.scale / r.divisor for r in releases]
    kind = "Gaussian noise, σ" if first.noise == "gaussian" else "Laplace noise, scale"
    spread = ("" if len(releases) == 1 else f"{scales[0]:.4g} falling to ") + f"{scales[-1]:.4g}"
    count = sum(r.count for r in releases)
    batch = ""
    if isinstance(first, SubsampledSum):
        batch = f" of random batches of {first.divisor:.4g} records ({first.scheme})"
    elif isinstance(first, PrefixSums | PrefixProducts):
        batch = " of records that are seen once, for each answer that may see one"
    return f"{kind} = {spread} on {summed}{batch}, {count} step{'s' * (count != 1)}"
