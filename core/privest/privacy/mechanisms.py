"""What a gate may release, each with its noise fixed before any data is read, and what that costs."""

from dataclasses import dataclass
from math import expm1, inf, log, log1p, log2, nextafter, sqrt
from typing import Literal

from privest.privacy import grid
from privest.privacy.calibration import mu_of_pure
from privest.privacy.cost import Cost
from privest.privacy.matrix_mechanism import Stream

Noise = Literal["gaussian", "laplace"]

Scheme = Literal["poisson", "fixed"]
"""Every record by itself with the same probability, or batches of one size without replacement."""


@dataclass(frozen=True)
class NoisySum:
    """A sum over n records of vectors of length at most `clip`, released `count` times with additive noise.

    No two vectors are further apart than `diameter`: 2·clip, unless their statistic is known to do better.

    `gaussian`: independent normal noise of standard deviation `scale` in each of `size` coordinates.
    `laplace`: density proportional to exp(−|z|/scale) on R^size, the Laplace mechanism for Euclidean
    sensitivity (Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 1). Like the Gaussian it has no
    preferred axes, which a tangent space does not have either, and its error is √2 below that of
    independent Laplace noise calibrated to √size times the sensitivity.

    Both are added to integers on a grid and rounded to it, a post-processing of the unrounded sum.
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
        """Euclidean sensitivity of the integer sum, to one replaced record."""
        return grid.sensitivity(self.diameter, self.clip, self.size, self.spacing)

    @property
    def epsilon(self) -> float:
        """The pure ε of one release: infinite for Gaussian noise."""
        return nextafter(self.sensitivity / self.scale, inf) if self.noise == "laplace" else inf

    @property
    def cost(self) -> Cost:
        """The certificate of all `count` releases, rounded up."""
        if self.noise == "laplace":
            return _pure_cost(self.epsilon, self.count)
        return _cost(nextafter(self.sensitivity / self.scale, inf), self.count)

    @property
    def variance(self) -> float:
        """Variance of the noise on the sum, in any one direction."""
        return self.scale**2 * (self.size + 1 if self.noise == "laplace" else 1)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on the mean, in any one direction."""
        return sqrt(self.variance) / self.divisor


@dataclass(frozen=True)
class SubsampledRun:
    """`steps` noisy sums, each over a fresh random batch, all with the same noise.

    A run whose noise changes on the way is several of these.

    Attributes:
        scheme: how batches are drawn.
        rate: probability of a record, or batch size over number of records.
        noise: scale of the noise over the bound C on one record's vector.
        steps: number of sums.
    """

    scheme: Scheme
    rate: float
    noise: float
    steps: int


@dataclass(frozen=True)
class SubsampledSum:
    """`count` sums, each over a fresh random batch that nobody sees, with noise as in `NoisySum`.

    Vectors have length at most `clip`. With Gaussian noise the certificate is that of the whole run: see
    `sampling`. With Laplace noise, over batches of a fixed size, every sum has its own pure ε.

    Attributes:
        scheme: how batches are drawn.
        rate: probability of a record, or batch size over n.
        noise: kind of it.

    Raises:
        ValueError: Laplace noise over Poisson batches, of which nobody worked out an ε here.
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

    def __post_init__(self) -> None:
        if self.noise == "laplace" and self.scheme != "fixed":
            raise ValueError("Laplace noise is for batches of a fixed size")

    @property
    def divisor(self) -> float:
        """Expected size of a batch: public, whatever is drawn."""
        return self.rate * self.n

    @property
    def sensitivity(self) -> float:
        """The bound C on what one record adds to the integer sum of a batch; replaced, it moves it by 2C."""
        return grid.batch_sensitivity(self.clip, self.size, self.spacing, self.n)

    @property
    def epsilon(self) -> float:
        """The pure ε of one sum, amplified: infinite for Gaussian noise.

        Balle, Barthe and Gaboardi 2018, Theorem 9: two batches of one size that differ in one record, whether
        it was replaced or drawn in place of another, are 2C apart.
        """
        if self.noise == "gaussian":
            return inf
        return amplified(nextafter(2 * self.sensitivity / self.scale, inf), self.rate)

    @property
    def cost(self) -> Cost:
        """Cost of sums with Laplace noise, added up one by one, rounded up.

        Raises:
            ValueError: Gaussian noise, which has a certificate of the whole run instead.
        """
        if self.noise == "gaussian":
            raise ValueError("batches with Gaussian noise are certified as a whole run")
        return _pure_cost(self.epsilon, self.count)

    @property
    def variance(self) -> float:
        """Variance of the noise on the sum, in any one direction."""
        return self.scale**2 * (self.size + 1 if self.noise == "laplace" else 1)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on the mean, in any one direction."""
        return sqrt(self.variance) / self.divisor


