"""The pictures of docs/choosing.md, from seeds and a real table: ε, radius, norm bound, rank, loss."""

from collections.abc import Callable, Sequence
from math import sqrt
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from scipy.special import ndtr

from benchmarks import tables
from privest.data.metadata import LabelledMetadata, PointsMetadata, VectorsMetadata
from privest.data.records import Records
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FrechetMeanSpec
from privest.estimators.linear_model import logistic_regression
from privest.estimators.linear_model.logistic_regression import LogisticSpec
from privest.estimators.subspace import robust_pca
from privest.estimators.subspace.robust_pca import RobustPCASpec
from privest.estimators.subspace.second_moment import Frame
from privest.privacy.accounting import PrivacyTarget, mu_for
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise

mpl.use("Agg")
from matplotlib import pyplot as plt

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
DELTA = 1e-6
RUNS = 40
COLOURS = ("#1d4fd7", "#d97706", "#15803d")


def root_mean_square(errors: Sequence[float]) -> float:
    return sqrt(float(np.mean(np.square(errors))))


def about_epsilon(guesses: Axes, errors: Axes) -> None:
    """How often the best attacker is right, and how far off a mean in the plane is."""
    epsilons = np.geomspace(0.03, 10, 60)
    guesses.semilogx(epsilons, [100 * ndtr(mu_for(float(each), DELTA) / 2) for each in epsilons], COLOURS[0])
    guesses.axhline(50, color="#999999", linestyle="--", linewidth=1)
    guesses.text(0.03, 51, "a coin", color="#666666")
    guesses.set(xlabel="ε", ylabel="right guesses, %", ylim=(48, 101), title="Which of two records is it?")
    for n, colour in zip((1_000, 10_000, 100_000), COLOURS, strict=True):
        shape = PointsMetadata(n, {"name": "euclidean", "dim": 2}, None, 1.0)
        plans = [
            frechet_mean.plan(FrechetMeanSpec(), shape, PrivacyTarget(float(each), DELTA))
            for each in epsilons
        ]
        errors.loglog(
            epsilons, [plan.expected_error.radius_95 for plan in plans], colour, label=f"{n:,} records"
        )
    errors.set(xlabel="ε", ylabel="error, in radii", title="How far off is a mean?")
    errors.legend(fontsize=8)


def about_radius(axis: Axes) -> None:
    """Income and wealth of 9,275 families, every third: a clip that is found beside some that are given."""
    rows = tables.table("savings").standardised[::3]
    mean, radii = rows.mean(axis=0), np.geomspace(2, 500, 9)
    away, records = np.linalg.norm(rows - mean, axis=1), Records(np.ascontiguousarray(rows))

    def error(radius: float, spec: FrechetMeanSpec, seed: int) -> float:
        shape = PointsMetadata(len(rows), {"name": "euclidean", "dim": rows.shape[1]}, None, radius)
        plan = frechet_mean.plan(spec, shape, PrivacyTarget(1.0, DELTA))
        gate = Gate(records, plan.statistics, plan.releases, ScaledNoise(seed=seed))
        return float(np.linalg.norm(frechet_mean.run(plan, gate) - mean))

    def errors(spec: Callable[[float], FrechetMeanSpec]) -> list[float]:
        return [
            root_mean_square([error(float(radius), spec(float(radius)), seed) for seed in range(RUNS)])
            for radius in radii
        ]

    axis.loglog(radii, errors(lambda _: FrechetMeanSpec()), "o-", color=COLOURS[0], label="found")
    for name, clip, style in (
        ("the radius", None, ":"),
        ("90 % of records within", float(np.quantile(away, 0.9)), "--"),
        ("99 %", float(np.quantile(away, 0.99)), "-."),
    ):
        found = errors(
            lambda radius, clip=clip: FrechetMeanSpec(
                clip=radius if clip is None else clip, diagnostics=False
            )
        )
        axis.loglog(radii, found, style, color=COLOURS[1], label=f"given: {name}")
    axis.set(
        xlabel="declared radius, in spreads", ylabel="error, in spreads", title="Means of families' money"
    )
    axis.legend(fontsize=8)


