"""Public constants of a descent that leaves saddle points (Liu and Talwar 2025, Theorem 3.17).

*What is guaranteed.* Let no gradient of a run be off by more than e, and no Hessian by more than h, as is so
but for `FAILURE`. Until a point has |∇F| <= α and no curvature below −√(ρα), either

1. |g| > 4e, and the step −ηg, η = 1/M, gains η|g|²/2 − ηe|g| > η|g|²/4; or
2. |g| <= 4e, and so |∇F| <= 5e < α. Then some curvature is below −√(ρα), and is released as below h − √(ρα).
   The escape goes r along a unit u with −c = ⟨u, Hu⟩ <= h − √(ρα), as released, and not up g. It gains
   (c − h)r²/2 − er − ρr³/6 (`spider.escape`), at r = 2·`REACH`·c/ρ the more, over c³, the larger c is: at
   least `_DESCENT`·√(α³/ρ).

Gains add up to B at most: so many steps and escapes there are before such a point, and `_needed` counts the
records that they take. An escape that follows less curvature begins where there already was one.
"""

from dataclasses import dataclass, replace
from math import ceil, log, pi, sqrt

from privest.privacy.accounting import PrivacyTarget, largest, mu_for
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.matrix_mechanism import PrefixSums, prefix_sums
from privest_papers.nonconvex_losses import Gradients, Hessians, SmoothLoss

GRADIENT, HESSIAN, CURVATURE = "gradient", "hessian", "curvature"
"""The streams: of gradients, of Hessians for escapes, and of the one Hessian at the answer."""

REACH = 3 / 4
"""Share of `way_down` that an escape goes. The whole would gain most if its curvature were as released; with
the largest errors that a plan allows for, this share does, nearly."""

_SHARE = 1 / 8
"""Largest error of a gradient, e over α, and of a Hessian, h over √(ρα); each half by sampling and half by
noise. A Hessian is asked for where |g| <= 4e."""

FAILURE = 0.05
"""ω: probability that some error of a run is larger than planned, and that nothing is guaranteed."""

_STEEP = 1 - _SHARE
"""The least curvature, over −√(ρα), that a Hessian shows at a saddle point which is left for sure."""

_WAY = 2 * REACH * _STEEP
"""How far an escape goes there, over √(α/ρ)."""

_DESCENT = (_STEEP - _SHARE) * _WAY**2 / 2 - _SHARE * _WAY - _WAY**3 / 6
"""What it gains at least, over √(α³/ρ): about 1/10. The Hessian's error is in it twice."""

_COARSEST = 20.0
"""α over G at most: there a gradient is off by about G/2 in the mean, and with more it would tell nothing."""

_LONGEST = 4096
"""Leaves of a segment."""

_WITHIN = 1 - 1e-9
"""Factor on μ, so that the cost, rounded up, stays within it."""


