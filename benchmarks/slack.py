"""What accounting charges beyond what is lost, and what less of that has won: charged ε over true ε."""

from collections.abc import Callable
from functools import partial
from math import expm1, log1p, sqrt
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import (
    from_laplace_mechanism,  # pyright: ignore[reportUnknownVariableType]
)

from benchmarks.report import publish, table
from benchmarks.robust_pca import HAYSTACKS, answer, in_short, squared_distance
from privest.data.metadata import DatasetMetadata, LabelledMetadata, PointsMetadata, VectorsMetadata
from privest.data.records import Records
from privest.estimators import federation
from privest.estimators.frechet_mean.frechet_mean import FRECHET_MEAN, FrechetMeanSpec
from privest.estimators.linear_model.logistic_regression import LOGISTIC_REGRESSION, LogisticSpec
from privest.estimators.subspace.robust_pca import ROBUST_PCA, RobustPCASpec
from privest.privacy import budget
from privest.privacy.accounting import PrivacyTarget, epsilon_for, mu_of_pure
from privest.privacy.budget import gaussian_budgets
from privest.privacy.gate import Gate
from privest.privacy.laplace_accounting import OnALine, cost_of_pure, mu_of_laplace
from privest.privacy.mechanisms import SubsampledSum, amplified, unamplified
from privest.privacy.subsampling import noise_for, runs_of
from privest_papers import accelerated
from privest_papers.noise_division import BatchLaw
from privest_service.ledger.units import Limits
from testing.sampled_runs import RUNS, right_angles_epsilon, true_epsilon

DELTA, N, REAPER_RUNS, ANSWERS = 1e-6, 10_000, 40, 100
BEFORE = 0.0
"""Slack per μ² by which a run takes the least slack, δ/200, as every run did."""


def charged() -> list[list[str]]:
    """Charged ε over true ε of runs for (1, 1e-6)."""
    lines = list[list[str]]()
    for scheme in ("poisson", "fixed"):
        for rate, steps in RUNS:
            line = [scheme, f"{rate:g}", f"{steps:,}"]
            for allowed in (BEFORE, None):
                run = noise_for(scheme, rate, steps, gaussian_budgets(PrivacyTarget(1.0, DELTA, allowed)))
                line += [f"{run.noise:.4f}", f"{1 / true_epsilon([run], DELTA):.3f}"]
            lines.append(line)
    return lines


def answers() -> list[list[str]]:
    """Noise on a gradient, before over after: on a basic budget, and on gdp budgets of (1 or 3, 1e-5)."""
    points = PointsMetadata(N, {"name": "euclidean", "dim": 5}, radius=1.0)
    labelled = LabelledMetadata(N, ("a", "b", "c"), "y", ("0", "1"), 2.0, (0.0,) * 3, (1.0,) * 3)
    one = FrechetMeanSpec(solver="rsgd", rate=1 / N, steps=N, clip=1.0, diagnostics=False)
    many = FrechetMeanSpec(solver="rsgd", rate=0.01, steps=100, clip=1.0, diagnostics=False)
    cases: list[tuple[str, Any, Any, DatasetMetadata]] = [
        ("mean, rsgd, one record a step, 10,000 steps", FRECHET_MEAN, one, points),
        ("mean, rsgd, 100 records a step, 100 steps", FRECHET_MEAN, many, points),
        ("robust PCA, sggd, 10 records a step", ROBUST_PCA,
         RobustPCASpec(2, solver="sggd", rate=0.001, steps=100), VectorsMetadata(N, 10)),
        ("logistic regression, nag-opt, 100 records a step", LOGISTIC_REGRESSION,
         LogisticSpec(solver="nag-opt", batch_size=100), labelled),
    ]  # fmt: skip
    budgets = [None, *(Limits.of(epsilon, 1e-5, "gdp").slack_per_mu_squared for epsilon in (1, 3))]
    lines = list[list[str]]()
    for about, estimator, spec, shape in cases:

        def noise(allowed: float | None) -> float:
            plan = estimator.plan(spec, shape, PrivacyTarget(0.5, DELTA, allowed))  # noqa: B023
            return min(r.deviation for r in plan.releases if isinstance(r, SubsampledSum))

        before = noise(BEFORE)
        lines.append([about, f"{before:.4g}", *(f"{before / noise(allowed):.3f}" for allowed in budgets)])
    return lines


