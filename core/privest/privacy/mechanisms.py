"""The releases that a gate may make. Their noise and their cost are fixed before any row is read."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import asinh, exp, expm1, inf, log, log1p, nextafter, sinh, sqrt
from typing import Any, Literal

from privest.privacy import clipped_sums
from privest.privacy.accounting import Cost, mu_of_pure, repeated
from privest.privacy.clipped_sums import AnyStatistic, l1_diameter
from privest.privacy.laplace_accounting import (
    MOST_FAR,
    MOST_SIZE,
    InSpace,
    OnALine,
    cost_of_pure,
    mu_of_laplace,
)
from privest.privacy.matrix_mechanism import PrefixSums

Noise = Literal["gaussian", "laplace", "independent-laplace"]
"""`NoisySum` has their densities."""

Scheme = Literal["poisson", "fixed"]
"""`poisson` takes each record independently with one probability; `fixed` draws sets of one size."""


MOST_LAPLACE = 100_000
"""Most coordinates of a sum with Laplace noise, whose exact length takes half as many random words."""


class _Sum(ABC):
    """The variance of the noise, for sums over all records and over batches."""

    noise: Noise
    size: int
    scale: float

    def __post_init__(self) -> None:
        if self.noise != "gaussian" and self.size > MOST_LAPLACE:
            raise ValueError(f"delta = 0 is for sums of at most {MOST_LAPLACE} numbers")

    @property
    @abstractmethod
    def divisor(self) -> float:
        """The (expected) number of records in the sum, by which the gate divides it."""

    @property
    def variance(self) -> float:
        """Variance of the noise on the sum, in any one direction."""
        if self.noise == "gaussian":
            return self.scale**2
        return self.scale**2 * (self.size + 1 if self.noise == "laplace" else 2)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on the mean, in any one direction."""
        return sqrt(self.variance) / self.divisor


@dataclass(frozen=True)
class NoisySum(_Sum):
    """A sum of one vector per record, released `count` times with fresh noise.

    `gaussian` noise is independent and normal in each coordinate, with standard deviation `scale`.
    `laplace` noise has a density proportional to exp(−|z|/scale) on R^size: the Laplace mechanism for
    Euclidean sensitivity (Chaudhuri et al. 2011, Algorithm 1). Its law is invariant under rotations, as a
    tangent space has no preferred axes. Its error is √2 below that of independent Laplace noise that is
    calibrated to √size times the sensitivity.
    `independent-laplace` noise has that density in each coordinate by itself: the Laplace mechanism for the
    L1 sensitivity (Dwork et al. 2006). It is the smaller one where a record moves few of many numbers, as in
    a histogram. `diameter` and `sensitivity` are then L1 distances.

    The gate rounds the noise to the sum's grid, which is a post-processing of the unrounded noisy sum.

    Attributes:
        n: number of records.
        size: length of the summed vector.
        clip: bound on the length of one record's vector.
        diameter: bound on the distance between two records' vectors: Euclidean and at most 2·clip, or L1.
        scale: scale of the noise on the sum.
        spacing: spacing of the grid.
        statistic: name of the summed statistic in the plan.
    """

    noise: Noise
    n: int
    size: int
    clip: float
    diameter: float
    scale: float
    spacing: float
    statistic: str = "gradient"
    count: int = 1

    @property
    def divisor(self) -> float:
        """Number of records."""
        return self.n

    @property
    def sensitivity(self) -> float:
        """Sensitivity of the sum on the grid to one replaced record, in the norm that the noise is for."""
        return _sensitivity(self.noise)(self.diameter, self.clip, self.size, self.spacing)

    @property
    def doubt(self) -> float:
        """Standard deviation, at most, of a number of the noisy mean about the exact mean of all records."""
        return self.deviation

    @property
    def epsilon(self) -> float:
        """The pure ε of one release; infinite for Gaussian noise."""
        return inf if self.noise == "gaussian" else nextafter(self.sensitivity / self.scale, inf)

    @property
    def cost(self) -> Cost:
        """The cost of all `count` releases, rounded up."""
        if self.noise == "independent-laplace":
            return repeated(mu_of_pure(self.epsilon), self.count)
        if self.noise == "laplace":
            epsilon, size, mu = self.epsilon, self.size, mu_of_laplace(self.epsilon, self.size)
            if self.count == 1 or size > MOST_SIZE:
                return repeated(mu, self.count)
            law = OnALine(epsilon, epsilon / 2) if size == 1 else InSpace(epsilon, size)
            return cost_of_pure(law, mu, self.count)
        return repeated(nextafter(self.sensitivity / self.scale, inf), self.count)


@dataclass(frozen=True, kw_only=True)
class AlternativeSum(NoisySum):
    """A noisy sum of one of several runs, of which the gate makes one: released answers decide which.

    An analyst may choose a question by the answers to others, so these runs cost together what the costliest
    of them does. Their sums are over all records, without batches.

    Attributes:
        run: number of the run that it belongs to.
    """

    run: int

    @classmethod
    def of(cls, release: NoisySum, run: int, statistic: str) -> "AlternativeSum":
        """A noisy sum as one of this run, of the statistic that has this name in the plan."""
        # Stored plans have the number itself: of an enumeration they would lose it.
        given: dict[str, Any] = {**vars(release), "statistic": statistic, "run": int(run)}
        return cls(**given)


