"""Plans of robust PCA: how one budget is divided over the centre, the start and the descent."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import fsum, sqrt

import numpy as np

from privest.data.metadata import VectorsMetadata
from privest.estimators.frechet_mean.gradient_solvers import schedule
from privest.estimators.frechet_mean.losses import SquaredDistance
from privest.estimators.paper_solvers import reaper, reaper_start, subspace_rsvrg
from privest.estimators.range_finding.column_scales import ColumnScales
from privest.estimators.subspace.candidates import CandidateGradients, CandidateScores
from privest.estimators.subspace.column_center import CenterSum
from privest.estimators.subspace.distances import DistanceHistogram
from privest.estimators.subspace.losses import SubspaceDistance
from privest.estimators.subspace.plan import scales_to_find
from privest.estimators.subspace.robust_pca_spec import RobustPCASpec, Solver
from privest.estimators.subspace.schedule import (
    PCA_STEPS,
    descent_count,
    descent_error,
    descent_steps,
    finds_the_way,
    moment_error,
    pca_error,
    right_angles,
    two_descents_steps,
)
from privest.estimators.subspace.second_look import SecondLook
from privest.estimators.subspace.second_moment import SecondMoment
from privest.estimators.subspace.sketch import Sketch, sketch_columns, sketch_release
from privest.estimators.subspace.solvers import (
    Choices,
    PlannedDescent,
    Start,
    SubspaceSolver,
    noisy_gradients,
)
from privest.manifolds.euclidean import Euclidean
from privest.optim.federated import damping
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import NoisySum, Release, SampledSum

STOCHASTIC = frozenset({"sggd", "rsvrg", "sgd-reaper", "smd-reaper"})
"""Solvers on random batches."""

RELAXED = frozenset({"gd-reaper", "sgd-reaper", "md-reaper", "smd-reaper"})
"""Solvers that relax the subspace to a symmetric matrix."""

WIDEST_MOMENT = 1_000
"""Most columns for which a D×D second moment is released and its eigenvectors are computed."""

_SCALES, _LENGTHS = np.geomspace(0.5, 0.15, 12).tolist(), np.linspace(1.0, 0.2, 12).tolist()
REFINEMENTS = tuple(zip(_SCALES, _LENGTHS, strict=True))
"""Scale of the bounded loss, and step size, of every step by which candidates are refined."""

EXPLAINED_SHARE, CENTER_SHARE = 0.05, 0.15
"""Shares of μ² for shares of variance that no moment tells, and for a centre of rows without bounds."""

MEANS_SHARE = 0.5
"""Share of μ² for the means of a table's columns. Of .045 to .5, half left the least error beside the
subspace about the exact means."""

_START_SHARE, _REFINEMENT_SHARE, _SCORES_SHARE = 0.15, 0.15, 0.10
"""Shares for the start and its candidates, of the μ² that is left when the start is planned."""

SELECTIONS = ("wide-tilt", "wide-objective"), ("tilt", "objective")
"""Gradients and losses by which a run selects its start: of rank + 1, if it looks so far, and of the rank."""

_DECISIONS = {"tilt": 0.05, "objective": 0.01, "distances": 0.009}
"""Noise that suffices on the numbers by which an adaptive run decides."""

_BESIDE = 1 / 11
"""Largest share of the rest of the budget for all decisions together: the moment's noise then has at most 1.1
times the variance that it would have without decisions."""

_ADAPTIVE_START_SHARE = 0.35
"""Share for the start of an adaptive run, which sees the moment again or descends far."""

_DOUBTFUL_START_SHARE = 0.5
"""Share for a start from which little is expected, as a descent can then do little more."""

_NOISY_GRADIENT = 0.15
"""Noise on one gradient with the whole budget above which no descent betters a second moment."""

_NOISY_REFINEMENT = 0.25
"""Noise on a candidate's gradient above which refinement would move candidates at random."""


def solver_of(name: Solver, dim: int, rank: int) -> SubspaceSolver | None:
    """The solver of this name, unless it is one of those by descent that are planned and run here."""
    if name in RELAXED:
        return reaper(dim, rank, name)
    return subspace_rsvrg(dim, rank) if name == "rsvrg" else None


