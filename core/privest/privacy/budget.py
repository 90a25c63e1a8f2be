"""`PrivacyBudget`, which turns a share of (ε, δ) into a release, and the total cost of a run's releases."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, fsum, inf, nextafter, sqrt
from typing import TypedDict

from privest.data.records import CHUNK
from privest.privacy.accounting import Cost, PrivacyTarget, epsilon_within, gaussian_delta, mu_for
from privest.privacy.clipped_sums import AnyStatistic, l1_diameter
from privest.privacy.matrix_mechanism import PrefixSums
from privest.privacy.mechanisms import (
    Noise,
    NoisySum,
    Release,
    SampledSum,
    Scheme,
    SubsampledSum,
    apart,
    noisy_sum,
    parted,
    subsampled_sum,
)

LEAST_RATE = 1e-12
"""Least accepted probability of a record to be in a batch. With less, batches would always be empty."""

BATCH = 256
"""Expected size of a batch if the analyst gives no rate."""

_SAMPLE, _OF_SAMPLE, _WORTH = 8 * CHUNK, 0.004, 8
"""A sample has so many records or more, may cost at most this share of μ², and saves time where all records
are so many times as many."""

_SLACK_SHARES = (1 / 200, 1 / 60, 1 / 20, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 0.9)
"""Shares of δ that a run with random batches may give to the slack of its certificate. That of which the
least noise follows is taken. The first may always be used."""

Budgets = tuple[tuple[float, float], ...]
"""Any of these μ, each with its slack."""

ROUNDING_GUARD = 1 - 1e-12
"""Factor on every part of a budget, so that the costs of all parts, rounded up, stay within the whole."""


def gaussian_budgets(target: PrivacyTarget) -> Budgets:
    """What a run with random batches may cost to stay (ε, δ)-private: any of these μ with its slack.

    The first has the least slack. Of a budget that counts slack, a run may use as much of it as it uses
    of μ², so that neither runs out before the other.

    Raises:
        ValueError: δ is 0.
    """
    epsilon, delta, rate = target.epsilon, target.delta, target.slack_per_mu_squared
    if delta == 0:
        raise ValueError("random batches need a delta above 0; take full gradients")
    most = _SLACK_SHARES[-1] * delta if rate is None else rate * mu_for(epsilon, delta) ** 2
    shares = [share for share in _SLACK_SHARES if share * delta <= most]
    slacks = [delta * share for share in shares or _SLACK_SHARES[:1]]
    return tuple((mu_for(epsilon, delta - slack), slack) for slack in slacks)


def least_slack(delta: float) -> float:
    """Return the least slack that a run with random batches may use at this δ."""
    return delta * _SLACK_SHARES[0]


def left_of(budgets: Budgets, mu_squared: float) -> Budgets:
    """What of each of the budgets is left beside releases without slack that cost this μ²."""
    left = ((mu * mu * ROUNDING_GUARD - mu_squared, slack) for mu, slack in budgets)
    return tuple((sqrt(rest) * ROUNDING_GUARD, slack) for rest, slack in left if rest > 0.0)


@dataclass(frozen=True)
class PrivacyBudget:
    """A part of (ε, δ), to be spent on releases over n records.

    Attributes:
        pure: whether δ is 0, so that the noise is Laplace noise.
        whole: ε if `pure`, otherwise μ.
        budgets: what the run that this is a part of may cost, if it may draw random batches.
    """

    n: int
    pure: bool
    whole: float
    budgets: Budgets = ()

    @classmethod
    def of(cls, target: PrivacyTarget, n: int, *, batches: bool = False) -> "PrivacyBudget":
        """The whole of a target; `batches` tells whether a run may draw random batches, which takes slack."""
        if target.delta == 0:
            return cls(n, True, target.epsilon)
        if batches:
            return cls.for_gaussian_batches(target, n)
        return cls(n, False, mu_for(target.epsilon, target.delta))

    @classmethod
    def for_gaussian_batches(cls, target: PrivacyTarget, n: int) -> "PrivacyBudget":
        """The whole of a target, with slack for the certificate of random batches."""
        budgets = gaussian_budgets(target)
        return cls(n, False, budgets[0][0], budgets)

    def part(self, share: float) -> "PrivacyBudget":
        """A share in [0, 1] of this budget: of its ε if it is pure, otherwise of its μ²."""
        return PrivacyBudget(
            self.n, self.pure, self.whole * (share if self.pure else sqrt(share)), self.budgets
        )

    def release(
        self,
        statistic: AnyStatistic,
        name: str,
        clip: float,
        *,
        share: float = 1.0,
        count: int = 1,
    ) -> NoisySum:
        """`count` sums over all records that together cost a share of this budget, with the least noise.

        Args:
            statistic: the summed statistic.
            name: the statistic's name in the plan.
            clip: bound on the length of one record's vector.
            share: share in (0, 1] of ε if the budget is pure, otherwise of μ².
            count: how often the sum is released.
        """

        def noisy(noise: Noise, diameter: float) -> NoisySum:
            return noisy_sum(
                noise,
                n=self.n,
                size=statistic.size,
                clip=clip,
                loss=self.part(share / count).whole * ROUNDING_GUARD,
                count=count,
                statistic=name,
                diameter=diameter,
            )

        if not self.pure:
            return noisy("gaussian", statistic.diameter(clip))
        by_length = noisy("laplace", statistic.diameter(clip))
        by_coordinate = noisy("independent-laplace", l1_diameter(statistic, clip))
        return by_coordinate if by_coordinate.deviation < by_length.deviation else by_length

    def sample(self, share: float) -> int | None:
        """How many records a release may look at, in whole chunks; None where it is all of them.

        It keeps the noise that it has on a mean over all records, which costs more on one over a sample.

        Args:
            share: of μ², at whose cost the noise on a mean over all records is what suffices.
        """
        if self.pure:
            return None
        sample = max(_SAMPLE, CHUNK * ceil(self.n * sqrt(share / _OF_SAMPLE) / CHUNK))
        return sample if sample * _WORTH <= self.n else None

    def for_batches(self, share: float = 1.0) -> Budgets:
        """What all random batches of a run may cost together, which have this share of the budget's μ²."""
        return left_of(self.budgets, self.budgets[0][0] ** 2 - self.part(share).whole ** 2)

    def rate(self, given: float | None, scheme: Scheme) -> float:
        """The probability of a record to be in a batch. Batches of fixed size have a whole number of records.

        Args:
            given: the analyst's choice. By default batches have about `BATCH` records.
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

        `release` describes the other arguments. The batches use all the slack, whatever the share of μ².

        Args:
            scheme: how batches are drawn.
            rate: probability of a record to be in a batch, as `rate` returns it.
        """
        from privest.privacy.subsampling import noise_for  # noqa: PLC0415 - heavy

        run = noise_for(scheme, rate, count, self.for_batches(share), apart(statistic, clip))
        return subsampled_sum(run, statistic=name, n=self.n, size=statistic.size, clip=clip)