def at_right_angles() -> list[list[str]]:
    """Charged ε over that of orthogonal vectors, as if vectors could be opposite, and as no two can be."""
    lines = list[list[str]]()
    for rate, steps in (*RUNS, (0.0256, 200), (0.128, 200)):
        line = [f"{rate:g}", f"{steps:,}"]
        for apart in (2.0, sqrt(2)):
            run = noise_for("poisson", rate, steps, gaussian_budgets(PrivacyTarget(1.0, DELTA)), apart)
            line += [f"{run.noise:.4f}", f"{1 / right_angles_epsilon(run, DELTA):.3f}"]
        lines.append(line)
    return lines


def reaper() -> list[list[str]]:
    """Errors of the stochastic REAPER solvers, before and after, on the same data."""
    lines = list[list[str]]()
    for case in HAYSTACKS[:2]:
        for solver in ("sgd-reaper", "smd-reaper"):
            with patch.object(budget, "apart", lambda *_: 2.0):
                before = case.plan(solver=solver)
            plans = before, case.plan(solver=solver)
            noise = [plan.releases[-1].deviation for plan in plans]
            errors: list[list[float]] = [[], []]
            for seed in range(REAPER_RUNS):
                truth, rows = case.drawn(seed)
                for plan, found in zip(plans, errors, strict=True):
                    found.append(squared_distance(truth, answer(plan, rows)))
            won = median(errors[0]) / median(errors[1])
            line = [f"{case.label}, {case.size}", solver, f"{noise[0] / noise[1]:.2f}"]
            lines.append([*line, *map(in_short, errors), f"{won:.2f}"])
    return lines


def pure() -> list[list[str]]:
    """With δ = 0 and ε = 1: noise by the curve of batches of fixed size over that by Poisson's own."""
    ratio: Callable[[float], float] = lambda rate: (  # noqa: E731
        unamplified(1.0, rate, "poisson") / log1p(expm1(1.0) / rate)
    )
    return [[f"{rate:g}", f"{ratio(rate):.2f}"] for rate in (0.001, 0.01, 0.1, 0.5)]


def pure_on_gdp() -> list[list[str]]:
    """Laplace releases of one number, charged in μ: ε of that over true ε, and noise over Gaussian noise."""
    lines = list[list[str]]()
    for whole in (0.3, 1.0, 3.0):
        for count in (1, 3, 10, 30, 100):
            each = whole / count
            one_by_one = sqrt(count) * mu_of_laplace(each, 1)
            together = sqrt(cost_of_pure(OnALine(each, each / 2), mu_of_laplace(each, 1), count).mu_squared)
            one = from_laplace_mechanism(1 / each, value_discretization_interval=min(1e-4, each / 200))
            true = float(one.self_compose(count).get_epsilon_for_delta(DELTA))
            ratios = [f"{epsilon_for(mu, DELTA) / true:.2f}" for mu in (one_by_one, together)]
            lines.append([f"{whole:g}", str(count), *ratios, f"{sqrt(2 / count) * together / each:.2f}"])
    return lines


def pure_batches_on_gdp() -> list[list[str]]:
    """Laplace noise over Poisson batches, charged in μ: by the worst case of its ε, and by its own loss."""
    lines = list[list[str]]()
    for rate, count in ((0.001, 10), (0.01, 1), (0.01, 100), (0.1, 10), (0.1, 100), (0.5, 30)):
        far = unamplified(1.0 / count, rate, "poisson") / 2
        each = amplified(2 * far, rate, "poisson")
        mu = mu_of_pure(each)
        together = sqrt(cost_of_pure(OnALine(each, far, rate), mu, count).mu_squared)
        worst = epsilon_for(sqrt(count) * mu, DELTA)
        lines.append([f"{rate:g}", str(count), f"{worst:.3f}", f"{epsilon_for(together, DELTA):.3f}"])
    return lines