def statistics_of(
    shape: VectorsMetadata, rank: int, solver: Solver, start: Start | None, scales: ColumnScales | None
) -> dict[str, AnyStatistic]:
    """The statistics of robust PCA of such rows, by the names that plans store."""
    dim = shape.dim
    own: dict[str, AnyStatistic] = {
        "location": SquaredDistance(Euclidean(dim), "the mean pull on the centre"),
        "moment": SecondMoment(dim),
        "sketch": Sketch(dim, sketch_columns(dim, rank)),
        "tilt": CandidateGradients(rank + 1, rank),
        "objective": CandidateScores(2 * rank + 2),
        "wide-tilt": CandidateGradients(rank + 2, rank + 1),
        "wide-objective": CandidateScores(2 * rank + 4),
        "distances": DistanceHistogram(),
        "look": SecondLook(dim, rank),
        "gradient": SubspaceDistance(dim, rank),
        "explained": SecondMoment(rank, "the second moment in the subspace"),
    }
    if chosen := solver_of(solver, dim, rank):
        own |= chosen.statistics
    if start == "reaper":
        own |= reaper_start(dim, rank).statistics
    if shape.recipe is not None and shape.recipe.is_bounded:
        own["means"] = CenterSum(shape.recipe)
    return own if scales is None else scales.among(own)


def loss_scale(spec: RobustPCASpec) -> float:
    """c of the loss, as a share of a row's length."""
    if spec.scale is not None:
        return spec.scale
    return 0.2 if spec.loss == "bounded" else 0.5


def sees_moment(spec: RobustPCASpec, shape: VectorsMetadata) -> bool:
    """Whether a run releases a second moment, which tells shares of variance at no further cost."""
    return spec.solver not in RELAXED and _start(spec, shape) == "analyze-gauss"


def _start(spec: RobustPCASpec, shape: VectorsMetadata) -> Start:
    """The start that was asked for, or the default."""
    return spec.start or ("analyze-gauss" if shape.dim <= WIDEST_MOMENT else "sketch")


@dataclass(frozen=True)
class StartPlan:
    """A start, and what it leaves to be done.

    Attributes:
        start: where the descent begins.
        selects: whether the start is selected among candidates.
        releases: the noisy sums of the start.
        spent: share of μ² that these cost.
        error: square of the distance that the start is expected to leave.
        why: the reason for this start, for the analyst.
    """

    start: Start
    selects: bool
    releases: tuple[Release, ...]
    spent: float
    error: float
    why: str


