"""What (ε, δ) buys: the μ and slack of a run, and batches whose noise the certificate of a run decides."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum, inf, nextafter, sqrt

from privest.privacy.calibration import gaussian_delta, mu_for
from privest.privacy.cost import Cost, PrivacyTarget
from privest.privacy.matrix_mechanism import PrefixProducts, PrefixSums
from privest.privacy.mechanisms import NoisySum, Release, Scheme, SubsampledSum, noisy_sum, subsampled_sum
from privest.privacy.statistic import Statistic

LEAST_RATE = 1e-12
"""Probability of a record to be in a batch, below which batches of any dataset would be empty."""

_SLACK_SHARE = 200
"""One part in this many of δ pays for the slack of a sampled run's certificate."""

ROUNDING_GUARD = 1 - 1e-12
"""Of a loss to be divided, so that rounding up the parts stays within it."""


def gaussian_budget(target: PrivacyTarget) -> tuple[float, float]:
    """μ and slack of a run that is certified with slack, both within (ε, δ).

    Raises:
        ValueError: δ is 0.
    """
    if target.delta == 0:
        raise ValueError("with delta = 0 random batches have no certificate; take full gradients")
    slack = target.delta / _SLACK_SHARE
    return mu_for(target.epsilon, target.delta - slack), slack


@dataclass(frozen=True)
class PrivacyBudget:
    """A part of (ε, δ), to be spent on releases over n records.

    Attributes:
        n: number of records.
        pure: whether δ is 0, and noise Laplace's.
        whole: ε, or else μ.
        slack: of certificates of batches, if there are to be any.
    """

    n: int
    pure: bool
    whole: float
    slack: float = 0.0

    @classmethod
    def of(cls, target: PrivacyTarget, n: int, *, batches: bool = False) -> "PrivacyBudget":
        """All of it."""
        if target.delta == 0:
            return cls(n, True, target.epsilon)
        if batches:
            return cls(n, False, *gaussian_budget(target))
        return cls(n, False, mu_for(target.epsilon, target.delta))

    def part(self, share: float) -> "PrivacyBudget":
        """A share of ε, or of μ²."""
        return replace(self, whole=self.whole * (share if self.pure else sqrt(share)))

    def release(
        self,
        statistic: Statistic,
        name: str,
        clip: float,
        *,
        share: float = 1.0,
        count: int = 1,
    ) -> NoisySum:
        """`count` sums over all records that cost this share together.

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


def covers(cost: Cost, target: PrivacyTarget) -> bool:
    """Whether a cost is within (ε, δ)."""
    mu = nextafter(sqrt(cost.mu_squared), inf)
    return cost.slack + gaussian_delta(target.epsilon, mu) <= target.delta


def batches(
    n: int,
    size: int,
    statistic: str,
    clip: float,
    rate: float,
    scheme: Scheme,
    count: int,
    mu: float,
    slack: float,
) -> SubsampledSum:
    """Sums over batches with the noise that the certificate of `count` of them asks for.

    Raises:
        ValueError: there is none in range.
    """
    from privest.privacy.subsampling import noise_for  # noqa: PLC0415 - heavy, and for stochastic solvers alone

    found = noise_for(scheme, rate, count, mu, slack)
    return subsampled_sum(
        scheme, statistic=statistic, n=n, size=size, clip=clip, rate=rate, count=count, noise=found.noise
    )


def cost_of_batches(blocks: tuple[SubsampledSum, ...], slack: float) -> Cost:
    """The certificate of all batches of a run together."""
    from privest.privacy.subsampling import cost_of  # noqa: PLC0415 - as above

    return cost_of(blocks, slack)


def cost_of_all(releases: Sequence[Release], target: PrivacyTarget) -> Cost:
    """The cost of full sums, of batches with Laplace noise one by one, and of all others in one certificate.

    Of streams the costliest counts: a gate hands a record to one leaf of one stream.

    Raises:
        ValueError: it is more than (ε, δ), which only rounding can bring about.
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
        cost += cost_of_batches(tuple(together), gaussian_budget(target)[1])
    if target.delta == 0:
        spent = fsum(nextafter(r.epsilon * r.count, inf) for r in releases)
        affordable = nextafter(spent, inf) <= target.epsilon
    else:
        affordable = covers(cost, target)
    if not affordable:
        raise ValueError("this privacy cannot be certified in float64")
    return cost


def weak_delta(target: PrivacyTarget, n: int) -> list[str]:
    """The warning that a δ deserves, or none."""
    if target.delta * n < 1.0:
        return []
    return ["delta is at least 1/n: such a guarantee allows a whole record to be published"]


_IN_WORDS = {
    "spread": "mean and spread of features",
    "moments": "class means and second moment",
    "location": "the mean pull on the centre",
    "moment": "the second moment",
    "hollow": "the second moment without its diagonal",
    "sketch": "the sketch",
    "tilt": "the candidates' gradients",
    "objective": "the candidates' losses",
    "gradient": "the mean gradient",
    "hessian": "the mean Hessian",
    "change": "the mean change of gradients",
    "explained": "the second moment in the subspace",
    "right": "the share of right answers",
    "histogram": "shares of scores by class and bin",
}
"""Every statistic of every estimator."""


def in_words(releases: Sequence[Release]) -> str:
    """A mechanism for people: the noise on every statistic."""
    parts: list[str] = []
    for statistic, name in _IN_WORDS.items():
        found = [r for r in releases if r.statistic == statistic]
        if not found:
            continue
        scales = [r.scale / r.divisor for r in found]
        kind = "Gaussian noise, σ" if found[0].noise == "gaussian" else "Laplace noise, scale"
        spread = ("" if len(found) == 1 else f"{scales[0]:.4g} falling to ") + f"{scales[-1]:.4g}"
        count = sum(r.count for r in found)
        batch = ""
        if isinstance(found[0], SubsampledSum):
            batch = f" of random batches of {found[0].divisor:.4g} records ({found[0].scheme})"
        elif isinstance(found[0], PrefixSums | PrefixProducts):
            batch = " of records that are seen once, for each answer that may see one"
        parts.append(f"{kind} = {spread} on {name}{batch}, {count} step{'s' * (count != 1)}")
    return "; ".join(parts)
