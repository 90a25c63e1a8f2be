"""The private Fréchet mean: the point of a manifold with the least mean squared distance to the records."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from privest.arrays import Array, NestedList
from privest.data.column_estimates import ColumnError, ColumnMean, alike, column_errors, column_means
from privest.data.metadata import PointsMetadata
from privest.data.tables import Recipe
from privest.estimators.base import BasePlan, Estimator, least_noisy, require
from privest.estimators.frechet_mean import adaptive_clip
from privest.estimators.frechet_mean import column_means as column_means_solver
from privest.estimators.frechet_mean.adaptive_clip import AdaptiveMean, Run
from privest.estimators.frechet_mean.fixed_clip import Facts, MeanError, checked, expected_error, last_step
from privest.estimators.frechet_mean.gradient_solvers import (
    SUMS,
    ProblemBounds,
    Solver,
    SolverPlan,
    diagnosed,
    full_gradients,
    hessian_bounds,
    random_batches,
    statistics,
    variance_reduced_batches,
    why_full_gradients,
)
from privest.estimators.frechet_mean.radius_search import Range
from privest.estimators.uncertainty import Answer, ExpectedError, Uncertainty
from privest.manifolds import Embedded, Euclidean, Manifold, compact
from privest.optim.descent import Ball, gradient_descent
from privest.optim.federated import APART, LocalSteps, Rounds, ServerStep, owners_descent
from privest.optim.variance_reduction import MOST_STEPS, AskedLoops, Epochs, FullNoise, variance_reduced
from privest.options import Doc, Option, Options
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import certified
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import NoisySum, Release, Scheme
from privest.privacy.oracle import Oracle


@dataclass(frozen=True)
class FrechetMeanSpec(Options):
    """Options of a Fréchet mean. An option without a value follows from public facts."""

    start: Annotated[
        NestedList | None, Option("first iterate, as nested lists; the public centre by default")
    ] = None
    clip: Annotated[
        float | None,
        Option(
            "C₀, the distance by which one record pulls at most; by default `rgd` finds one in the run, and "
            "others take the public radius",
            gt=0,
            le=1e6,
        ),
    ] = None
    step_size: Annotated[float | None, Option("η of every step", gt=0, le=100)] = None
    steps: Annotated[int | None, Option("number of steps; of `rsvrg` in an epoch", ge=1)] = None
    solver: Annotated[
        Solver | None,
        Option(
            "of columns of a table one sum over their declared bounds (`noisy-sum`), by default with closer "
            "bounds where these surely win (`clipped-sum`); of other data full gradients (`rgd`, the "
            "default), random batches (`rsgd`), or both (`rsvrg`)"
        ),
    ] = None
    rate: Annotated[float | None, Option("probability of a record in a batch", gt=0, le=1)] = None
    sampling: Annotated[Scheme, Option("how batches are drawn")] = "poisson"
    epochs: Annotated[int | None, Option("of `rsvrg`: number of epochs, S", ge=1)] = None
    restarts: Annotated[int | None, Option("of `rsvrg`: number of restarts, K", ge=1)] = None
    clip_change: Annotated[
        float | None,
        Option(
            "of `rsvrg`: C₁, bound on a record's change of gradient in an epoch; by default it and the "
            "loops are those of the least expected error, and C₀ with restarts or noise at every step",
            gt=0,
            le=1e6,
        ),
    ] = None
    full_noise: Annotated[
        FullNoise, Option("of `rsvrg`: noise on full gradients once an epoch, or at every step")
    ] = "epoch"
    local_steps: LocalSteps = 1
    server_step: ServerStep = 1.0
    diagnostics: Annotated[
        bool,
        Option(
            "whether to spend a tenth of the budget or two on how far the answer may be off; without it "
            "nothing is told of what the clip cuts off, and no clip is found",
            omit_default=True,
        ),
    ] = True

    @property
    def is_default(self) -> bool:
        """Return whether no option but the solver was chosen."""
        return self == FrechetMeanSpec(solver=self.solver)

    @property
    def finds_clip(self) -> bool:
        """Return whether a descent that finds its clip keeps to all requested options."""
        chosen = (self.clip, self.steps, self.step_size)
        return (
            self.diagnostics
            and chosen == (None,) * 3
            and self.local_steps == 1
            and self.solver in (None, "rgd")
        )


_BATCHES = ("rsgd", "rsvrg")
"""Solvers that see random batches."""


@dataclass(frozen=True)
class Mean(Answer):
    """The private mean."""

    point: Annotated[Array, Doc("a point of the manifold, as nested lists")]
    columns: Annotated[
        tuple[ColumnMean, ...] | None,
        Doc("of a table: the mean of each column, in its own units, and the share of each category"),
    ] = None
    half_widths: Annotated[
        Array | None,
        Doc(
            "of a table: half of the 95 % interval of each number of the point; 1e100 where none holds",
            axes=(1,),
        ),
    ] = None

    def in_columns(self, recipe: Recipe, expected: ExpectedError) -> "Mean":
        """The mean of each column, with an interval by what the run found out, else by the forecast."""
        half_widths = self.half_widths
        if half_widths is None:
            assert isinstance(expected, MeanError)  # noqa: S101 - of every mean's plan
            found = self.uncertainty
            noise, bias = (found.noise, found.moved or 0.0) if found else (expected.radius_95, 0.0)
            half_widths = alike(len(self.point), noise, bias)
        return replace(self, columns=column_means(self.point, recipe, half_widths))


@dataclass(frozen=True, kw_only=True)
class FrechetMeanPlan(BasePlan):
    """A plan of a Fréchet mean.

    Attributes:
        start: first iterate, nested lists.
        center: of the ball in which the mean is sought, nested lists.
        clip: bound on one record's gradient; where the run finds one, the radius that the forecast is for.
        step_size: η of every step.
        solver: which runs.
        epochs: the loops of `rsvrg`.
        local_steps: that every owner takes in each step.
        server_step: see `Rounds`.
    """

    shape: PointsMetadata
    expected_error: MeanError
    start: NestedList
    center: NestedList
    radius: Annotated[
        float, Doc("public: within it the mean is sought or, if the run finds its range, expected at first")
    ]
    clip: float
    step_size: float
    solver: Solver
    epochs: Epochs | None
    why: Annotated[str, Doc("this solver")]
    local_steps: LocalSteps = 1
    server_step: ServerStep = 1.0

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        if self.epochs:
            return self.epochs.steps
        if self.sums is not None:
            return 1
        shared = sum(r.count for r in self.releases if r.statistic in ("gradient", "rough-gradient"))
        return shared + max(len(self.named(run.gradient)) for run in Run)

    def named(self, statistic: str) -> tuple[NoisySum, ...]:
        """The releases of a statistic but for those of random batches, in order."""
        found = (release for release in self.releases if release.statistic == statistic)
        return tuple(release for release in found if isinstance(release, NoisySum))

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate may sum, by the names that releases use."""
        if self.sums is not None:
            return dict(column_means_solver.statistics(self.sums))
        return _statistics(self.range, pure=self.target.delta == 0)

    @property
    def sums(self) -> Recipe | None:
        """The recipe of the columns whose sums are released; None where another solver runs."""
        return self.shape.recipe if self.solver in SUMS else None

    @property
    def columns(
        self,
    ) -> Annotated[
        tuple[ColumnError, ...] | None,
        Doc(
            "of a table: how far the mean of each column is expected to be off; null of other data, and "
            "where the run finds the scale of a column, which nobody knows before"
        ),
    ]:
        """The forecast of each column's interval."""
        recipe = self.shape.recipe
        if recipe is None or not recipe.is_bounded:
            return None
        if self.sums is not None:
            return column_errors(recipe, column_means_solver.planned_half_widths(recipe, self.releases))
        return column_errors(recipe, alike(recipe.width, self.expected_error.radius_95, 0.0))

    @property
    def looks(self) -> tuple[Release, ...]:
        """The histograms of columns, or of how far records may be at all."""
        if self.sums is not None:
            return () if self.sums.is_bounded else column_means_solver.range_finding(self.releases)
        return self.named("range")

    @property
    def range(self) -> Range:
        """What the run may find out about the distances of the records."""
        return Range(self.shape.space, self.radius, self.shape.radius is not None)