def accuracy() -> list[list[str]]:
    """Squared errors of answers on a basic budget, with the least slack and with what is found."""
    rng = np.random.default_rng(0)
    points = PointsMetadata(N, {"name": "euclidean", "dim": 5}, radius=1.0)
    labelled = LabelledMetadata(N, ("a", "b", "c"), "y", ("0", "1"), 2.0, (0.0,) * 3, (1.0,) * 3)
    near = 0.2 + 0.1 * rng.standard_normal((N, 5))
    wide = rng.standard_normal((N, 10)) * np.array([3.0, 2.0, *[0.3] * 8])
    labels = labelled.dummy(N, rng)
    without = LOGISTIC_REGRESSION.plan(LogisticSpec(), labelled, PrivacyTarget(100.0, DELTA))
    weights = np.ravel(fitted(LOGISTIC_REGRESSION, without, labels).coefficients)
    cases: list[tuple[str, Any, Any, DatasetMetadata, Any, Callable[[Any], float]]] = [
        ("mean, rsgd, one record a step, 10,000 steps", FRECHET_MEAN,
         FrechetMeanSpec(solver="rsgd", rate=1 / N, steps=N, clip=1.0, diagnostics=False), points, near,
         lambda found: float(np.sum((found.point - near.mean(axis=0)) ** 2))),
        ("robust PCA, sggd, 10 records a step", ROBUST_PCA,
         RobustPCASpec(2, solver="sggd", rate=0.001, steps=100), VectorsMetadata(N, 10), wide,
         lambda found: squared_distance(np.eye(10)[:, :2], found.basis)),
        ("logistic regression, nag-opt, 100 records a step", LOGISTIC_REGRESSION,
         LogisticSpec(solver="nag-opt", batch_size=100), labelled, labels,
         lambda found: float(np.sum((np.ravel(found.coefficients) - weights) ** 2))),
    ]  # fmt: skip
    lines = list[list[str]]()
    for about, estimator, spec, shape, rows, error in cases:
        plans = [estimator.plan(spec, shape, PrivacyTarget(0.5, DELTA, slack)) for slack in (BEFORE, None)]
        lines.append([about, *compared(estimator, plans, rows, error)])
    about, estimator, spec, shape, rows, error = cases[-1]
    with patch.object(accelerated, "BatchLaw", partial(BatchLaw, scheme="fixed")):
        pure_plans = [estimator.plan(spec, shape, PrivacyTarget(0.5, 0.0))]
    pure_plans.append(estimator.plan(spec, shape, PrivacyTarget(0.5, 0.0)))
    lines.append([f"{about}, δ = 0", *compared(estimator, pure_plans, rows, error)])
    return lines


def compared(estimator: Any, plans: list[Any], rows: Any, error: Callable[[Any], float]) -> list[str]:
    """Errors of answers by the plan of before and by that of now, and their ratio."""
    errors = [[error(fitted(estimator, plan, rows)) for _ in range(ANSWERS)] for plan in plans]
    before, now = map(median, errors)
    return [*map(in_short, errors), f"{before / now:.2f}"]


def fitted(estimator: Any, plan: Any, rows: Any) -> Any:
    """The answer of a plan on these rows."""
    return estimator.run(plan, Gate(Records(rows, threads=1), plan.statistics, plan.releases))


def several_owners() -> float:
    """The most that an owner is charged over true ε, of accelerated descents with up to twelve noises."""
    facts = (("a", "b", "c"), "y", ("0", "1"), 2.0, (0.0,) * 3, (1.0,) * 3)
    shapes = [LabelledMetadata(n, *facts) for n in (3_000, 9_000)]
    targets = [PrivacyTarget(1.0, DELTA), PrivacyTarget(2.0, DELTA)]
    spec = LogisticSpec(solver="nag-opt", batch_size=100, steps=200)
    parts = federation.plan(partial(LOGISTIC_REGRESSION.plan, spec), shapes, targets).parts
    return max(
        part.target.epsilon
        / true_epsilon(runs_of(r for r in part.releases if isinstance(r, SubsampledSum)), DELTA)
        for part in parts
    )


