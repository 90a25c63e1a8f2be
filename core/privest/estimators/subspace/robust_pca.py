"""Private robust PCA: the subspace that most rows lie near, whatever the others do."""

from dataclasses import replace

from privest.data.metadata import VectorsMetadata
from privest.estimators.base import Estimator, require
from privest.estimators.subspace.plan import require_subspace, subspace_warnings
from privest.estimators.subspace.robust_pca_plan import RobustPCAPlan, Subspace, SubspaceError
from privest.estimators.subspace.robust_pca_planning import (
    EXPLAINED_SHARE,
    RELAXED,
    STOCHASTIC,
    WIDEST_MOMENT,
    Planner,
    loss_scale,
    sees_moment,
    solver_of,
)
from privest.estimators.subspace.robust_pca_run import run
from privest.estimators.subspace.robust_pca_spec import RobustPCASpec, leaves_open
from privest.estimators.subspace.schedule import right_angles, small_gap_error
from privest.optim.federated import APART
from privest.optim.variance_reduction import Epochs
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import BATCH, LEAST_RATE, certified
from privest.privacy.mechanisms import Release

_MOST_STEPS = 10_000
_WIDEST_BASIS = 1_000_000
"""Most numbers in an answer."""

_LONGEST_RUN = 1e11
"""Most entries that a run may read and make; more take minutes."""

_ASSUMES_SPREAD = (
    "half of the variance of the rows, each divided by its length, is in the subspace, as much along every "
    "direction of it; in the unfavourable case its last direction has .01 more of it than the next one"
)
_ASSUMES_POPULATIONS = (
    "half of the rows lie about the subspace, off it by a tenth of their length, and the others have no "
    "direction; in the unfavourable case nothing is found"
)


def plan(spec: RobustPCASpec, shape: VectorsMetadata, target: PrivacyTarget) -> RobustPCAPlan:
    """Noise, steps and exact cost of a private robust PCA, from public facts alone.

    Raises:
        ValueError: a choice that is out of range, in words fit for whoever made it.
    """
    spec = _resolved(spec, shape)
    _refuse(spec, shape, target)
    planner = Planner(spec, shape, target)
    looks, looking, hidden = planner.looks()
    releases: list[Release] = [*looks]
    left, center_step = 1.0 - looking, 0.0
    if spec.explained and not sees_moment(spec, shape):
        releases.append(planner.release("explained", EXPLAINED_SHARE))
        left -= EXPLAINED_SHARE
    if spec.center:
        steps, share, center_step = planner.center()
        releases += steps
        left -= share
    start, error = None, right_angles(spec.rank)
    if planner.solver is None or not planner.solver.starts_itself:
        start = planner.start(left)
        releases += start.releases
        left, error = left - start.spent, start.error
    descent = None
    if left > 1e-9:
        descent = planner.descent(left, error)
        releases += descent.releases
        error = descent.forecast
        if descent.epochs or spec.local_steps > 1 or spec.halvings:
            _refuse_long(replace(spec, steps=len(descent.step_sizes)), shape, descent.epochs)
    warnings = (*hidden, *subspace_warnings(error, spec.rank))
    return RobustPCAPlan(
        **certified(releases, planner.statistics, target, shape.n, warnings),
        shape=shape,
        rank=spec.rank,
        loss="adaptive" if spec.adaptive else spec.loss,
        scale=loss_scale(spec),
        solver=spec.solver,
        start=start.start if start else descent and descent.start,
        consensus=start is not None and start.selects,
        center=bool(spec.center),
        center_step=center_step,
        step_sizes=descent.step_sizes if descent else (),
        explained=bool(spec.explained),
        descends_twice=descent is not None and descent.twice,
        epochs=descent.epochs if descent else None,
        releases=tuple(releases),
        expected_error=_expected(spec, shape, error),
        why=start.why if start else descent.why if descent else "",
        local_steps=spec.local_steps,
        server_step=spec.server_step,
        turns=spec.turns,
    )


def _expected(spec: RobustPCASpec, shape: VectorsMetadata, error: float) -> SubspaceError:
    """The error to expect, of this square of the distance, and what it takes for granted."""
    plain = (spec.adaptive or spec.loss == "squared") and spec.solver not in RELAXED
    return SubspaceError.of(
        error,
        spec.rank,
        shape.dim,
        assumes=_ASSUMES_SPREAD if plain else _ASSUMES_POPULATIONS,
        unfavourable=small_gap_error(error, spec.rank) if plain else right_angles(spec.rank),
    )


def _resolved(spec: RobustPCASpec, shape: VectorsMetadata) -> RobustPCASpec:
    """The choices, adaptive only where nothing of the descent was chosen and all columns are numbers.

    Distances of yes/no and of categories from a subspace are few, so that gaps between them are no sign of
    two populations.
    """
    left_out = {name: value for name, value in _defaults(shape).items() if getattr(spec, name) is None}
    spec = replace(spec, **left_out)
    if not (spec.adaptive and leaves_open(spec)):
        return replace(spec, adaptive=False)
    if shape.recipe is not None and len(shape.recipe.numbers) < shape.dim:
        return replace(spec, adaptive=False, loss="squared")
    return replace(spec, adaptive=shape.dim <= WIDEST_MOMENT)