def about_norm_bound(axis: Axes) -> None:
    """Four standardised features; the best classifier is right about 72 rows in 100."""
    rng = np.random.default_rng(2)
    effects = np.array([1.0, -0.8, 0.5, 0.0])
    rows, others = rng.standard_normal((2_000, 4)), rng.standard_normal((20_000, 4))
    labels = (rng.random(2_000) < 1 / (1 + np.exp(-rows @ effects))).astype(float)
    records = Records(np.column_stack([rows, labels]))
    chances = 1 / (1 + np.exp(-others @ effects))
    bounds = np.geomspace(0.2, 60, 20)
    for epsilon, colour in zip((0.1, 0.5, 2.0), COLOURS, strict=True):

        def right(bound: float, seed: int, epsilon: float = epsilon) -> float:
            shape = LabelledMetadata(
                n=2_000,
                features=("a", "b", "c", "d"),
                label="y",
                classes=("0", "1"),
                norm_bound=bound,
                mean=(0.0,) * 4,
                scale=(1.0,) * 4,
            )
            plan = logistic_regression.plan(LogisticSpec(), shape, PrivacyTarget(epsilon, DELTA))
            fit = logistic_regression.run(
                plan, Gate(records, plan.statistics, plan.releases, ScaledNoise(seed=seed))
            )
            second = others @ fit.coefficients + fit.intercept > 0
            return 100 * float(np.mean(np.where(second, chances, 1 - chances)))

        shares = [np.mean([right(float(bound), seed) for seed in range(RUNS)]) for bound in bounds]
        axis.semilogx(bounds, shares, colour, label=f"ε = {epsilon:g}")
    axis.axhline(100 * float(np.mean(np.maximum(chances, 1 - chances))), color="#999999", linestyle=":")
    axis.axvline(2, color="#999999", linestyle="--", linewidth=1, label="√4, the default")
    axis.set(xlabel="norm bound, in scales", ylabel="right about others, %", title="Four features")
    axis.legend(fontsize=8)


def about_rank(shares: Axes, errors: Axes) -> None:
    """Ten measurements with three causes: what a question for six directions finds."""
    rng = np.random.default_rng(3)
    causes = np.linalg.qr(rng.standard_normal((10, 3)))[0]
    rows = rng.standard_normal((10_000, 3)) * [3, 2, 1.5] @ causes.T + 0.4 * rng.standard_normal((10_000, 10))
    shape = VectorsMetadata(len(rows), 10)
    plan = robust_pca.plan(RobustPCASpec(rank=6, explained=True), shape, PrivacyTarget(1.0, DELTA))
    found = robust_pca.run(plan, Gate(Records(rows), plan.statistics, plan.releases, ScaledNoise(seed=0)))
    assert found.explained is not None
    shares.bar(range(1, 7), 100 * found.explained, color=[COLOURS[0]] * 3 + ["#bbbbbb"] * 3)
    shares.set(xlabel="direction", ylabel="share of the variance, %", title="Asked for six, three matter")
    ranks = range(1, 10)
    for n, colour in zip((1_000, 10_000, 100_000), COLOURS, strict=True):
        plans = [
            robust_pca.plan(RobustPCASpec(rank), VectorsMetadata(n, 10), PrivacyTarget(1.0, DELTA))
            for rank in ranks
        ]
        degrees = [np.degrees(plan.expected_error.radius_95) for plan in plans]
        errors.semilogy(ranks, degrees, "o-", color=colour, label=f"{n:,} records")
    errors.set(xlabel="rank", ylabel="error, degrees", title="What each rank costs, ε = 1", ylim=(5e-3, 40))
    errors.legend(fontsize=8)


def about_loss(one: Axes, two: Axes) -> None:
    """Shares of distances from a first plane, as a run sees them at ε = 1: 5,000 rows in ten columns."""
    rng = np.random.default_rng(4)
    smooth = rng.standard_normal((5_000, 10)) * 0.7 ** np.arange(10)
    crowded = rng.standard_normal((5_000, 10))
    crowded[:2_500, 2:] *= 0.1
    for axis, rows, title in (
        (one, smooth, "One population: plain PCA"),
        (two, crowded, "Two: the near rows"),
    ):
        plan = robust_pca.plan(RobustPCASpec(2), VectorsMetadata(*rows.shape), PrivacyTarget(1.0, DELTA))
        (release,) = (each for each in plan.releases if each.statistic == "distances")
        x = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        first = np.linalg.eigh(x.T @ x)[1][:, -2:]
        gate = Gate(Records(rows), plan.statistics, (release,), ScaledNoise(seed=0))
        shares = gate.mean(Frame(first), "distances")
        axis.bar((np.arange(len(shares)) + 0.5) / len(shares), 100 * shares, 0.09, color=COLOURS[0])
        axis.set(xlabel="distance from the subspace, in lengths", ylabel="rows, %", title=title)


def main() -> None:
    """Draw the five pictures."""
    for name, draw, count in (
        ("epsilon", about_epsilon, 2),
        ("radius", about_radius, 1),
        ("norm-bound", about_norm_bound, 1),
        ("rank", about_rank, 2),
        ("loss", about_loss, 2),
    ):
        figure, axes = plt.subplots(1, count, figsize=(4.6 * count, 3.4), squeeze=False)
        draw(*axes[0])
        figure.tight_layout()
        figure.savefig(PICTURES / f"choosing-{name}.png", dpi=110, metadata={"Software": None})
        plt.close(figure)


if __name__ == "__main__":
    main()
