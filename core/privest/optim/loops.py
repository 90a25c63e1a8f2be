"""The loops of variance-reduced steps, the clip of changes and the step length, from public facts alone."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from privest.arrays import Array
from privest.memo import memoized

FullNoise = Literal["epoch", "step"]
"""Whether an anchor's full gradient is released each epoch, or at every inner step (Utpala et al. 2023)."""

MOST_STEPS = 1_000_000
"""Most steps of a run on random batches; a run on full gradients may have a thousandth of it."""

MOST_PASSES = 30
"""Most passes over the data by batches whose number nobody chose (Utpala et al. 2023, Appendix C, has 30)."""

_EPOCHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20)
_FREQUENCIES = (2, 3, 5, 7, 10, 15, 20)
_CLIPS = tuple((10.0 ** (-np.arange(7) / 4)).tolist())
_LENGTHS = tuple((10.0 ** (-np.arange(10) / 6)).tolist())
"""Loops that are considered: S, m, C₁ over C₀, and η times the largest Hessian eigenvalue. With m = 1 nothing
would have changed since the anchor, and noise on that be all that changes add."""

_LARGEST = 1e300
"""Stands for the error of steps that are so long that it leaves float64."""

_CASES = ((1.0, False), (1.0, True), (0.4, True), (0.15, True))
"""Where the mean may be, of which the worst counts: its distance from the start over the bound on it, and
whether no gradient is clipped. A clip of changes that is right for one distance may be wrong for another."""


@dataclass(frozen=True)
class Epochs:
    """The loops of `rsvrg`: S epochs of m steps, K times over, and when full gradients get noise.

    Raises:
        ValueError: no steps, or too many.
    """

    epochs: int = 5
    frequency: int = 10
    restarts: int = 1
    full_noise: FullNoise = "epoch"

    def __post_init__(self) -> None:
        if min(self.epochs, self.frequency, self.restarts) < 1 or self.steps > MOST_STEPS:
            raise ValueError(
                f"epochs, steps and restarts must be at least 1, and at most {MOST_STEPS} together"
            )

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return self.epochs * self.frequency * self.restarts

    @property
    def full_gradients(self) -> int:
        """Number of full gradients that are released."""
        return self.steps if self.full_noise == "step" else self.epochs * self.restarts