def summary(sampled: list[list[str]], angles: list[list[str]], alone: list[list[str]]) -> list[list[str]]:
    """What was to be reached, beside what was, from the other tables."""
    most = max(float(line[-1]) for line in sampled)
    owners = several_owners()
    right = [float(line[-1]) for line in angles]
    single = [float(line[3]) for line in alone if line[1] == "1"]
    many = [float(line[3]) for line in alone if int(line[1]) >= 30]
    return [
        ["runs over batches, of either scheme", "1.02", f"{most:.3f}", "yes" if most <= 1.02 else "**no**"],
        ["the same with twelve kinds of noise, two owners", "1.02", f"{owners:.3f}",
         "yes" if owners <= 1.02 else "**no**"],
        ["Poisson batches of vectors that are never opposite, of the worst known", "1.02",
         f"{min(right):.3f} to {max(right):.3f}", "**no**: the bound is on a line, they are not"],
        ["Laplace noise on a gdp budget, one number, 30 releases or more", "1.10",
         f"{min(many):.2f} to {max(many):.2f}", "yes" if max(many) <= 1.10 else "**no**"],
        ["the same, a single release", "1.10", f"{min(single):.2f} to {max(single):.2f}",
         "**no**: no μ is smaller"],
    ]  # fmt: skip


def main() -> None:
    """Compare."""
    head = ["batches", "rate", "steps", "σ/C before", "charged/true", "σ/C now", "charged/true"]
    sampled, angles, alone = charged(), at_right_angles(), pure_on_gdp()
    body = f"""
Charged ε over true ε: what was to be reached, and the most and the least that the tables below have.

{table(["what", "goal", "found", "reached"], summary(sampled, angles, alone))}

What exact noise costs of time is in [another section](#what-exact-noise-adds-to-a-run).

Charged ε over true ε of runs for (1, 1e-6): before, with δ/200 for slack, and now that the share is searched.
True is what dp-accounting composes; for batches of a fixed size it is that of their curve.

{table(head, sampled)}

Noise on a gradient of runs for (.5, 1e-6), on {N:,} records, before over now. On a gdp budget a run may use
as much of the slack as it uses of μ².

{table(["run", "deviation before", "basic", "gdp (1, 1e-5)", "gdp (3, 1e-5)"], answers())}

Vectors no two of which are opposite, as REAPER's: √2 times the clip apart at most. Charged ε over what
orthogonal ones lose by dp-accounting, the worst known, of runs for (1, 1e-6) over Poisson batches: before, as
if two could be opposite, and now. Of batches of a fixed size all noise is √2 times less.

{table(["rate", "steps", "σ/C before", "charged/lost", "σ/C now", "charged/lost"], angles)}

Squared distance of REAPER's answers from the true subspace, median and 90 % quantile of {REAPER_RUNS} runs on
data that are drawn anew each time.

{table(["case", "solver", "noise, before over now", "before", "now", "before over now"], reaper())}

Noise of Poisson batches with δ = 0 for ε = 1 a step, before over now. Before, it was by the curve of batches
of a fixed size.

{table(["rate", "before over now"], pure())}

Squared error of answers to questions for (.5, 1e-6) on a basic budget, before and now, on the same data:
median and 90 % quantile of {ANSWERS} runs. The last is for (.5, 0), before by the
curve of batches of a fixed size.

{table(["run", "before", "now", "before over now"], accuracy())}

Releases of one number with Laplace noise on a gdp budget, together ε-private without δ: charged ε over true
ε, both at δ = 1e-6, the true one by dp-accounting; before, one by one, and now, together. And their noise
over that of Gaussian releases which are charged as much.

{table(["ε together", "releases", "charged/true before", "now", "noise over Gaussian"], alone)}

Laplace noise over Poisson batches on a gdp budget, together 1-private without δ: charged ε at δ = 1e-6.
Before, by the worst case of their ε, and one by one.

{table(["rate", "releases", "charged ε before", "now"], pure_batches_on_gdp())}
"""
    publish("slack", "What slack costs, and what searching for it has won", body)


if __name__ == "__main__":
    main()
