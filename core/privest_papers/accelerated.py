"""Logistic regression by accelerated descents (Kuru et al. 2022): DP-GD, DP-HB, DP-NAG and DP-MASG."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import log, sqrt
from typing import Self, cast

import numpy as np

from privest.arrays import Array
from privest.data.metadata import LabelledMetadata
from privest.estimators.base import require
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.fit import Fit
from privest.estimators.linear_model.linear_solver import SolverDefaults, Variances
from privest.estimators.linear_model.logistic_spec import DescentSolver, LogisticSpec
from privest.estimators.linear_model.losses.logistic import Classifier, LogisticGradient
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import ROUNDING_GUARD, PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import (
    Noise,
    NoisySum,
    Release,
    SubsampledRun,
    SubsampledSum,
    subsampled_sum,
    unamplified,
)
from privest.privacy.oracle import Oracle
from privest_papers.acceleration_bounds import best_count, best_momentum, bound_of
from privest_papers.acceleration_schedule import Curvature, Method, Schedule, schedule_of
from privest_papers.noise_division import BatchLaw, best_batch_count, best_shares


def descend(schedule: Schedule, start: Array, gradient: Callable[[Array], Array]) -> Array:
    """x ← x + β(x − x₋) − α·g, with g taken at x (`hb`, (5)) or at x + β(x − x₋) (`nag`, (6)).

    Args:
        schedule: α and β of every step. A step without β is one from rest: plain descent, or a new stage.
        start: first iterate.
        gradient: noisy gradient at a point.

    Returns:
        the last iterate.

    References:
        Kuru et al. (2022), (5), (6) and Section 4.
    """
    x = before = start
    ahead_of_itself = schedule.method != "hb"
    for length, momentum in zip(schedule.lengths.tolist(), schedule.momenta.tolist(), strict=True):
        ahead = x + momentum * (x - before)
        noisy = gradient(ahead if ahead_of_itself else x)
        x, before = ahead - length * noisy, x
    return x


METHODS: dict[DescentSolver, Method] = {
    "gd": "gd",
    "hb": "hb",
    "nag": "nag",
    "masg": "masg",
    "gd-opt": "gd",
    "hb-opt": "hb",
    "nag-opt": "nag",
    "masg-opt": "masg",
}
"""Kind of step of each solver."""

_PENALTY = 0.01
"""Default λ (Kuru et al. 2022, Section 5)."""

MOST_STEPS = 1_000
_STEPS = 100
"""Default number of steps of solvers that divide the budget evenly (Kuru et al. 2022, Section 5)."""

_PARTS = 12
"""Parts of a run on batches with Gaussian noise. Each part has one noise, and costs a transform when the run
is certified, so that a part for every step would make plans slow. 24 parts would have 3 % less variance."""


@dataclass(frozen=True)
class Descent(SolverDefaults):
    """A descent on the mean logistic loss plus λ|w|², from zero.

    Attributes:
        solver: which. Those in `-opt` divide the noise and count the steps by the bound on their error.
        feature_map: what is seen of a row.
        loss: its gradients.
        budget: what may be spent.
        penalty: λ, above 0.
        steps: T; with `-opt` the most that are considered; by default 100, and 1000 there.
        step_scale: c of step lengths c/L; by default 1.
        batch_size: m, of random batches; by default all records.
        asked_momentum: β of heavy-ball steps; by default the best without noise, and with `-opt` the best.
    """

    solver: DescentSolver
    feature_map: FeatureMap
    loss: LogisticGradient
    budget: PrivacyBudget
    penalty: float
    steps: int | None
    step_scale: float | None
    batch_size: int | None
    asked_momentum: float | None = None

    @classmethod
    def refuse(cls, spec: LogisticSpec, shape: LabelledMetadata, target: PrivacyTarget) -> None:
        """Refuse what does not go with this solver.

        Raises:
            ValueError: something does not.
        """
        del shape, target
        require(spec.penalty is None or spec.penalty >= 1e-9, "descents need a penalty above 0")
        require((spec.steps or 1) <= MOST_STEPS, f"steps must be at most {MOST_STEPS}")

    @classmethod
    def usual_penalty(cls, spec: LogisticSpec, shape: LabelledMetadata) -> float:
        """Return the default λ."""
        del spec, shape
        return _PENALTY

    @classmethod
    def certificates(cls, spec: LogisticSpec) -> int:
        """Return the number of certificates that planning takes."""
        if spec.batch_size is None:
            return 0
        # With `-opt` one covers batches of many noise scales.
        return 8 if spec.solver is not None and spec.solver.endswith("-opt") else 1

    @classmethod
    def of(
        cls,
        spec: LogisticSpec,
        shape: LabelledMetadata,
        target: PrivacyTarget,
        budget: PrivacyBudget,
        penalty: float,
    ) -> Self:
        """Return the solver of a spec that was not refused."""
        del target
        feature_map = FeatureMap.of(shape, shape.usual_length, intercept=spec.intercept)
        loss = LogisticGradient(feature_map.size, len(shape.classes))
        steps = (spec.steps, spec.step_scale, spec.batch_size, spec.momentum)
        return cls(cast("DescentSolver", spec.solver), feature_map, loss, budget, penalty, *steps)

    def forecast(self, releases: Sequence[Release]) -> Variances:
        """Return how far a coefficient is expected to be off."""
        unit = float(self.feature_map.units[0]) ** 2
        variance, left = self.bounds(releases)
        spread = left / self.feature_map.size
        return Variances(
            unit * variance, unit * (variance + spread), "curvature of the loss between its public bounds"
        )

    @property
    def optimised(self) -> bool:
        """Whether noise and number of steps are those of the least bound."""
        return self.solver.endswith("-opt")

    @property
    def curvature(self) -> Curvature:
        """μ = 2λ and L = |x|²/4 + 2λ (or /2, with more than two classes): from public bounds alone."""
        return Curvature(2 * self.penalty, self.loss.gradient_lipschitz + 2 * self.penalty)

    def schedule(self, count: int) -> Schedule:
        """The schedule of so many steps."""
        scale = self.step_scale or 1.0
        method = METHODS[self.solver]
        return schedule_of(method, self.curvature, scale=scale, count=count, momentum=self.momentum)

    @cached_property
    def momentum(self) -> float | None:
        """β of heavy-ball steps, where it is not the best without noise.

        Over batches it is that of full gradients, whose noise is all but the same at the same cost (Kuru et
        al. 2022, Remark 4.2), with what sampling adds.
        """
        if self.asked_momentum is not None or self.solver != "hb-opt":
            return self.asked_momentum
        return best_momentum(
            self.curvature,
            (self.step_scale or 1.0) / self.curvature.most,
            self.steps or MOST_STEPS,
            start=self._start,
            variance=self._whole_variance,
            sampling=self._sampling,
            pure=self.budget.pure,
        )

    def releases(self) -> tuple[Release, ...]:
        """The gradients of a run: noise shared evenly, or as the bound on the error has it.

        Raises:
            ValueError: float64 cannot carry this privacy, or batches with it cannot be certified.
        """
        allowed, loss = self.budget, self.loss
        if self.batch_size is not None and self.batch_size < allowed.n:
            return self._over_batches(self.batch_size / allowed.n)

        def release(share: float, count: int) -> NoisySum:
            return allowed.release(loss, "gradient", loss.longest, share=share, count=count)

        if not self.optimised:
            count = self.steps or _STEPS
            return (release(1.0, count),)
        bound = bound_of(self.schedule(self.steps or MOST_STEPS))
        count = best_count(bound, start=self._start, variance=self._whole_variance, pure=allowed.pure)
        shares = best_shares(bound.weights(count), pure=allowed.pure)
        return tuple(release(share, 1) for share in shares.tolist())

    def _over_batches(self, rate: float) -> tuple[SubsampledSum, ...]:
        """Gradients over Poisson batches."""
        allowed, loss = self.budget, self.loss
        n, pure = allowed.n, allowed.pure
        law = BatchLaw(pure, rate)
        budget = allowed.whole if pure else allowed.whole**2
        count = self.steps or (MOST_STEPS if self.optimised else _STEPS)
        if self.optimised:
            bound = bound_of(self.schedule(count))
            # Noise of strength 1 on the sum is 2C·Laplace's unit, or C·Gauss's, in every direction.
            unit = loss.size * (4.0 * (loss.size + 1) if pure else 1.0)
            per_record = (loss.longest / (rate * n)) ** 2
            count = best_batch_count(
                bound,
                law,
                budget,
                start=self._start,
                unit=unit * per_record,
                sampling=self._sampling,
            )
            weight = bound.weights(count)
        else:
            weight = np.ones(count)
        if pure:
            parts = _with_laplace_noise(law, weight, budget)
        else:
            parts = _with_gaussian_noise(law, weight, allowed)
        kind: Noise = "laplace" if pure else "gaussian"
        return tuple(
            subsampled_sum(run, statistic="gradient", n=n, size=loss.size, clip=loss.longest, law=kind)
            for run in parts
        )

    @property
    def _start(self) -> float:
        """Bound on E₀: the loss at zero, of which none is below 0."""
        return log(self.loss.classes)

    @property
    def _whole_variance(self) -> float:
        """Total variance of the noise on one full gradient that has the whole budget."""
        whole = self.budget.release(self.loss, "gradient", self.loss.longest)
        return whole.size * whole.variance / self.budget.n**2

    @property
    def _sampling(self) -> float:
        """Total variance of a batch's mean, where labels are as probable as the weights say."""
        if self.batch_size is None or self.batch_size >= self.budget.n:
            return 0.0
        square = 0.25 if self.loss.classes == 2 else 1.0 - 1.0 / self.loss.classes
        return (1 - self.batch_size / self.budget.n) * square / self.batch_size

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate may sum, by the names that releases use."""
        return {"gradient": self.loss}

    def run(self, releases: Sequence[Release], gate: Oracle, feature_map: FeatureMap) -> Fit:
        """The last iterate."""
        loss, size = self.loss, feature_map.size
        schedule = self.schedule(sum(r.count for r in releases))
        fitted = descend(
            schedule,
            np.zeros(loss.shape),
            lambda at: 2 * self.penalty * at - gate.mean(Classifier(feature_map, at)).reshape(loss.shape),
        )
        variance, left = self.bounds(releases)
        bounded, batches = schedule.method != "hb", self.batch_size is not None
        return Fit(
            feature_map,
            fitted.reshape(-1, size),
            error=lambda _: variance * np.eye(size),
            noise=lambda _: variance * np.eye(size),
            sampling=None,
            of="the logistic regression of these records without noise, each shortened to the norm bound, "
            f"with the penalty λ = {self.penalty:.3g}",
            covers=bounded,
            left=sqrt(left),
            unknown=(
                "what the penalty and shortening move from a plain fit",
                *(() if bounded else ("what curvature that changes on the way adds",)),
                *(("what random batches add",) if batches else ()),
            ),
        )

    def bounds(self, releases: Sequence[Release]) -> tuple[float, float]:
        """Variance of a weight by the noise, and square of the way that steps leave.

        With momentum β what heavy-ball steps do is known of quadratics alone: see `HeavyBallBound`.
        """
        variances = np.concatenate([np.full(r.count, r.variance / r.divisor**2) for r in releases])
        return bound_of(self.schedule(len(variances))).distances(variances, self._start)


def _with_laplace_noise(law: BatchLaw, weight: Array, epsilon: float) -> list[SubsampledRun]:
    """The division (30) of Kuru et al. (2022) for m < n; shares of ε make up for the solution's error."""
    costs = law.cost(law.divide(weight, epsilon))
    shares = costs / costs.sum() * (epsilon * ROUNDING_GUARD)
    return [
        SubsampledRun(law.scheme, law.rate, 2 / unamplified(share, law.rate, law.scheme), len(list(same)))
        for share, same in groupby(shares.tolist())
    ]


def _with_gaussian_noise(law: BatchLaw, weight: Array, allowed: PrivacyBudget) -> tuple[SubsampledRun, ...]:
    """Parts of about equal cost, with the noise that its law has for their mean weights, as certified."""
    from privest.privacy.subsampling import noises_for  # noqa: PLC0415 - heavy, and for batches alone

    whole = allowed.whole**2
    spent = np.cumsum(law.cost(law.divide(weight, whole)))
    part = np.minimum((spent / spent[-1] * _PARTS * ROUNDING_GUARD).astype(int), _PARTS - 1)
    part = part if np.ptp(weight) > 0 else np.zeros_like(part)
    _, place, counts = np.unique(part, return_inverse=True, return_counts=True)
    means = np.bincount(place, weight) / counts
    strengths = law.divide(means[place], whole)[np.searchsorted(part, np.unique(part))]
    ratios = np.sqrt(strengths[-1] / strengths)
    sized = tuple(zip(counts.tolist(), ratios.tolist(), strict=True))
    return noises_for(law.scheme, law.rate, sized, allowed.for_batches())