def part_of(target: PrivacyTarget, share: float) -> PrivacyTarget:
    """The (ε, δ) of a question that takes a share of a target: of its ε if δ is 0, otherwise of its μ².

    Raises:
        ValueError: so small a share buys nothing.
    """
    if target.delta == 0:
        return PrivacyTarget(target.epsilon * share, 0.0)
    mu = mu_for(target.epsilon, target.delta) * sqrt(share)
    return PrivacyTarget(epsilon_within(mu, target.delta), target.delta)


def covers(cost: Cost, target: PrivacyTarget) -> bool:
    """Whether a run of this cost is (ε, δ)-private for the target."""
    mu = nextafter(sqrt(cost.mu_squared), inf)
    return cost.slack + gaussian_delta(target.epsilon, mu) <= target.delta


def cost_of_all(releases: Sequence[Release], target: PrivacyTarget) -> Cost:
    """The cost of all releases of a run.

    Raises:
        ValueError: the cost exceeds (ε, δ), which only rounding can cause.
    """
    cost = _cost_within(releases, target)
    if target.delta == 0:
        shared, alternatives = parted(releases)
        spent = max(_epsilon([*shared, *each]) for each in alternatives or [[]])
        affordable = nextafter(spent, inf) <= target.epsilon
    else:
        affordable = covers(cost, target)
    if not affordable:
        raise ValueError("this privacy cannot be certified in float64")
    return cost