def plan(spec: FrechetMeanSpec, shape: PointsMetadata, target: PrivacyTarget) -> FrechetMeanPlan:
    """Plan the noise, the steps and the exact cost of a private Fréchet mean, from public facts alone.

    With δ = 0 the noise is Laplace noise. With a δ above 0 it is Gaussian, except for sums over columns, and
    over points of Euclidean space with a given clip, where budgets add up ε and δ and Laplace noise has the
    smaller error. Elsewhere many releases share the budget, and histograms of Laplace noise see less: no
    forecast tells which of the two arrives nearer.

    Raises:
        ValueError: an option is out of range. The message is fit for the analyst.
    """
    require(shape.n >= 1, "a mean needs at least one record")
    if spec.solver in SUMS or (shape.recipe is not None and spec.solver is None and spec.is_default):
        return _plan_of_columns(spec, shape, target)
    if spec.solver in _BATCHES or spec.finds_clip or not isinstance(shape.space, Euclidean):
        return _plan_of_points(spec, shape, target)
    return least_noisy(
        lambda target: _plan_of_points(spec, shape, target),
        target,
        lambda plan: plan.expected_error.radius_95,
    )


def _plan_of_points(spec: FrechetMeanSpec, shape: PointsMetadata, target: PrivacyTarget) -> FrechetMeanPlan:
    """Plan the mean of points with the noise that belongs to the δ of the target."""
    space = shape.space
    center, radius = shape.search_center, _positive(shape.search_radius, "radius", space.widest_radius)
    start = shape.point(spec.start, "start") if spec.start is not None else center
    clip = _positive(spec.clip, "clip") if spec.clip is not None else radius
    step_size = _positive(spec.step_size, "step_size") if spec.step_size is not None else None
    clip_change = _positive(spec.clip_change, "clip_change") if spec.clip_change is not None else None
    most = MOST_STEPS if spec.solver in _BATCHES else MOST_STEPS // 1000
    require((spec.steps or 1) <= most, f"steps must be at most {most}")

    with np.errstate(over="ignore"):
        distance = _positive(radius + float(space.dist(center, start)), "distance of the start")
    _options_fit(spec, space)
    bounds = ProblemBounds(
        shape.n, space, center, radius, target, distance, clip, is_declared=shape.radius is not None
    )
    require(
        shape.recipe is None or shape.recipe.is_bounded,
        "these options need low and high of every column: declare them, or leave the options out",
    )
    chosen = _solver_plan(spec, bounds, step_size, clip_change)
    found = chosen.releases[0].statistic == "range"
    require(spec.server_step == 1.0 or spec.local_steps > 1, APART)
    long = spec.local_steps > 1 and spec.local_steps * len(chosen.releases) > most
    require(not long, f"local_steps times {len(chosen.releases)} steps must be at most {most}")
    expected = expected_error(chosen.schedule.noise_error, _last(chosen), bounds, found=found)
    warnings = _warnings(bounds, shape, chosen, clip_change, expected)
    summed = _statistics(bounds.range, pure=target.delta == 0)
    return FrechetMeanPlan(
        **certified(chosen.releases, summed, target, shape.n, warnings),
        shape=shape,
        start=start.tolist(),
        center=center.tolist(),
        radius=radius,
        clip=clip,
        step_size=chosen.schedule.step_size,
        solver=chosen.solver,
        epochs=chosen.epochs,
        releases=chosen.releases,
        expected_error=expected,
        why="it was asked for" if spec.solver else why_full_gradients(bounds, chosen),
        local_steps=spec.local_steps,
        server_step=spec.server_step,
    )