def _defaults(shape: VectorsMetadata) -> dict[str, bool]:
    """A centre of a table's columns, whose means nobody knows to be amid the bounds; shares of variance."""
    return {"center": shape.recipe is not None, "explained": True}


def _refuse(spec: RobustPCASpec, shape: VectorsMetadata, target: PrivacyTarget) -> None:
    """Refuse what is out of range, and choices that would be passed over in silence.

    Raises:
        ValueError: one of these.
    """
    relaxed, stochastic = spec.solver in RELAXED, spec.solver in STOCHASTIC
    reduced = spec.solver == "rsvrg"
    robust = not relaxed and spec.loss != "squared"
    require_subspace("robust-pca", spec.rank, shape, target)
    require(spec.rank * shape.dim <= _WIDEST_BASIS, f"rank times columns must be at most {_WIDEST_BASIS}")
    require(reduced or (spec.steps or 1) <= _MOST_STEPS, f"steps must be at most {_MOST_STEPS}")
    require(
        spec.local_steps == 1 or not (relaxed or reduced), "local_steps belongs to the solvers ggd and sggd"
    )
    require(spec.turns == 1 or not (relaxed or reduced), "turns belong to the solvers ggd and sggd")
    require(not reduced or spec.loss == "squared", "rsvrg takes the loss squared, whose gradients are smooth")
    require(reduced or spec.epochs is None, "epochs belong to the solver rsvrg")
    require(spec.server_step == 1.0 or spec.local_steps > 1, APART)
    require(spec.step_size is None or spec.step_size >= 1e-9, "step_size must be at least 1e-9")
    require(loss_scale(spec) >= 1e-3, "scale must be at least 0.001")
    require(
        spec.scale is None or spec.loss in ("bounded", "redescending"),
        "scale belongs to the losses bounded and redescending",
    )
    require(spec.rate is None or spec.rate >= LEAST_RATE, f"rate must be at least {LEAST_RATE:g}")
    require(
        stochastic or (spec.rate is None and spec.sampling == "poisson"),
        "rate and sampling belong to the stochastic solvers",
    )
    require(
        not relaxed or (spec.start is None and spec.consensus is None and spec.loss == "redescending"),
        "start, consensus and loss belong to the solvers ggd, sggd and rsvrg",
    )
    require(
        spec.halvings is None or robust,
        "halvings belong to the robust losses of the solvers ggd and sggd",
    )
    require(
        spec.start != "analyze-gauss" or shape.dim <= WIDEST_MOMENT,
        f"start analyze-gauss takes at most {WIDEST_MOMENT} columns; sketch takes any number",
    )
    require(
        not spec.consensus or (spec.start != "random" and spec.loss != "squared"),
        "consensus needs a private start and a robust loss",
    )
    _refuse_long(spec, shape)


def _refuse_long(spec: RobustPCASpec, shape: VectorsMetadata, epochs: Epochs | None = None) -> None:
    """Refuse what takes too long.

    Raises:
        ValueError: this would.
    """
    steps = (spec.steps or 0) * spec.local_steps
    require(
        spec.solver == "rsvrg" or steps <= _MOST_STEPS,
        f"steps times local_steps must be at most {_MOST_STEPS}",
    )
    full = epochs.full_gradients * shape.n * shape.dim if epochs else 0
    work = full + _work(replace(spec, steps=epochs.steps) if epochs else spec, shape)
    require(work <= _LONGEST_RUN, "this run would take too long: ask for fewer steps")


def _work(spec: RobustPCASpec, shape: VectorsMetadata) -> float:
    """Entries that a descent of so many steps reads, and those of its iterates."""
    rows = shape.n if spec.solver not in STOCHASTIC else (spec.rate or BATCH / shape.n) * shape.n
    solver = solver_of(spec.solver, shape.dim, spec.rank)
    rows *= solver.reads if solver else 1
    return (spec.steps or 0) * spec.local_steps * shape.dim * (rows + 100.0 * spec.rank)


ROBUST_PCA = Estimator(
    name="robust-pca",
    schema_name="RobustPCA",
    title="robust PCA",
    summary="The private subspace that most rows lie near",
    plain_words=(
        "Finds the few directions along which records differ most. Records that are unlike the others "
        "hardly turn them: robust means that."
    ),
    metadata=VectorsMetadata,
    spec=RobustPCASpec,
    plan_type=RobustPCAPlan,
    error=SubspaceError,
    answer=Subspace,
    defaults=_defaults,
    unset={"center": False, "explained": False},
    planner=plan,
    run=run,
    shown=("solver", "start", "consensus", "why", "step_sizes", "local_steps", "server_step", "turns"),
    errors_apart=True,
    error_meaning="angles by which the noise turns the subspace, root mean square",
    unit="rad",
    certificates=lambda spec: int(spec.solver in STOCHASTIC),
)
