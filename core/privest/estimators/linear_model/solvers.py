"""The solvers of a logistic regression: which there are, the default, and one with its constants."""

from privest.data.metadata import LabelledMetadata
from privest.data.tables import listed
from privest.estimators import paper_solvers
from privest.estimators.base import require
from privest.estimators.linear_model.clipped import ClippedSolver
from privest.estimators.linear_model.linear_solver import LinearSolver
from privest.estimators.linear_model.logistic_spec import LogisticSpec, Solver
from privest.estimators.linear_model.newton import MOST_COEFFICIENTS, NewtonSolver
from privest.estimators.linear_model.scaling import PrivateScaling
from privest.memo import memoized
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import PrivacyBudget

NONCONVEX = ("escape", "spider")
"""Solvers of the other losses than `logistic`."""

MOST_FEATURES = 2_000
"""Most features of a second moment, whose release has a number for every pair of them."""

MOMENTS_SHARE = 0.2
"""Share of ε or of μ² for a second moment from which sampling errors follow."""

_QUIET, _NEXT_TO_NONE = 0.8, 1e-3
"""Noise on the second moment's eigenvalues, over their mean, below which `newton` is the default: for two
classes, and for more. With more noise `clipped` was right more often on every table that constants are chosen
on, and nearer in coefficients where either told them."""


def budget_of(spec: LogisticSpec, shape: LabelledMetadata, target: PrivacyTarget) -> PrivacyBudget:
    """All that may be spent."""
    batches = spec.batch_size is not None and spec.batch_size < shape.n
    return PrivacyBudget.of(target, shape.n, batches=batches)


def solver_class(name: Solver) -> type[LinearSolver]:
    """Return the class of a solver; those of papers are read only here."""
    if name == "newton":
        return NewtonSolver
    if name == "clipped":
        return ClippedSolver
    if name == "escape":
        return paper_solvers.escape()
    return paper_solvers.spider() if name == "spider" else paper_solvers.accelerated_descent()


def default_solver(spec: LogisticSpec, shape: LabelledMetadata, target: PrivacyTarget) -> Solver:
    """The solver where the analyst names none: it follows from the loss and the expected noise."""
    if spec.loss != "logistic":
        return "escape"
    newton = NewtonSolver(shape, budget_of(spec, shape, target), 0.0, spec.intercept)
    quiet = newton.relative_noise < (_QUIET if len(shape.classes) == 2 else _NEXT_TO_NONE)
    return "newton" if quiet and newton.coefficients <= MOST_COEFFICIENTS else "clipped"


def scaling_of(
    spec: LogisticSpec, shape: LabelledMetadata, target: PrivacyTarget, solver: Solver
) -> PrivateScaling | None:
    """Return what a run first finds out about the features, or None.

    With private standardisation these are units of the features and a bound on their length; with a public
    one of features that have no bounds `newton` needs a bound on their length alone.
    """
    learns = spec.standardisation == "private"
    unbounded = solver_class(solver).needs_lengths and shape.norm_bound is None and shape.recipe is None
    if not learns and not unbounded:
        return None
    return PrivateScaling(shape, budget_of(spec, shape, target), spread=learns)


def standardises(spec: LogisticSpec, shape: LabelledMetadata, target: PrivacyTarget) -> bool:
    """Return whether a run begins with what features are divided by, where the analyst does not say.

    A table has bounds, of which features may fill a small part, or none: units are found unless the noise
    hides them. Any other schema declares means and scales. `spider` sees each record once, and cannot.
    """
    if shape.recipe is None or (spec.solver and not solver_class(spec.solver).learns_units):
        return False
    scaling = PrivateScaling(shape, budget_of(spec, shape, target), spread=True)
    return scaling.open_columns is not None or scaling.is_worth_it


def informs(spec: LogisticSpec, solver: Solver) -> bool:
    """Whether a run ends with a second moment for the sampling errors alone; `newton` has one in any case."""
    return spec.sampling_errors and not solver_class(solver).knows_sampling


@memoized
def configured_solver(
    spec: LogisticSpec, shape: LabelledMetadata, target: PrivacyTarget, solver: Solver, penalty: float
) -> LinearSolver:
    """Return a solver with its constants, on what standardisation and sampling errors leave of the budget."""
    scaling = scaling_of(spec, shape, target, solver)
    taken = (scaling.share if scaling else 0.0) + MOMENTS_SHARE * informs(spec, solver)
    budget = budget_of(spec, shape, target).part(1 - taken)
    return solver_class(solver).of(spec, shape, target, budget, penalty)


def require_fitting(
    spec: LogisticSpec, shape: LabelledMetadata, solver: Solver, target: PrivacyTarget
) -> None:
    """Refuse solver, loss and data that do not go together.

    Raises:
        ValueError: these do not.
    """
    plain, recipe = spec.loss == "logistic", shape.recipe
    if recipe is not None and not recipe.is_bounded and spec.standardisation != "private":
        names = [feature.name for feature in recipe.features if not feature.is_bounded]
        raise ValueError(
            f"no scale is known of {listed(names)}: declare low and high in the schema, or have the run find "
            "one, by private standardisation and any solver but spider"
        )
    require(
        plain or solver in NONCONVEX,
        f"the loss {spec.loss} is for the solvers escape and spider: leave solver out, or ask for the "
        "loss logistic",
    )
    require(
        not plain or solver not in NONCONVEX,
        f"{solver} is for the losses sigmoid, savage and logistic-nonconvex: name one",
    )
    require(
        plain or len(shape.classes) == 2,
        f"the loss {spec.loss} is for two classes: ask for the loss logistic, or for a dataset of two",
    )
    require(
        plain or not spec.sampling_errors,
        "sampling_errors are those of the loss logistic: of others they are not known",
    )
    solver_class(solver).refuse(spec, shape, target)
