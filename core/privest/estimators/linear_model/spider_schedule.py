"""Public constants of a descent that leaves saddle points (Liu and Talwar 2025, Theorem 3.17)."""

from dataclasses import dataclass, replace
from math import ceil, log, log1p, pi, sqrt

from privest.estimators.linear_model.losses.derivatives import Gradients, Hessians
from privest.estimators.linear_model.losses.smooth import SmoothLoss
from privest.estimators.linear_model.spider import GRADIENT, HESSIAN, Escape, SpiderSchedule
from privest.privacy.calibration import largest, mu_for
from privest.privacy.cost import PrivacyTarget
from privest.privacy.matrix_mechanism import PrefixSums, Stream, prefix_products, prefix_sums
from privest.privacy.statistic import AnyStatistic

_GRADIENT_SHARE = 1 / 8
"""Root mean square error of a gradient, over α; an escape is tried at four times that."""

_HESSIAN_SHARE = 1 / 4
"""Error of a Hessian, over √(ρα), half by sampling and half by noise."""

_DESCENT = 1 / 12
"""What an escape gains, over √(α³/ρ), with such errors: Ξ = √(α/ρ) along a curvature of −√(ρα) gains one
half, of which the change of curvature takes 1/6, the gradient's error 1/8 and the Hessian's 1/8."""

_COARSEST = 4.0
"""α over G at most: there a gradient is off by G/2, and with more it would tell nothing."""

_LONGEST = 4096
"""Leaves of a segment."""

_ESCAPES: tuple[Escape, ...] = ("released", "products")

_WITHIN = 1 - 1e-9
"""Factor on μ, so that the cost, rounded up, stays within it."""


@dataclass(frozen=True)
class Problem:
    """The public facts of a loss, and of the releases that ask about it.

    Attributes:
        loss: with G, M and ρ.
        rank: r of a record's Hessian, for its Frobenius norm; at most d.
        excess: B, of the mean loss at the start above its least value.
        n: number of records.
        target: privacy as requested, δ > 0.

    Raises:
        ValueError: there is nothing to plan by.
    """

    loss: SmoothLoss
    rank: int
    excess: float
    n: int
    target: PrivacyTarget

    def __post_init__(self) -> None:
        loss = self.loss
        if not all(
            bound > 0
            for bound in (loss.gradient_bound, loss.gradient_lipschitz, loss.hessian_lipschitz, self.excess)
        ):
            raise ValueError("bounds on gradients, Hessians, their change and the loss must be above 0")

    @property
    def mu(self) -> float:
        """The μ that all of the run may cost."""
        return mu_for(self.target.epsilon, self.target.delta)


@dataclass(frozen=True)
class SpiderPlan:
    """A run, before any row is read.

    Attributes:
        schedule: public constants.
        releases: the streams, each of which sees other records: of Hessians, then of gradients.
        statistics: what they are of.
        accuracy: α: some point of the run is expected to have |∇F| <= α and no curvature below −√(ρα).
        warnings: for the analyst.
    """

    schedule: SpiderSchedule
    releases: tuple[Stream, PrefixSums]
    statistics: dict[str, AnyStatistic]
    accuracy: float
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Sizes:
    """Sizes that follow from one α."""

    batch: int
    hessian_batch: int
    drift: float
    leaves: int