@dataclass(frozen=True)
class AskedLoops:
    """What was asked for of the loops; what is None is to be chosen.

    Attributes:
        epochs: S.
        frequency: m.
        restarts: K; 1 by default.
        full_noise: when full gradients get noise.
        clip: C₁.
    """

    epochs: int | None
    frequency: int | None
    restarts: int | None
    full_noise: FullNoise
    clip: float | None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is to be chosen."""
        return None not in (self.epochs, self.frequency, self.clip)

    @property
    def asked(self) -> Epochs:
        """The loops, with S = 5 and m = 10 where none is given.

        Raises:
            ValueError: no steps, or too many.
        """
        given = {"epochs": self.epochs, "frequency": self.frequency, "restarts": self.restarts}
        counts = {name: count for name, count in given.items() if count is not None}
        return Epochs(full_noise=self.full_noise, **counts)


@dataclass(frozen=True)
class LoopProblem:
    """Public facts by which loops are chosen.

    Attributes:
        distance: bound on the distance from the start to the mean.
        clip: C₀.
        hessian: largest eigenvalue of the Hessian of the clipped loss.
        unit: total variance of the noise on a mean of all records, of clip 1, that has all of the budget.
        mu_squared: the budget.
        rate: q, probability of a record to be in a batch.
        curvatures: eigenvalues that the Hessian may have near the minimiser, of which the worst counts.
        reach: distance beyond which the mean gradient hardly grows; C₀ over the first of these by default.
    """

    distance: float
    clip: float
    hessian: float
    unit: float
    mu_squared: float
    rate: float
    curvatures: tuple[float, ...] = (1.0,)
    reach: float | None = None

    def batch_variance(self, clip: Array, count: Array, share: Array) -> Array:
        """Total variance of the noise on a batch's mean, for so many with this share of the budget.

        The variance of the privacy loss of Poisson batches with a share q of the records is 4q²·sinh((C/σ)²)
        where q is small; the certificate of the chosen run says what it is.
        """
        strength = np.arcsinh(self.mu_squared * share / (4 * self.rate**2 * count))
        return self.unit * clip**2 * self.mu_squared / (4 * self.rate**2 * strength)


@memoized
def best_loops(
    problem: LoopProblem,
    *,
    epochs: int | None,
    frequency: int | None,
    clip: float | None,
    step_size: float | None,
) -> tuple[Epochs, float, float]:
    """Loops, C₁ and η of least predicted error, with full gradients once an epoch; what is given is kept.

    Args:
        problem: public facts.
        epochs: S, if it is given.
        frequency: m, if it is given.
        clip: C₁, if it is given.
        step_size: η, if it is given.
    """
    grid = np.meshgrid(
        _EPOCHS if epochs is None else (epochs,),
        _FREQUENCIES if frequency is None else (frequency,),
        [problem.clip * each for each in _CLIPS] if clip is None else (clip,),
        [each / problem.hessian for each in _LENGTHS] if step_size is None else (step_size,),
        indexing="ij",
    )
    count, steps, change, length = (each.ravel().astype(np.float64) for each in grid)
    passes = count * (1 + 2 * steps * problem.rate)
    few = passes <= max(MOST_PASSES, float(passes.min()))
    count, steps, change, length = (each[few] for each in (count, steps, change, length))
    # The split of the budget that is best where both costs are a multiple of (C/σ)².
    first, second = problem.clip * np.sqrt(count), change * np.sqrt(count * steps)
    share = first / (first + second)
    full = problem.unit * problem.clip**2 * count / share
    changes = problem.batch_variance(change, count * steps, 1 - share)
    error, _ = predicted(problem, count, steps, change, length, full, changes)
    best = int(np.argmin(error))
    return Epochs(int(count[best]), int(steps[best])), float(change[best]), float(length[best])


@np.errstate(over="ignore", invalid="ignore")
def predicted(
    problem: LoopProblem,
    epochs: Array,
    steps: Array,
    clip: Array,
    length: Array,
    full: Array,
    change: Array,
) -> tuple[Array, Array]:
    """Square of the distance to the mean, from the worst start, and its part that is noise; of (k,) loops.

    An epoch's steps all see the same full gradient, and the change since its anchor. The clip C₁ lets through
    r = min(1, C₁/u) of it where iterates are u away. Where it cuts, less holds steps back: they go on, past
    the mean if they are many, and noise on the full gradient moves them as far as that does.

    Args:
        problem: public facts.
        epochs: (k,) S.
        steps: (k,) m.
        clip: (k,) C₁.
        length: (k,) η.
        full: (k,) total variance of the noise on a full gradient.
        change: (k,) total variance of the noise on a change.
    """
    cases = [(*case, curvature) for curvature in problem.curvatures for case in _CASES]
    shape = (len(cases), len(epochs))
    begin, whole, curvature = (np.array(each)[:, None] for each in zip(*cases, strict=True))
    reach = problem.clip / problem.curvatures[0] if problem.reach is None else problem.reach
    bias, noise = problem.distance * np.broadcast_to(begin, shape), np.zeros(shape)
    for epoch in range(int(epochs.max())):
        on = epoch < epochs
        away = np.sqrt(bias**2 + noise)
        pull = curvature * np.where(whole, 1.0, reach / np.sqrt(away**2 + reach**2))
        gone, follows, shaken = (np.zeros(shape) for _ in range(3))
        for step in range(int(steps.max())):
            goes = on & (step < steps)
            far = np.sqrt((gone * away) ** 2 + follows**2 * full + shaken)
            through = 1 / np.maximum(1.0, problem.hessian * far / clip)
            held = 1 - length * curvature * through
            gone = np.where(goes, gone * held + length * pull, gone)
            follows = np.where(goes, follows * held + length, follows)
            shaken = np.where(goes, shaken * held**2 + length**2 * change, shaken)
        kept = (1 - gone) ** 2
        bias = np.where(on, np.sqrt(kept) * bias, bias)
        noise = np.where(on, kept * noise + follows**2 * full + shaken, noise)
    largest = ((bias**2 + noise).max(axis=0), noise.max(axis=0))
    error, by_noise = (np.nan_to_num(each, nan=_LARGEST, posinf=_LARGEST) for each in largest)
    return error, by_noise