def _statistics(within: Range, *, pure: bool) -> dict[str, AnyStatistic]:
    """Return the statistics that the gate may sum for points, by the names that releases use."""
    return statistics(within, pure=pure) | adaptive_clip.statistics(within, pure=pure)


def _plan_of_columns(spec: FrechetMeanSpec, shape: PointsMetadata, target: PrivacyTarget) -> FrechetMeanPlan:
    """The plan of means of columns by noisy sums.

    Raises:
        ValueError: the data are no table, an option belongs to another solver, or noise would hide a column.
    """
    recipe = shape.recipe
    require(recipe is not None, f"the solvers {' and '.join(SUMS)} are for columns of tables")
    assert recipe is not None  # noqa: S101 - as required
    require(spec.is_default, f"the solver {spec.solver} takes no other options: leave them out")
    plain = spec.solver == "noisy-sum"
    target = column_means_solver.least_noise(recipe, target, shape.n)
    releases = column_means_solver.releases(recipe, target, shape.n, plain=plain)
    expected = column_means_solver.forecast(recipe, releases)
    center = recipe.center.tolist()
    return FrechetMeanPlan(
        **certified(
            releases,
            column_means_solver.statistics(recipe),
            target,
            shape.n,
            column_means_solver.plan_warnings(recipe, releases),
        ),
        shape=shape,
        start=center,
        center=center,
        radius=recipe.radius,
        clip=recipe.radius,
        step_size=1.0,
        solver="noisy-sum" if len(releases) == 1 else "clipped-sum",
        epochs=None,
        releases=releases,
        expected_error=expected,
        why=column_means_solver.reason(releases, asked=spec.solver is not None),
    )