def _sizes(problem: Problem, alpha: float) -> _Sizes:
    """Batches by which gradients and Hessians are as exact as α asks.

    With b_t = ⌈b·M|x_t − x_{t−1}|/G⌉, at which no leaf is more sensitive than the first, the change of
    gradients in a segment adds Gκ/b to the sampling variance G²/b. The two and the noise share the error.
    Where sampling decides b, κ = G is best, and where the noise does, as much as the sampling leaves. The
    theorem has max(α√d/ε, (BGM)^⅓) and b_t up to κ|g|/α²; its n^−⅓ then has B^(2/9)M^(2/9)G^(5/9) +
    B^(4/9)M^(4/9)G^(1/9) for a factor, of which (BGM)^⅓, ours, is the geometric mean.
    """
    loss, mu, d = problem.loss, problem.mu, problem.loss.size
    steep, error = loss.gradient_bound, _GRADIENT_SHARE * alpha
    batch, drift, leaves = 1, steep, 1
    for _ in range(50):  # each grows with the others, the last like a logarithm
        sampled = 4 * steep**2 / error**2
        norm = log(leaves) / pi + 1.07  # about that of `column`, and as much on the noisiest row
        noisy = 2 * sqrt(2 * d) * steep * norm / (error * mu)
        found = ceil(max(sampled, noisy))
        drift = max(steep, found * error**2 / (2 * steep) - steep)
        if found == batch:
            break
        batch, leaves = found, min(_LONGEST, ceil(drift / error) + 1)
    error = _HESSIAN_SHARE * sqrt(loss.hessian_lipschitz * alpha) / 2
    sampled = 2 * loss.gradient_lipschitz**2 * log(2 * d) / error**2
    noisy = sqrt(2 * d) * 2 * loss.gradient_lipschitz * sqrt(problem.rank) / (error * mu)
    return _Sizes(batch, ceil(max(sampled, noisy)), drift, leaves)


def _needed(problem: Problem, alpha: float) -> float:
    """Records with which the guarantee holds at the latest: Lemma 3.15, in plain constants, no logarithms.

    While |g| > α/2 a step gains η|g|²/4, so these |g| add up to at most 8BM/α, in BM/(4(α/8)²) steps. Of
    escapes there are 12·B√ρ/α^1.5, each of which goes Ξ. A refresh takes b, and the rest b/G for each unit
    of |g|, rounded up at every step; a Hessian has a batch of its own.

    (The lemma's refreshes after every τ escapes come to bBMρ/α³ with the τ of the theorem, and to bB√ρ/α^1.5
    with τ = 1, the least that there is: more than the bBM/(κα) that it states, and than n^−⅓ allows. With a
    released Hessian there are none of them.)
    """
    loss, excess = problem.loss, problem.excess
    sizes = _sizes(problem, alpha)
    escapes = excess / (_DESCENT * sqrt(alpha**3 / loss.hessian_lipschitz))
    error = _GRADIENT_SHARE * alpha
    path = excess * loss.gradient_lipschitz / error + escapes * loss.gradient_lipschitz * sqrt(
        alpha / loss.hessian_lipschitz
    )
    steps = excess * loss.gradient_lipschitz / (4 * error**2) + escapes
    refreshes = 1 + path / sizes.drift
    return (
        sizes.batch * (refreshes + path / loss.gradient_bound) + steps + sizes.hessian_batch * (1 + escapes)
    )


def plan(problem: Problem, *, escape: Escape | None = None) -> SpiderPlan:
    """The run of least α that n records are sure to be enough for, as far as plain constants can say.

    Args:
        problem: public facts.
        escape: how escapes see the Hessian; by default as its certificate is the better.

    Raises:
        ValueError: not one batch fits; or float64 cannot carry this privacy.
    """
    loss = problem.loss
    coarsest = _COARSEST * loss.gradient_bound
    alpha = coarsest / largest(lambda finer: _needed(problem, coarsest / finer) <= problem.n, 1.0, 1e6)
    sizes = _sizes(problem, alpha)
    if sizes.batch + sizes.hessian_batch > problem.n:
        raise ValueError(_refusal(problem, coarsest))
    radius = sqrt(alpha / loss.hessian_lipschitz)
    gradients = prefix_sums(
        "square-root",
        statistic=GRADIENT,
        n=problem.n,
        size=loss.size,
        clip=loss.gradient_bound / sizes.batch,
        leaves=sizes.leaves,
        mu=problem.mu * _WITHIN,
    )
    steps = _escape_steps(problem, alpha, radius, gradients)
    refresh = max(1, ceil(alpha**1.5 / (loss.gradient_lipschitz * sqrt(loss.hessian_lipschitz))))
    if escape is None:
        noise = {e: _noise_of(problem, sizes, e, refresh * steps, radius) for e in _ESCAPES}
        escape = min(_ESCAPES, key=noise.__getitem__)
    schedule = SpiderSchedule(
        step_size=1 / loss.gradient_lipschitz,
        batch=sizes.batch,
        hessian_batch=sizes.hessian_batch,
        growth=sizes.batch * loss.gradient_lipschitz / loss.gradient_bound,
        hessian_growth=sizes.hessian_batch * loss.hessian_lipschitz / loss.gradient_lipschitz,
        drift=sizes.drift,
        leaves=sizes.leaves,
        calm=4 * _GRADIENT_SHARE * alpha,
        escape=escape,
        escape_steps=steps,
        escape_radius=radius,
        escapes=refresh if escape == "products" else sizes.leaves,
    )
    return SpiderPlan(
        schedule,
        (_hessians(problem, sizes, escape, refresh * steps), gradients),
        {GRADIENT: Gradients(loss), HESSIAN: Hessians(loss, problem.rank)},
        alpha,
        _warnings(problem, alpha),
    )