@dataclass(frozen=True)
class SpiderSchedule:
    """Public constants of a run.

    Attributes:
        step_size: η.
        batch: b, of a gradient.
        hessian_batch: the same of a Hessian.
        growth: records of a change of gradients, for each unit of length moved: bM/G.
        drift: κ, sum of |g| after which the gradient is taken afresh.
        leaves: Σ, of a segment at most.
        calm: |g| at which a Hessian is asked for.
        steep: curvature, as a size, below which no saddle point of the guarantee can be taken to be.
        loud: largest error of a Hessian: what is released as steeper than that is negative in truth.
        hessian_lipschitz: ρ.
        rest: steps until the next Hessian, after one that showed nothing steep.
        escapes: whether there are any.
        check: records that are kept for a Hessian at the answer.
    """

    step_size: float
    batch: int
    hessian_batch: int
    growth: float
    drift: float
    leaves: int
    calm: float
    steep: float
    loud: float
    hessian_lipschitz: float
    rest: int
    escapes: bool
    check: int


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
        releases: the streams, each of which sees other records: of Hessians, of gradients, and of the Hessian
            at the answer.
        statistics: what they are of.
        doubt: what the least curvature at the answer may be below what is released, in 19 of 20 runs.
        accuracy: α: but for a probability of `FAILURE` some point of the run has |∇F| <= α and no curvature
            below −√(ρα).
        warnings: for the analyst.
    """

    schedule: SpiderSchedule
    releases: tuple[PrefixSums, PrefixSums, PrefixSums]
    statistics: dict[str, AnyStatistic]
    doubt: float
    accuracy: float
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Sizes:
    """Sizes that follow from one α."""

    batch: int
    hessian_batch: int
    drift: float
    leaves: int


@dataclass(frozen=True)
class _Lengths:
    """How long a run for one α is at most: the numbers of its escapes and its steps."""

    escapes: float
    steps: float

    @classmethod
    def of(cls, problem: Problem, alpha: float) -> "_Lengths":
        """A step gains η|g|²/4 of B while |g| > α/2, and an escape a share of √(α³/ρ)."""
        excess, error = problem.excess, _SHARE * alpha
        escapes = excess / (_DESCENT * sqrt(alpha**3 / problem.loss.hessian_lipschitz))
        return cls(escapes, excess * problem.loss.gradient_lipschitz / (4 * error**2) + escapes)

    def rare(self) -> float:
        """ℓ with e^−ℓ = ω/8T: no estimate of T is further off than its bound, but for a probability of ω.

        Each has a bound by sampling, which holds but for 2e^−ℓ, and one by noise, but for e^−ℓ; of gradients
        there are no more than T, and of Hessians neither.
        """
        return log(8 * (self.steps + 2) / FAILURE)


def _batch(spread: float, longest: float, rare: float, error: float) -> float:
    """Records for which sampling is off by the error at most, but for 2e^−ℓ (Bernstein; Pinelis 1994).

    √(2Vℓ/b) + (2/3)Rℓ/b, for a variance of V a record and vectors of at most R.
    """
    root = sqrt(2 * spread)
    share = 2 * error / (root + sqrt(root**2 + 8 / 3 * longest * error))  # √(ℓ/b)
    return rare / share**2


def _sizes(problem: Problem, alpha: float) -> _Sizes:
    """Batches by which gradients and Hessians are as exact as α asks, all of them but for `FAILURE`.

    With b_t = ⌈b·M|x_t − x_{t−1}|/G⌉, at which no leaf is more sensitive than the first, the change of
    gradients in a segment adds Gκ/b to the sampling variance G²/b. The two and the noise share the error.
    Where sampling decides b, κ = G is best, and where the noise does, as much as the sampling leaves. The
    theorem has max(α√d/ε, (BGM)^⅓) and b_t up to κ|g|/α²; its n^−⅓ then has B^(2/9)M^(2/9)G^(5/9) +
    B^(4/9)M^(4/9)G^(1/9) for a factor, of which (BGM)^⅓, ours, is the geometric mean.
    """
    loss, mu, d = problem.loss, problem.mu, problem.loss.size
    steep, error = loss.gradient_bound, _SHARE * alpha / 2  # half by sampling, half by noise
    rare = _Lengths.of(problem, alpha).rare()
    tail = sqrt(2 * rare)  # a length of normal noise exceeds its mean by so many σ but for e^−ℓ
    batch, drift, leaves = 1, steep, 1
    for _ in range(50):  # each grows with the others, the last like a logarithm
        sampled = _batch(2 * steep**2, 2 * steep, rare, error)
        norm = log(leaves) / pi + 1.07  # about that of `column`, and as much on the noisiest row
        noisy = 2 * steep * norm * (sqrt(d) + tail) / (error * mu)
        found = ceil(max(sampled, noisy))
        spread = max(0.0, error - 4 / 3 * steep * rare / found) ** 2 * found / (2 * rare)
        drift = max(steep, spread / steep - steep)
        if found == batch:
            break
        batch, leaves = found, min(_LONGEST, ceil(2 * drift / (_SHARE * alpha)) + 1)
    error = _SHARE * sqrt(loss.hessian_lipschitz * alpha) / 2
    smooth = loss.gradient_lipschitz
    sampled = _batch(smooth**2, 2 * smooth, rare + log(d), error)  # of a matrix (Tropp 2012)
    noisy = (sqrt(2 * d) + tail) * 2 * smooth * sqrt(problem.rank) / (error * mu)
    return _Sizes(batch, ceil(max(sampled, noisy)), drift, leaves)


def _needed(problem: Problem, alpha: float) -> float:
    """Records with which the guarantee holds at the latest: Lemma 3.15, in plain constants.

    While |g| > α/2 a step gains η|g|²/4, so these |g| add up to at most 8BM/α, in BM/(4(α/8)²) steps. Of
    escapes there are about 10·B√ρ/α^1.5. A refresh takes b, and the rest b/G for each unit of |g|, rounded up
    at every step; a Hessian has a batch of its own.

    (The lemma's refreshes after every τ escapes come to bBMρ/α³ with the τ of the theorem, and to bB√ρ/α^1.5
    with τ = 1, the least that there is: more than the bBM/(κα) that it states, and than n^−⅓ allows. With a
    released Hessian there are none of them.)
    """
    loss, excess = problem.loss, problem.excess
    sizes, lengths = _sizes(problem, alpha), _Lengths.of(problem, alpha)
    error = _SHARE * alpha
    path = excess * loss.gradient_lipschitz / error
    path += lengths.escapes * loss.gradient_lipschitz * _WAY * sqrt(alpha / loss.hessian_lipschitz)
    refreshes = 1 + path / sizes.drift
    return (
        sizes.batch * (refreshes + path / loss.gradient_bound)
        + lengths.steps
        + sizes.hessian_batch * (2 + lengths.escapes)
    )


def plan(problem: Problem) -> SpiderPlan:
    """The run of least α that n records are sure to be enough for, as far as plain constants can say.

    Args:
        problem: public facts.

    Raises:
        ValueError: not one batch fits; or float64 cannot carry this privacy.
    """
    loss = problem.loss
    coarsest = _COARSEST * loss.gradient_bound
    alpha = coarsest / largest(lambda finer: _needed(problem, coarsest / finer) <= problem.n, 1.0, 1e6)
    sizes = _sizes(problem, alpha)
    if sizes.batch + 2 * sizes.hessian_batch > problem.n:
        raise ValueError(_refusal(problem, coarsest))
    gradients = prefix_sums(
        "square-root",
        statistic=GRADIENT,
        n=problem.n,
        size=loss.size,
        clip=loss.gradient_bound / sizes.batch,
        leaves=sizes.leaves,
        mu=problem.mu * _WITHIN,
    )
    shown = sqrt(loss.hessian_lipschitz * alpha)
    schedule = SpiderSchedule(
        step_size=1 / loss.gradient_lipschitz,
        batch=sizes.batch,
        hessian_batch=sizes.hessian_batch,
        growth=sizes.batch * loss.gradient_lipschitz / loss.gradient_bound,
        drift=sizes.drift,
        leaves=sizes.leaves,
        calm=4 * _SHARE * alpha,
        steep=_STEEP * shown,
        loud=_SHARE * shown,
        hessian_lipschitz=loss.hessian_lipschitz,
        rest=ceil(loss.gradient_lipschitz / (_SHARE * shown)),  # what is as steep grows e-fold
        escapes=True,
        check=sizes.hessian_batch,
    )
    hessians = Hessians(loss, problem.rank)
    check = _whole_hessians(problem, sizes, CURVATURE)
    return SpiderPlan(
        schedule,
        (_whole_hessians(problem, sizes, HESSIAN), gradients, check),
        {GRADIENT: Gradients(loss), HESSIAN: hessians, CURVATURE: hessians},
        _doubt(problem, sizes, check),
        alpha,
        _warnings(problem, alpha),
    )


def _whole_hessians(problem: Problem, sizes: _Sizes, statistic: str) -> PrefixSums:
    """A stream of Hessians, each released once."""
    return prefix_sums(
        "square-root",
        statistic=statistic,
        n=problem.n,
        size=Hessians(problem.loss, problem.rank).size,
        clip=problem.loss.gradient_lipschitz * sqrt(problem.rank) / sizes.hessian_batch,
        leaves=1,
        mu=problem.mu * _WITHIN,
    )


def _doubt(problem: Problem, sizes: _Sizes, check: PrefixSums) -> float:
    """How far a released Hessian's least eigenvalue may be above the true one, in 19 of 20 runs.

    Half of the chance goes to the noise, of whose matrix the largest eigenvalue is √(2d)·σ at most in
    expectation and exceeds that by tσ with a probability of e^(−t²/2); half to the sampling (Tropp 2012).
    """
    d, smooth = problem.loss.size, problem.loss.gradient_lipschitz
    noise = check.deviation * (sqrt(2 * d) + sqrt(2 * log(2 / FAILURE)))
    rare = log(2 * d / FAILURE) / sizes.hessian_batch
    return noise + smooth * (sqrt(2 * rare) + 4 / 3 * rare)


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
        return sizes.batch + 2 * sizes.hessian_batch

    asked = problem.target.epsilon
    least = 1.05 / largest(lambda e: batches(1 / e) <= problem.n, min(1e-3, 1 / asked), 1 / asked)
    or_else = f", or epsilon {least:.2g}" if batches(least) <= problem.n else ""
    return f"not one batch fits into {problem.n} records: it takes {batches(asked)}{or_else}"