@dataclass(frozen=True, kw_only=True)
class SampledSum(NoisySum):
    """A noisy sum over a sample of the records, at the cost of one over all of them: it saves time.

    The gate draws the sample without looking at a row, so that it has the same law in both worlds. Whichever
    it is, one replaced record moves the sum by no more than `sensitivity`, or by nothing. A mixture of pairs
    that a Gaussian mechanism dominates is dominated by it, too. That nobody sees the sample is not counted.

    Attributes:
        sample: number of records in it.
    """

    sample: int

    @classmethod
    def of(cls, release: NoisySum, sample: int) -> "SampledSum":
        """A noisy sum over all records as one over a sample, with the same noise on the sum."""
        given: dict[str, Any] = {**vars(release), "sample": sample}
        return cls(**given)

    @property
    def divisor(self) -> float:
        """Number of records in the sample."""
        return self.sample

    @property
    def doubt(self) -> float:
        """That of the noise and of sampling, over all numbers in root mean square.

        Vectors no further apart than the diameter have a variance of at most a quarter of its square.
        """
        return sqrt(self.deviation**2 + self.diameter**2 / (4 * self.size * self.sample))

    @property
    def rate(self) -> float:
        """The sample's share of the records."""
        return self.sample / self.n

    @property
    def scheme(self) -> Scheme:
        """All samples of this size are equally likely."""
        return "fixed"


@dataclass(frozen=True)
class SubsampledRun:
    """`steps` noisy sums, each over a fresh random batch, all with the same noise.

    Several of these describe a run in which the noise changes.

    Attributes:
        rate: probability of a record to be in a batch, or batch size over number of records.
        noise: scale of the noise, divided by the bound on one record's vector.
        apart: bound on the distance between two records' vectors, divided by that on one; from 1 to 2.
    """

    scheme: Scheme
    rate: float
    noise: float
    steps: int
    apart: float = 2.0


@dataclass(frozen=True)
class SubsampledSum(_Sum):
    """`count` sums, each over a fresh random batch that nobody sees; other fields are as in `NoisySum`.

    With Gaussian noise one certificate covers the whole run (`subsampling.certify`). With Laplace noise
    every sum has its own pure ε, for vectors that may be opposite.

    Attributes:
        rate: probability of a record to be in a batch, or batch size over n.
        apart: see `SubsampledRun`.
    """

    statistic: str
    n: int
    size: int
    clip: float
    scale: float
    spacing: float
    scheme: Scheme
    rate: float
    count: int
    noise: Noise = "gaussian"
    apart: float = 2.0

    @property
    def divisor(self) -> float:
        """Expected size of a batch. The actual size of a Poisson batch stays secret."""
        return self.rate * self.n

    @property
    def sensitivity(self) -> float:
        """Bound C on how far one added record moves a batch's sum.

        A replaced one moves it by `apart`·C at most, as rounding adds no more to that than to C.
        """
        return clipped_sums.batch_sensitivity(self.clip, self.size, self.spacing, self.n)

    @property
    def epsilon(self) -> float:
        """The pure ε of one sum, amplified by sampling; infinite for Gaussian noise."""
        if self.noise == "gaussian":
            return inf
        return amplified(nextafter(2 * self.sensitivity / self.scale, inf), self.rate, self.scheme)

    @property
    def cost(self) -> Cost:
        """The cost of all `count` sums with Laplace noise, rounded up.

        Raises:
            ValueError: the noise is Gaussian, so that only the whole run has a cost.
        """
        if self.noise == "gaussian":
            raise ValueError("batches with Gaussian noise are certified as a whole run")
        mu, far = mu_of_pure(self.epsilon), nextafter(self.sensitivity / self.scale, inf)
        if far > MOST_FAR:
            return repeated(mu, self.count)
        return cost_of_pure(OnALine(self.epsilon, far, self.rate, self.scheme == "fixed"), mu, self.count)


Release = NoisySum | AlternativeSum | SampledSum | SubsampledSum | PrefixSums


def parted(releases: Iterable[Release]) -> tuple[list[Release], list[list[AlternativeSum]]]:
    """The releases that every run of a plan makes, and those of each alternative, one of which it makes."""
    shared, alternatives = list[Release](), dict[int, list[AlternativeSum]]()
    for release in releases:
        if isinstance(release, AlternativeSum):
            alternatives.setdefault(release.run, []).append(release)
        else:
            shared.append(release)
    return shared, list(alternatives.values())