def _solver_plan(
    spec: FrechetMeanSpec, bounds: ProblemBounds, step_size: float | None, clip_change: float | None
) -> SolverPlan:
    """The plan of the solver that was asked for, or else of full gradients.

    Raises:
        ValueError: an option out of range, or a run that cannot be certified.
    """
    if spec.finds_clip:
        return adaptive_clip.plan(bounds)
    told: tuple[NoisySum, ...] = ()
    if spec.diagnostics:
        batches = spec.solver in _BATCHES
        bounds, told = diagnosed(bounds, batches=batches, check=batches or spec.local_steps > 1)
    chosen = _given_clip(spec, bounds, step_size, clip_change)
    return replace(chosen, releases=(*chosen.releases, *told))


def _given_clip(
    spec: FrechetMeanSpec, bounds: ProblemBounds, step_size: float | None, clip_change: float | None
) -> SolverPlan:
    """The plan of a solver with this clip, by what of the budget it may spend.

    Raises:
        ValueError: an option out of range, or a run that cannot be certified.
    """
    if spec.solver == "rsgd":
        return random_batches(
            bounds, rate=spec.rate, scheme=spec.sampling, steps=spec.steps, step_size=step_size
        )
    if spec.solver == "rsvrg":
        asked = AskedLoops(spec.epochs, spec.steps, spec.restarts, spec.full_noise, clip_change)
        return variance_reduced_batches(
            bounds, asked, rate=spec.rate, scheme=spec.sampling, step_size=step_size
        )
    return full_gradients(bounds, steps=spec.steps, step_size=step_size, local_steps=spec.local_steps)


def _last(chosen: SolverPlan) -> Release:
    """Return the gradient by whose noise the error is forecast: of the default solver, the last plain one."""
    plain = [each for each in chosen.releases if each.statistic == Run.PLAIN.gradient]
    return (plain or [each for each in chosen.releases if each.statistic not in ("distances", "check")])[-1]


def _warnings(
    bounds: ProblemBounds,
    shape: PointsMetadata,
    chosen: SolverPlan,
    clip_change: float | None,
    expected: MeanError,
) -> Iterator[str]:
    """Warnings for the analyst, from public facts."""
    clip, step = bounds.clip, chosen.schedule.step_size
    found = chosen.releases[0].statistic == "range"
    if shape.radius is None and not found and bounds.radius < bounds.space.diameter:
        yield (
            f"the dataset's schema names no radius; {bounds.radius:.3g} about the centre is assumed. "
            "A mean outside that ball is not found, and a tighter ball costs less noise"
        )
    if step >= 2 / hessian_bounds(bounds.space.curvature, clip)[1]:
        yield "step_size is so long that iterates need not settle; the expected error is a guess"
    if chosen.epochs and clip_change and clip_change < clip * min(1, chosen.epochs.frequency * step):
        yield "clip_change is so small that an epoch may run past the mean and not return"
    if expected.radius_95 >= bounds.radius:
        yield "the noise is wider than the public ball: expect no information from this query"


def run(planned: FrechetMeanPlan, gate: Oracle) -> Array:
    """The private mean, (*shape): sees the plan and the gate's noisy answers, never a row."""
    return _answer(planned, gate).point