def _hessians(problem: Problem, sizes: _Sizes, escape: Escape, products: int) -> Stream:
    """The Hessian's stream: of one leaf a segment, or of products."""
    loss, mu = problem.loss, problem.mu * _WITHIN
    clip = loss.gradient_lipschitz * sqrt(problem.rank) / sizes.hessian_batch
    if escape == "products":
        return prefix_products(
            statistic=HESSIAN, n=problem.n, rows=loss.size, clip=clip, count=products, mu=mu
        )
    size = Hessians(loss, problem.rank).size
    return prefix_sums("square-root", statistic=HESSIAN, n=problem.n, size=size, clip=clip, leaves=1, mu=mu)


def _noise_of(problem: Problem, sizes: _Sizes, escape: Escape, products: int, radius: float) -> float:
    """Length of the noise on H(x − anchor) at a distance Ξ, by the certificate.

    A released matrix is off by √(2d)·σ in operator norm, where all that is multiplied sees the same error.
    """
    stream = _hessians(problem, sizes, escape, products)
    spread = 2.0 if isinstance(stream, PrefixSums) else 1.0
    return radius * sqrt(spread * problem.loss.size) * stream.deviation


def _escape_steps(problem: Problem, alpha: float, radius: float, gradients: PrefixSums) -> int:
    """Γ: in which the noise on one gradient, along a curvature of half of −√(ρα), grows to 2Ξ (Lemma 3.9)."""
    loss = problem.loss
    growth = log1p(sqrt(loss.hessian_lipschitz * alpha) / (2 * loss.gradient_lipschitz))
    first = gradients.scale / loss.gradient_lipschitz
    return max(1, ceil(log(max(2 * radius / first, 1.0)) / growth))


def _warnings(problem: Problem, alpha: float) -> tuple[str, ...]:
    loss = problem.loss
    useful = min(loss.gradient_bound, loss.gradient_lipschitz**2 / loss.hessian_lipschitz)
    if alpha < useful:
        return ()
    needed = ceil(_needed(problem, useful / 2))
    return (
        f"with {problem.n} records nothing is guaranteed: the bounds on gradients and Hessians alone give an "
        f"accuracy of {alpha:.2g} everywhere; {needed} records would give {useful / 2:.2g}",
    )


def _refusal(problem: Problem, alpha: float) -> str:
    """Not one batch fits: with which n it would, or with which ε."""

    def batches(epsilon: float) -> int:
        sizes = _sizes(replace(problem, target=replace(problem.target, epsilon=epsilon)), alpha)
        return sizes.batch + sizes.hessian_batch

    asked = problem.target.epsilon
    least = 1.05 / largest(lambda e: batches(1 / e) <= problem.n, min(1e-3, 1 / asked), 1 / asked)
    or_else = f", or epsilon {least:.2g}" if batches(least) <= problem.n else ""
    return f"not one batch fits into {problem.n} records: it takes {batches(asked)}{or_else}"