Release = NoisySum | SubsampledSum | Stream


def amplified(epsilon: float, rate: float) -> float:
    """log(1 + q(e^ε − 1)), rounded up: the ε of an ε-private sum over batches of qn records.

    References:
        Kuru et al. (2022), (11); Balle, Barthe and Gaboardi (2018), Theorem 9.
    """
    if epsilon > 700.0:  # where the exponential leaves float64, and the 1 − q left out is below rounding
        return (epsilon + log(rate) + 1e-12) * (1 + 1e-12)
    return log1p(rate * expm1(epsilon)) * (1 + 1e-12)


def unamplified(epsilon: float, rate: float) -> float:
    """The ε of a sum over its batch by which all of it is ε-private, rounded down: `amplified`, inverted."""
    if epsilon > 600.0:
        return (epsilon - log(rate)) * (1 - 1e-11)
    return log1p(expm1(epsilon) / rate) * (1 - 1e-11)


def _cost(mu: float, count: int) -> Cost:
    """Cost of so many releases of this μ, rounded up."""
    return Cost(nextafter(count * nextafter(mu * mu, inf), inf))


def _pure_cost(epsilon: float, count: int) -> Cost:
    return _cost(mu_of_pure(epsilon), count)


def _reach(noise: Noise, size: int) -> float:
    """Scales that no coordinate of the noise exceeds but for a negligible probability."""
    return 16.0 if noise == "gaussian" else 2.0 * size + 64.0


def subsampled_sum(
    run: SubsampledRun, *, statistic: str, n: int, size: int, clip: float, law: Noise = "gaussian"
) -> SubsampledSum:
    """The sums over batches of a run that was certified.

    Args:
        run: how batches are drawn, how many, and their noise.
        statistic: which sum.
        n: number of records.
        size: length of the summed vector.
        clip: bound on one record's vector.
        law: kind of noise.

    Raises:
        ValueError: there is so little noise that float64 sums cannot carry it.
    """
    spacing = 0.0
    while True:
        scale = run.noise * grid.batch_sensitivity(clip, size, spacing, n) * (1 + 1e-12)
        needed = grid.spacing_for(scale, n * clip, _reach(law, size) * scale)
        if needed <= spacing:
            batches = (run.scheme, run.rate, run.steps)
            return SubsampledSum(statistic, n, size, clip, scale, spacing, *batches, law)
        if log2(needed / scale) > 0:
            raise ValueError("epsilon is too large for exact sums over this many records")
        spacing = needed


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
    """The sums of least noise that each have μ (`gaussian`) or ε (`laplace`) of at most `loss`.

    Args:
        noise: mechanism.
        n: number of records.
        size: length of the summed vector.
        clip: bound on one record's vector.
        loss: μ or ε to spend on each, positive.
        count: how often the sum is released.
        statistic: which sum.
        diameter: bound on the distance between two records' vectors, as their statistic states it; 2·clip
            for any.

    Raises:
        ValueError: the loss is so large or so small that float64 sums cannot carry it.
    """
    widest = 2 * clip if diameter is None else diameter
    spacing = 0.0
    while True:
        scale = grid.sensitivity(widest, clip, size, spacing) / loss * (1 + 1e-12) if loss > 0.0 else inf
        if not (1e-100 <= clip <= 1e100 and 1e-150 < scale < 1e150):
            raise ValueError("clip and privacy are too far apart for float64")
        needed = grid.spacing_for(scale, n * clip, _reach(noise, size) * scale)
        if needed <= spacing:
            return NoisySum(noise, n, size, clip, widest, scale, spacing, statistic, count)
        if log2(needed / scale) > 0:
            raise ValueError("epsilon is too large for exact sums over this many records")
        spacing = needed