def amplified(epsilon: float, rate: float, scheme: Scheme) -> float:
    """The ε, for all n records, of a Laplace-noisy sum over a random batch, rounded up.

    `fixed`: log(1 + q(e^ε − 1)), for any sums within reach of ε (Balle et al. 2018, Theorem 9; Kuru et al.
    2022, (11)). `poisson`: log((1 − q + q·e^(ε/2))/(1 − q + q·e^(−ε/2))). With a record or without it the sum
    is half as far apart as with either of two, so both densities lie within e^(±ε/2) of the one without.

    Args:
        epsilon: the ε of a sum over a batch that holds the replaced record, 2C over the noise's scale.
        rate: q.
        scheme: how batches are drawn.
    """
    if scheme == "fixed":
        if epsilon > 700.0:  # the exponential would leave float64; the 1 − q left out is below rounding
            return (epsilon + log(rate) + 1e-12) * (1 + 1e-12)
        return log1p(rate * expm1(epsilon)) * (1 + 1e-12)
    half = epsilon / 2
    if half > 700.0:
        return min(epsilon, half + log(rate) - log1p(-rate) + 1e-12 if rate < 1.0 else inf) * (1 + 1e-12)
    # The logarithm of 1 − q + q·e^−half, by whichever form does not cancel.
    least = log1p(rate * expm1(-half)) if half < 1.0 else log(1 - rate + rate * exp(-half))
    return (log1p(rate * expm1(half)) - least) * (1 + 1e-12)


def unamplified(epsilon: float, rate: float, scheme: Scheme) -> float:
    """The inverse of `amplified`, rounded down: the ε that a sum may have for the records of its batch."""
    if scheme == "fixed":
        if epsilon > 600.0:
            return (epsilon - log(rate)) * (1 - 1e-11)
        return log1p(expm1(epsilon) / rate) * (1 - 1e-11)
    if epsilon > 600.0:
        return max(epsilon, 2 * (epsilon + log1p(-rate) - log(rate)) if rate < 1.0 else 0.0) * (1 - 1e-11)
    return (epsilon + 2 * asinh((1 - rate) / rate * sinh(epsilon / 2))) * (1 - 1e-11)


def _largest_noise(release: NoisySum | SubsampledSum) -> float:
    """Bound on every coordinate of the noise, except with negligible probability."""
    if release.noise == "independent-laplace":
        return (64.0 + log(release.size)) * release.scale
    return (40.0 if release.noise == "gaussian" else 2.0 * release.size + 64.0) * release.scale


def _sensitivity(noise: Noise) -> Callable[[float, float, int, float], float]:
    return clipped_sums.l1_sensitivity if noise == "independent-laplace" else clipped_sums.sensitivity


def subsampled_sum(
    run: SubsampledRun, *, statistic: str, n: int, size: int, clip: float, law: Noise = "gaussian"
) -> SubsampledSum:
    """The sums over random batches of a certified run, with noise of the kind `law`.

    `SubsampledSum` describes the other arguments.

    Raises:
        ValueError: the noise is so large or so small that float64 sums cannot carry it.
    """

    def release(spacing: float) -> SubsampledSum:
        scale = run.noise * clipped_sums.batch_sensitivity(clip, size, spacing, n) * (1 + 1e-12)
        clipped_sums.check_range(clip, scale)
        batches = (run.scheme, run.rate, run.steps)
        return SubsampledSum(statistic, n, size, clip, scale, spacing, *batches, law, run.apart)

    return clipped_sums.fitted(release, _largest_noise)


def noisy_sum(
    noise: Noise,
    *,
    n: int,
    size: int,
    clip: float,
    loss: float,
    count: int = 1,
    statistic: str = "gradient",
    diameter: float | None = None,
) -> NoisySum:
    """The sums of least noise that each have μ (`gaussian`) or ε (the others) of at most `loss` > 0.

    `NoisySum` describes the other arguments. By default `diameter` is 2·clip.

    Raises:
        ValueError: the loss is so large or so small that float64 sums cannot carry it.
    """
    widest = 2 * clip if diameter is None else diameter

    def release(spacing: float) -> NoisySum:
        moved = _sensitivity(noise)(widest, clip, size, spacing)
        scale = moved / loss * (1 + 1e-12) if loss > 0.0 else inf
        clipped_sums.check_range(clip, scale)
        return NoisySum(noise, n, size, clip, widest, scale, spacing, statistic, count)

    return clipped_sums.fitted(release, _largest_noise)


def apart(statistic: AnyStatistic, clip: float) -> float:
    """The distance between two records' vectors over the length of one, as `SubsampledRun` takes it."""
    return min(max(statistic.diameter(clip) / clip, 1.0) * (1 + 1e-12), 2.0)


def is_for(release: Release, statistics: Mapping[str, AnyStatistic]) -> bool:
    """Whether a release was planned for the statistic of its name."""
    statistic = statistics[release.statistic]
    if release.size != statistic.size:
        return False
    if isinstance(release, SubsampledSum):
        return apart(statistic, release.clip) <= release.apart
    if not isinstance(release, NoisySum):
        return True
    if release.noise == "independent-laplace":
        return l1_diameter(statistic, release.clip) <= release.diameter
    return statistic.diameter(release.clip) <= release.diameter
