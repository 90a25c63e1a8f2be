"""What Gaussian noise saves the descents of Kuru et al. 2022, as they are served: against Laplace noise."""

from math import sqrt
from statistics import mean

import numpy as np

from benchmarks.figures_acceleration import DIM, PENALTY, SOLVERS, N, Problem, uniform
from benchmarks.report import publish, table
from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.estimators.linear_model import logistic_regression
from privest.estimators.linear_model.logistic_regression import LogisticSpec
from privest.estimators.linear_model.logistic_spec import DescentSolver
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate

RUNS = 3


def error_of(problem: Problem, solver: DescentSolver, target: PrivacyTarget, runs: int) -> tuple[float, int]:
    """Mean F − F* of what is served, and its steps: public constants, rows scaled to at most one long."""
    n, dim = problem.features.shape
    shape = LabelledMetadata(n, tuple(map(str, range(dim))), "y", ("-1", "1"), norm_bound=sqrt(dim))
    spec = LogisticSpec(solver=solver, penalty=PENALTY, intercept=False, steps=100)
    planned = logistic_regression.plan(spec, shape, target)
    rows = Records(np.column_stack([problem.features, (problem.signs > 0).astype(float)]), threads=1)
    unit = Problem(problem.features / sqrt(dim), problem.signs)
    errors: list[float] = []
    for _ in range(runs):
        gate = Gate(rows, planned.statistics, planned.releases)
        found = logistic_regression.run(planned, gate).coefficients * sqrt(dim)
        errors.append(float(unit.value(found[None])[0]) - unit.least)
    return mean(errors), planned.steps


def noises() -> str:
    """A table of what Laplace and Gaussian noise leave, for settings in which they differ more or less."""
    lines: list[list[str]] = []
    for n, dim, epsilon in ((N, DIM, 1.0), (N, DIM, 10.0), (10_000, 100, 1.0)):
        problem = uniform(n, dim)
        for solver in SOLVERS:
            laplace, gaussian = (
                error_of(problem, solver, PrivacyTarget(epsilon, delta), RUNS) for delta in (0.0, 1e-6)
            )
            lines.append(
                [
                    f"{n:,} × {dim}, ε = {epsilon:g}",
                    solver,
                    *(f"{error:.2g} ({steps})" for error, steps in (laplace, gaussian)),
                    f"{laplace[0] / gaussian[0]:.0f}",
                ]
            )
            print(lines[-1], flush=True)
    return table(["rows, ε", "solver", "Laplace (steps)", "Gaussian (steps)", "ratio"], lines)


def main() -> None:
    body = f"""
Not in the paper, which leaves it as future work. What is served: public constants, rows scaled to
length at most one, Laplace noise of Euclidean calibration against Gaussian noise of the same ε with δ =
1e-6, at most 100 steps, mean F − F* of {RUNS} runs. Noise of equal shares has variance ∝ T² under δ = 0
and ∝ T otherwise, and Laplace's grows with the number of weights too. Of `masg` at ε = 10 most of what
is left is not noise: its later steps are too short to arrive.

{noises()}
"""
    publish(
        "descents", "Gaussian noise for the descents of Kuru et al. (2022)", body, page="reproductions.md"
    )


if __name__ == "__main__":
    main()