def _estimate(planned: FrechetMeanPlan, gate: Oracle) -> tuple[Array, Uncertainty | None]:
    """The private mean, and what its run found out of how far it is off."""
    start, center = (np.array(point, dtype=np.float64) for point in (planned.start, planned.center))
    ball = Ball(planned.shape.space, center, planned.radius)
    if planned.named(Run.PLAIN.gradient):
        first = planned.named("range")
        if first:
            ball = planned.range.ball(gate, start, first[0])
        found = {name: planned.named(name) for name in planned.statistics}
        releases = {name: each for name, each in found.items() if each}
        return AdaptiveMean(ball, start, releases, is_declared=not first).run(gate)
    looks = planned.named("distances")
    if not looks:
        return _descended(planned, gate, ball, start, planned.steps), None
    noise = planned.expected_error.each_direction(ball.manifold.dim)
    facts = Facts(ball, planned.clip, noise, looks[0])
    if check := planned.named("check"):
        point = _descended(planned, gate, ball, start, planned.steps)
        return point, checked(facts, gate, point, check=check[0])
    point = _descended(planned, gate, ball, start, planned.steps - 1)
    return last_step(facts, gate, point, step_size=planned.step_size, last=planned.named("gradient")[-1])


def _descended(planned: FrechetMeanPlan, gate: Oracle, ball: Ball, start: Array, steps: int) -> Array:
    """Where the solver ends, after so many steps where it is gradient descent."""
    if planned.local_steps > 1:
        space = planned.shape.space
        assert isinstance(space, Embedded)  # noqa: S101 - others are refused
        lengths = [planned.step_size] * len(planned.named("gradient"))
        return owners_descent(
            space,
            gate,
            asked=lambda at: at,
            start=start,
            rounds=Rounds(lengths, planned.local_steps, planned.server_step),
            within=lambda point: ball.nearest(point)[0],
        )
    if planned.epochs is None:
        return gradient_descent(ball, gate, start=start, step_size=planned.step_size, steps=steps)
    return variance_reduced(ball, gate, start=start, step_size=planned.step_size, loops=planned.epochs)


def _positive(value: float, name: str, most: float = 1e100) -> float:
    """The value, if it is in a range where squares of lengths stay in float64.

    Raises:
        ValueError: it is not.
    """
    require(1e-100 <= value <= most, f"{name} must be between 1e-100 and {most:g}")
    return value


def _options_fit(spec: FrechetMeanSpec, space: Manifold) -> None:
    """Refuse choices that would be passed over in silence.

    Raises:
        ValueError: an option of a solver that does not run.
    """
    require(
        spec.local_steps == 1 or (isinstance(space, Embedded) and spec.solver in (None, "rgd")),
        f"local_steps belongs to the solver rgd, on one of the manifolds {', '.join(compact())}",
    )
    require(
        spec.solver in _BATCHES or (spec.rate is None and spec.sampling == "poisson"),
        "rate and sampling belong to the solvers rsgd and rsvrg",
    )
    loops = (spec.epochs, spec.restarts, spec.clip_change, spec.full_noise)
    require(
        spec.solver == "rsvrg" or loops == (None, None, None, "epoch"),
        "epochs, restarts, clip_change and full_noise belong to the solver rsvrg",
    )


def _answer(planned: FrechetMeanPlan, gate: Oracle) -> Mean:
    if planned.sums is not None:
        found = column_means_solver.run(planned.sums, gate, planned.releases, planned.shape.n)
        return Mean(found.point, half_widths=found.half_widths, uncertainty=found.uncertainty)
    point, uncertainty = _estimate(planned, gate)
    return Mean(point, uncertainty=uncertainty)


FRECHET_MEAN = Estimator(
    name="frechet-mean",
    schema_name="FrechetMean",
    title="Fréchet mean",
    summary="The private Fréchet mean of points on a manifold",
    plain_words=(
        "The mean of records. Of plain numbers it is the usual one. Of matrices, directions and other "
        "points of a curved space it is the point whose squared distances to all records are least "
        "together."
    ),
    metadata=PointsMetadata,
    spec=FrechetMeanSpec,
    plan_type=FrechetMeanPlan,
    error=MeanError,
    answer=Mean,
    planner=plan,
    run=_answer,
    shown=("solver", "why", "step_size", "local_steps", "server_step", "radius", "columns"),
    errors_apart=True,
    error_meaning="distance by which the noise alone moves the mean, root mean square",
    certificates=lambda spec: int(spec.solver in _BATCHES),
)
