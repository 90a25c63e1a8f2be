"""Means whose radius is declared too large, or not at all, beside the best clip in hindsight and CoinPress.

Rows of tables are in units of their columns' true standard deviations, about a centre that is off by half
of the declared radius. CoinPress (Biswas, Dong, Kamath and Ullman 2020, Algorithm 3) is told the same radius,
and that its rows are normal with the covariance I. The best number of its steps is chosen in hindsight.
"""

from collections.abc import Iterator
from math import log, sqrt
from typing import Any

import numpy as np

from benchmarks.coverage_means import DELTA, Case, cases
from benchmarks.report import publish, table
from privest.arrays import Array, lengths
from privest.data.metadata import PointsMetadata
from privest.data.records import Records
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FRECHET_MEAN, FrechetMeanSpec
from privest.privacy.accounting import PrivacyTarget, mu_for
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise

EPSILONS, WIDE, RUNS = (0.1, 0.3, 1.0), (1.0, 10.0, 100.0, 1000.0, None), 40
_ROWS = 10_000
_BETA = 0.1


def shown() -> Iterator[Case]:
    """Rows of 20 numbers by three laws, and the larger tables and points of `TUNE`."""
    rng = np.random.default_rng(1)
    laws = {
        "normal": rng.standard_normal((_ROWS, 20)),
        "heavy": rng.standard_normal((_ROWS, 20)) * np.exp(rng.standard_normal((_ROWS, 1))),
        "skewed": np.exp(rng.standard_normal((_ROWS, 20))),
    }
    space: dict[str, Any] = {"name": "euclidean", "dim": 20}
    for name, rows in laws.items():
        away = lengths(rows - rows.mean(axis=0))
        yield Case(name, rows, space, float(np.quantile(away, 0.99)))
    for each in cases("TUNE"):
        if len(each.points) >= 4_000:
            yield each


def ours(case: Case, wide: float | None, epsilon: float) -> Array:
    """Errors of runs."""
    space = case.space
    center = None
    if wide is not None:
        step = np.zeros(space.coordinate_size)
        step[0] = 0.5 * min(wide * case.radius, space.widest_radius)
        flat = space.curvature == (0.0, 0.0)
        center = space.exp_coordinates(case.mean, step).tolist() if flat else None
    radius = None if wide is None else min(wide * case.radius, space.widest_radius)
    shape = PointsMetadata(len(case.points), case.manifold, center, radius)
    plan = frechet_mean.plan(FrechetMeanSpec(), shape, PrivacyTarget(epsilon, DELTA))
    records = Records(case.points, threads=1)
    noises = (ScaledNoise(seed=[31, seed]) for seed in range(RUNS))
    found = [FRECHET_MEAN.run(plan, Gate(records, plan.statistics, plan.releases, noise)) for noise in noises]
    return case.errors(found)


def coinpress(rows: Array, radius: float, epsilon: float) -> float:
    """Root mean square error of CoinPress with its best number of steps; its last has three quarters of ρ."""
    n, dim = rows.shape
    mean, rho = rows.mean(axis=0), mu_for(epsilon, DELTA) ** 2 / 2
    usual, furthest = (sqrt(dim + 2 * sqrt(dim * log(x)) + 2 * log(x)) for x in (1 / _BETA, n / _BETA))
    found = list[float]()
    for steps in (1, 2, 3, 5, 10):
        squares = list[float]()
        for seed in range(RUNS):
            rng = np.random.default_rng([32, seed])
            center, ball = mean + 0.5 * radius * np.eye(dim)[0], radius
            for step in range(steps):
                share = 1.0 if steps == 1 else 0.75 if step == steps - 1 else 0.25 / (steps - 1)
                away = rows - center
                away *= np.minimum(1.0, (ball + furthest) / np.maximum(lengths(away), 1e-300))[:, None]
                noise = 2 * (ball + furthest) / n / sqrt(2 * rho * share)
                center = center + away.mean(axis=0) + noise * rng.standard_normal(dim)
                ball = usual * sqrt(1 / n + noise**2)
            squares.append(float(np.sum((center - mean) ** 2)))
        found.append(sqrt(np.mean(squares)))
    return min(found)


def main() -> None:
    """Measure, and publish."""
    lines = list[list[str]]()
    worst = {epsilon: list[float]() for epsilon in EPSILONS}
    for case in shown():
        for epsilon in EPSILONS:
            ideal = sqrt(float(np.mean(case.ideal(epsilon) ** 2)))
            off = [ours(case, wide, epsilon) for wide in WIDE]
            ratios = [sqrt(float(np.mean(each**2))) / ideal for each in off]
            worst[epsilon] += ratios[1:]
            furthest = max(float(each.max()) / sqrt(float(np.mean(each**2))) for each in off)
            peers = ["", ""]
            if case.manifold["name"] == "euclidean":
                radii = (case.radius, 1000 * case.radius)
                peers = [f"{coinpress(case.points, radius, epsilon) / ideal:.2f}" for radius in radii]
            numbers = [f"{each:.2f}" for each in (*ratios, furthest)]
            lines.append([case.name, f"{epsilon:g}", *numbers, *peers])
            print(lines[-1], flush=True)
    told = "; ".join(
        f"ε = {epsilon:g}: {np.median(each):.2f}, {np.quantile(each, 0.9):.2f} and {max(each):.2f}"
        for epsilon, each in worst.items()
    )
    titles = ["records", "ε", "right", "10 ×", "100 ×", "1,000 ×", "none", "furthest", "CoinPress", "1,000 ×"]
    publish("ranges", "Means without a radius", _ABOUT.format(RUNS, told) + table(titles, lines))


_ABOUT = """\
Root mean square errors over that of the best clip in hindsight, which has a right radius and the whole
budget; δ = 1e-6, {} runs. `10 ×` and so on: a radius that is so many times too large, on flat spaces about a
centre that is half of it away. `furthest`: the largest error of a run over its root mean square. The goal for
all but `right` is 1.5 at ε ≥ .3 and 2 at ε = .1, and that no run is off by more than 5 times. The median, the
90 % quantile and the largest of these columns: {}. CoinPress is told the radius, right or 1,000 times too
large, and the true scale of every column; of 1, 2, 3, 5 and 10 steps the best number is chosen in hindsight.
Tumult Analytics tells bounds of columns, and neither a centre nor a radius: it is left out.

"""


if __name__ == "__main__":
    main()