def _epsilon(releases: Iterable[Release]) -> float:
    """The pure ε of releases together, but for the rounding of one sum."""
    return fsum(nextafter(r.epsilon * r.count, inf) for r in releases)


def _cost_within(releases: Sequence[Release], target: PrivacyTarget) -> Cost:
    """The cost of a run, with the slack of its batches by which it is (ε, δ)-private."""
    cost, batches = _apart([releases])
    if batches:
        from privest.privacy.subsampling import certify, choice, runs_of  # noqa: PLC0415 - heavy

        runs, budgets = runs_of(batches), gaussian_budgets(target)
        cost += choice(runs, left_of(budgets, cost.mu_squared)) or certify(runs, budgets[0][1])
    return cost


def cost_of_runs(runs: Sequence[Sequence[Release]], slack: float) -> Cost:
    """The cost of all releases of one run or of several, without a promise that it covers.

    The costs of full sums, and of batches with Laplace noise, are added. One certificate covers all batches
    with Gaussian noise. Of a run only the costliest stream counts, as a record enters one leaf of one stream,
    and of alternatives the costliest.

    Args:
        runs: the releases of each.
        slack: of that certificate.
    """
    cost, batches = _apart(runs)
    if batches:
        from privest.privacy.subsampling import certify, runs_of  # noqa: PLC0415 - heavy

        cost += certify(runs_of(batches), slack)
    return cost


def _apart(runs: Sequence[Sequence[Release]]) -> tuple[Cost, list[SubsampledSum]]:
    """The cost of all releases but batches with Gaussian noise, and these."""
    cost, batches = Cost(), list[SubsampledSum]()
    for releases in runs:
        streams = [Cost()]
        shared, alternatives = parted(releases)
        costs = (sum((release.cost for release in each), Cost()) for each in alternatives)
        cost += max(costs, key=lambda each: each.mu_squared, default=Cost())
        for release in shared:
            if isinstance(release, SubsampledSum) and release.noise == "gaussian":
                batches.append(release)
            elif isinstance(release, PrefixSums):
                streams.append(release.cost)
            else:
                cost += release.cost
        cost += max(streams, key=lambda stream: stream.mu_squared)
    return cost, batches


class Certified(TypedDict):
    """The fields about privacy that every plan has."""

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
    """The fields about privacy of a plan. Every planner ends with this call.

    Args:
        releases: all releases of the run.
        statistics: the summed statistics by name, in the order in which the plan describes them.
        target: (ε, δ) as requested.
        n: number of records.
        warnings: warnings for the analyst. One is added if δ is at least 1/n.
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

    Raises:
        ValueError: a release has a statistic that is missing from `statistics`.
    """
    if unknown := {release.statistic for release in releases} - statistics.keys():
        raise ValueError(f"the plan has no statistic called {', '.join(sorted(unknown))}")
    by_name = {name: [r for r in releases if r.statistic == name] for name in statistics}
    return "; ".join(
        _describe(found, statistics[name].description) for name, found in by_name.items() if found
    )


_KINDS: Mapping[Noise, str] = {
    "gaussian": "Gaussian noise, σ",
    "laplace": "Laplace noise, scale",
    "independent-laplace": "independent Laplace noise, scale",
}


def _describe(releases: Sequence[Release], summed: str) -> str:
    """The noise on the releases of one statistic."""
    first = releases[0]
    scales = [r.scale / r.divisor for r in releases]
    kind = _KINDS[first.noise]
    spread = ("" if len(releases) == 1 else f"{scales[0]:.4g} falling to ") + f"{scales[-1]:.4g}"
    count = sum(r.count for r in releases)
    batch = ""
    if isinstance(first, SubsampledSum):
        batch = f" of random batches of {first.divisor:.4g} records ({first.scheme})"
    elif isinstance(first, SampledSum):
        batch = f" (at first of samples of {first.sample} records)"
    elif isinstance(first, PrefixSums):
        batch = " of records that are seen once, for each answer that may see one"
    return f"{kind} = {spread} on {summed}{batch}, {count} step{'s' * (count != 1)}"
