"""ε found for an accuracy: are answers as near as was asked for, and is ε the least that does it?

Means of columns ask for one column's interval in its own units, means on manifolds, subspaces and scores of
classifiers for `within`. What is asked for is what some ε foretells, rounded as people write numbers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from math import exp, log, sqrt
from statistics import median
from typing import Any

import numpy as np

from benchmarks import coverage_classifiers, coverage_means, tables
from benchmarks.column_means import metadata_of
from benchmarks.report import publish, table
from benchmarks.robust_pca import squared_distance
from privest.data.metadata import PointsMetadata, VectorsMetadata
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, metadata_for
from privest.estimators.epsilon_search import least_epsilon
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FRECHET_MEAN, FrechetMeanSpec
from privest.estimators.linear_model import classifier_score
from privest.estimators.linear_model.classifier_score import ScoreSpec
from privest.estimators.subspace import adaptive, robust_pca
from privest.estimators.subspace.robust_pca import RobustPCASpec
from privest.estimators.subspace.spherical import on_sphere
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from privest.privacy.noise import NoiseSource
from testing.noise import ScaledNoise, ScriptedNoise

RUNS, EPSILONS = 40, (0.2, 0.5, 1.0, 2.5)
COLUMNS = ("housing", "women at work", "schools", "health costs", "diamonds", "savings", "magic", "flights")
SUBSPACES = ("pen digits", "satimage", "diamonds")
SCORES = ("magic", "women at work", "affairs")
_MANIFOLDS = 6
_MOST_ROWS = 10_000


@dataclass(frozen=True)
class Question:
    """What is asked of a table.

    Attributes:
        name: of the table, and of what is asked of it.
        plan: by ε.
        foretold: the figure of a plan that is asked to be small.
        error: of one run's answer in the units of that figure, by plan and seed.
    """

    name: str
    plan: Callable[[float], Any]
    foretold: Callable[[Any], float]
    error: Callable[[Any, int], float]


def _answer(run: Callable[..., Any], plan: Any, records: Records, noise: NoiseSource) -> Any:
    return run(plan, Gate(records, plan.statistics, plan.releases, noise))


def within(plan: Any) -> float:
    """The figure that 95 % of runs do not exceed, whatever the records are."""
    return float(getattr(plan.expected_error, plan.expected_error.WITHIN))


def of_column(name: str, place: int) -> Question:
    """The mean of all columns of a table, with one column's error asked for."""
    shown = tables.table(name)
    column, exact = shown.columns[place], float(shown.rows[:, place].mean())
    made = metadata_for(PointsMetadata, metadata_of(shown), TableChoice(None))
    assert isinstance(made, PointsMetadata)
    records = Records(shown.rows, threads=1, recipe=made.recipe)

    def plan(epsilon: float) -> Any:
        return frechet_mean.plan(FrechetMeanSpec(), made, PrivacyTarget(epsilon, shown.n**-1.5))

    def error(planned: Any, seed: int) -> float:
        found = _answer(FRECHET_MEAN.run, planned, records, ScaledNoise(seed=[31, seed]))
        told = found.in_columns(made.recipe, planned.expected_error).columns
        return abs(float(told[place].value) - exact)

    def foretold(planned: Any) -> float:
        return next(each.radius_95 for each in planned.columns if each.name == column)

    return Question(f"{name}: mean of {column}", plan, foretold, error)


def of_manifold(case: coverage_means.Case) -> Question:
    """A mean on a manifold."""

    def plan(epsilon: float) -> Any:
        return case.plan(FrechetMeanSpec(), epsilon)

    records = Records(case.points, threads=1)

    def error(planned: Any, seed: int) -> float:
        return float(
            case.space.dist(
                case.mean, _answer(FRECHET_MEAN.run, planned, records, ScaledNoise(seed=[31, seed])).point
            )
        )

    return Question(f"{case.name}: mean", plan, within, error)