class Planner:
    """Divides one budget of μ² over the parts of a run; a share is always of the whole.

    Args:
        spec: the analyst's choices.
        shape: public facts of the data.
        target: (ε, δ), δ above 0.
    """

    def __init__(self, spec: RobustPCASpec, shape: VectorsMetadata, target: PrivacyTarget) -> None:
        self._spec, self._shape = spec, shape
        self._budget = PrivacyBudget.of(target, shape.n, batches=spec.solver in STOCHASTIC)
        self._scales, self._looking = scales_to_find(shape, self._budget)
        self.statistics = statistics_of(shape, spec.rank, spec.solver, spec.start, self._scales)
        self.solver = solver_of(spec.solver, shape.dim, spec.rank)

    def looks(self) -> tuple[tuple[Release, ...], float, tuple[str, ...]]:
        """The looks at columns, the share that they cost together, and what to warn of."""
        if self._scales is None:
            return (), 0.0, ()
        looks = self._scales.releases(self._budget, self._looking)
        return looks, self._looking, tuple(self._scales.warnings(looks))

    def release(self, name: str, share: float, clip: float = 1.0, count: int = 1) -> NoisySum:
        """`count` sums that cost this share together."""
        return self._budget.release(self.statistics[name], name, clip, share=share, count=count)

    def center(self) -> tuple[list[NoisySum], float, float]:
        """The means of a table's columns or, of rows without bounds, steps towards their middle.

        In a step no row pulls by more than half the norm bound.

        Returns:
            The releases, the share that they cost, and the step size.
        """
        if "means" in self.statistics:
            return [self.release("means", MEANS_SHARE)], MEANS_SHARE, 0.0
        bound, share = self._shape.norm_bound, CENTER_SHARE
        whole = self.release("location", share, bound / 2)
        planned = schedule(
            self._shape.dim * whole.deviation**2,
            power=1,
            curvature=(0.0, 0.0),
            distance=bound,
            clip=bound / 2,
        )
        steps = [self.release("location", share * part, bound / 2) for part in planned.shares]
        return steps, share, planned.step_size

    def start(self, left: float) -> StartPlan:
        """The start that was asked for, or the one that its share of the budget is expected to serve.

        Args:
            left: share of μ² that is left for start and descent.
        """
        spec, rank = self._spec, self._spec.rank
        start = _start(spec, self._shape)
        # With the whole budget, and half as many rows about the subspace as forecasts take for granted.
        doubt = 4 * self._basis(start, left)[1]
        share = min(max(_START_SHARE, _START_SHARE + 3 * (doubt - 0.02)), _DOUBTFUL_START_SHARE)
        refinement = self.release("tilt", _REFINEMENT_SHARE * left, sqrt(rank + 1), count=len(REFINEMENTS))
        selects = spec.consensus
        if selects is None:
            quiet = refinement.deviation * sqrt(rank + 1) < _NOISY_REFINEMENT
            selects = quiet and share < _DOUBTFUL_START_SHARE / 2
            selects = selects and start != "random" and spec.loss != "squared"
        if start == "random":
            share = 0.0
        elif self._start_suffices(start, left):
            selects, share = False, 1.0
        elif spec.adaptive:
            return self._adaptive_start(left, _ADAPTIVE_START_SHARE, selects=selects)
        releases, error = self._basis(start, share * left)
        why = "it was asked for"
        if spec.start is None:
            why = (
                f"{start}: for {share:.0%} of the budget a squared distance of {error:.2g} is expected; "
                f"a public random subspace may have {right_angles(rank):.2g}"
            )
            if share == 1.0:
                why += "; a descent would find no more in the same budget"
        if selects:
            scores = self.release("objective", _SCORES_SHARE * left, sqrt(2 * rank + 2))
            releases += (refinement, scores)
            share += _REFINEMENT_SHARE + _SCORES_SHARE
        return StartPlan(start, selects, releases, share * left, error, why)

    def _adaptive_start(self, left: float, share: float, *, selects: bool) -> StartPlan:
        """The start, for this share of what is left, of a run that looks before it chooses the loss."""
        rank = self._spec.rank
        releases, error = self._basis("analyze-gauss", share * left)
        selections = (SELECTIONS if rank + 2 <= self._shape.dim else SELECTIONS[1:]) if selects else ()
        names = (*chain(*selections), "distances")
        decisions = {name: self._decision(name) for name in names}
        enough = {name: (asked(1.0).deviation / noise) ** 2 for name, (asked, noise) in decisions.items()}
        most = _BESIDE * left
        parts = {"distances": min(enough.pop("distances"), most / 2 if selections else most)}
        capped = min(1.0, (most - parts["distances"]) / max(fsum(enough.values()), 1e-300))
        parts |= {name: capped * share for name, share in enough.items()}
        for name in names:
            (asked, _), part = decisions[name], parts[name]
            if sample := self._budget.sample(part):
                part *= (self._budget.n / sample) ** 2
            release = asked(part)
            releases = (*releases, SampledSum.of(release, sample) if sample else release)
            share += part / left
        why = (
            f"analyze-gauss: {share:.0%} of the budget finds a first subspace. Distances from it decide "
            "whether a robust loss or plain PCA has the rest"
        )
        return StartPlan("analyze-gauss", selects, releases, share * left, error, why)

    def _decision(self, name: str) -> tuple[Callable[[float], NoisySum], float]:
        """The release of a decision, by its share of the budget, and the noise that suffices for it."""
        kind, width = name.removeprefix("wide-"), self._spec.rank + 1 + name.startswith("wide-")
        clip = {"tilt": sqrt(width), "objective": sqrt(2 * width)}.get(kind, 1.0)
        count = len(REFINEMENTS) if kind == "tilt" else 1
        return partial(self.release, name, clip=clip, count=count), _DECISIONS[kind]

    def descent(self, left: float, error: float) -> PlannedDescent:
        """The descent on what is left of the budget.

        Args:
            left: share of μ² that is left.
            error: square of the distance at the start.
        """
        if self.solver is not None:
            return self.solver.plan(self._budget, self._choices, left=left, error=error)
        spec, n, dim, rank = self._spec, self._shape.n, self._shape.dim, self._spec.rank
        free = rank * (dim - rank)
        count = spec.steps
        if count is None:
            count = PCA_STEPS if spec.loss == "squared" else descent_count(n * dim, spec.halvings)
        if spec.adaptive:
            look = self.release("look", left, count=count)
            steps = two_descents_steps(count, error, sqrt(2 * free) * look.deviation, rank)
            # The moment again tells of it as much as another one would on its share.
            whole = 1 / (1 / error + 1 / self._basis("analyze-gauss", left)[1])
            return PlannedDescent((look,), steps, whole, twice=True)
        block, rate = noisy_gradients(
            self._budget,
            self.statistics["gradient"],
            "gradient",
            self._choices,
            batches=spec.solver in STOCHASTIC,
            share=left,
            count=count * spec.local_steps,
        )
        noise = sqrt((free * block.deviation**2 + (1 - rate) / (rate * n)) / spec.local_steps)
        if spec.loss == "squared":
            steps = (damping(spec.turns) if spec.step_size is None else spec.step_size,) * count
            return PlannedDescent((block,), steps, pca_error(error, steps, noise, rank))
        free_choice = (spec.steps, spec.step_size, spec.local_steps, spec.turns) == (None, None, 1, 1)
        twice = free_choice and spec.solver == "ggd" and spec.start in (None, "analyze-gauss")
        first, damped = spec.step_size, damping(spec.turns)
        steps = descent_steps(count, error, noise, rank, first, spec.halvings, damping=damped)
        if twice:
            steps = two_descents_steps(count, error, noise, rank, spec.halvings)
        smooth = loss_scale(spec) if spec.loss == "bounded" else 0.0
        return PlannedDescent((block,), steps, descent_error(error, steps, noise, rank, smooth), twice)

    @property
    def _choices(self) -> Choices:
        """The analyst's choices of the steps."""
        spec = self._spec
        return Choices(
            spec.steps, spec.step_size, spec.local_steps, spec.turns, spec.epochs, spec.rate, spec.sampling
        )

    def _basis(self, start: Start, share: float) -> tuple[tuple[Release, ...], float]:
        """The release from which a start's basis is made, and the square of the distance that it leaves."""
        dim, rank = self._shape.dim, self._spec.rank
        if start == "random":
            return (), right_angles(rank)
        if start == "analyze-gauss":
            release = self.release("moment", share)
            return (release,), moment_error(release.deviation, dim, rank)
        if start == "reaper":
            planned = reaper_start(dim, rank).plan(
                self._budget, Choices(), left=share, error=right_angles(rank)
            )
            return planned.releases, planned.forecast
        release, error = sketch_release(self._budget, share, dim, rank)
        return (release,), error

    def _start_suffices(self, start: Start, left: float) -> bool:
        """Whether a descent that nobody asked for would not better a start with the whole budget."""
        spec, rank = self._spec, self._spec.rank
        asked = (spec.steps, spec.consensus, spec.local_steps, spec.turns) != (None, None, 1, 1)
        if asked or self.solver is not None or start == "reaper":
            return False
        free = rank * (self._shape.dim - rank)
        single = self.release("gradient", left).deviation * sqrt(free)
        if spec.adaptive:
            count = descent_count(self._shape.n * self._shape.dim)
            return not finds_the_way(single * sqrt(count / _DOUBTFUL_START_SHARE), rank)
        is_exact = start == "analyze-gauss" and spec.loss == "squared"
        return is_exact or (spec.start is None and single > _NOISY_GRADIENT)