def of_subspace(name: str) -> Question:
    """The first direction of a table, by robust PCA with its defaults."""
    rows = np.ascontiguousarray(tables.table(name).standardised[:_MOST_ROWS])
    n, dim = rows.shape
    x = on_sphere(rows)
    principal = np.linalg.eigh(x.T @ x)[1][:, -1:]
    records = Records(rows, threads=1)

    def plan(epsilon: float) -> Any:
        return robust_pca.plan(RobustPCASpec(1), VectorsMetadata(n, dim), PrivacyTarget(epsilon, 1e-6))

    def error(planned: Any, seed: int) -> float:
        found = _answer(robust_pca.run, planned, records, ScaledNoise(seed=[31, seed]))
        exact = principal
        if found.uncertainty.of != adaptive.principal_of(None):
            exact = _answer(robust_pca.run, planned, records, ScriptedNoise()).basis
        return sqrt(squared_distance(exact, found.basis))

    return Question(f"{name}: first direction", plan, within, error)


def of_score(name: str) -> Question:
    """The accuracy of a table's own fit."""
    shown = tables.table(name)
    weights = coverage_classifiers.fitted(name)
    own = weights[:, :-1] / shown.scale
    intercept = weights[:, -1] - own @ shown.center
    exact = float(np.mean((shown.rows @ own[0] + intercept[0] > 0) == shown.labels))
    records = Records(np.column_stack([shown.rows, shown.labels.astype(float)]), threads=1)

    def plan(epsilon: float) -> Any:
        spec = ScoreSpec(own[0].tolist(), float(intercept[0]), "accuracy")
        facts = coverage_classifiers.facts(shown)
        return classifier_score.plan(spec, facts, PrivacyTarget(epsilon, coverage_classifiers.DELTA))

    def error(planned: Any, seed: int) -> float:
        found = _answer(classifier_score.run, planned, records, ScaledNoise(seed=[31, seed]))
        return abs(float(found.value) - exact)

    return Question(f"{name}: accuracy", plan, within, error)


def questions() -> Iterator[Question]:
    """All that are asked."""
    for place, name in enumerate(COLUMNS):
        yield of_column(name, place % tables.table(name).dim)
    curved = (case for case in coverage_means.cases("TUNE") if case.manifold["name"] != "euclidean")
    yield from (of_manifold(case) for case, _ in zip(curved, range(_MANIFOLDS), strict=False))
    yield from map(of_subspace, SUBSPACES)
    yield from map(of_score, SCORES)


def _least(question: Question, target: float) -> float:
    """The least ε whose plan foretells the target, to one part in 1,000: the long way."""
    low, high = 1e-6, 1e3
    while log(high / low) > 1e-3:
        middle = exp((log(low) + log(high)) / 2)
        try:
            enough = question.foretold(question.plan(middle)) <= target
        except ValueError:  # no plan for so small an ε
            enough = False
        low, high = (low, middle) if enough else (middle, high)
    return high


def line(question: Question, near: float) -> tuple[str, float, int, float, float]:
    """Name, target, plans made, ε over the least, and the share of runs within the target."""
    target, plans = float(f"{question.foretold(question.plan(near)):.2g}"), 0

    def ratio(epsilon: float) -> float:
        nonlocal plans
        plans += 1
        try:
            return question.foretold(question.plan(epsilon)) / target
        except ValueError:
            return float("inf")

    epsilon = least_epsilon(ratio)
    planned = question.plan(epsilon)
    errors = np.array([question.error(planned, seed) for seed in range(RUNS)])
    found = (
        question.name,
        target,
        plans,
        epsilon / _least(question, target),
        float(np.mean(errors <= target)),
    )
    print(*found, f"{epsilon:g}", f"{np.median(errors) / target:.2f}", sep=" | ", flush=True)
    return found


HEADER = ("table", "error at most", "plans", "ε over the least", "within")


def main() -> None:
    """Measure, and publish."""
    found = [line(*each) for each in zip(questions(), cycle(EPSILONS), strict=False)]
    _, _, plans, more, within = zip(*found, strict=True)
    body = f"""
{len(found)} tables and targets, {RUNS} runs each. {np.mean(within):.1%} of all runs are within what was asked
for (least {min(within):.0%}; the goal is 93 %). The ε that is found is {median(more):.3f} times the least one
in the median, and at most {max(more):.3f} (the goal is 1.1), by {median(plans):g} plans in the median and at
most {max(plans)} (the goal is 5). The forecast is for any rows that the public facts allow, so that most
answers are nearer than was asked for.

{table(HEADER, [(name, f"{t:g}", p, f"{m:.3f}", f"{w:.0%}") for name, t, p, m, w in found])}
"""
    publish("accuracy-targets", "ε for an accuracy", body)


if __name__ == "__main__":
    main()
