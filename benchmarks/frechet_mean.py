"""The private Fréchet mean: its error against one query at the optimum, and what privacy costs in time."""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from statistics import mean, median, stdev
from time import perf_counter

import numpy as np

from benchmarks.report import publish, table
from privest import manifolds
from privest.arrays import Array, lengths
from privest.data.metadata import PointsMetadata
from privest.data.records import Records
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FrechetMeanPlan, FrechetMeanSpec
from privest.estimators.frechet_mean.gradient_solvers import TYPICAL, hessian_bounds
from privest.manifolds import Manifold
from privest.privacy.accounting import PrivacyTarget, mu_for
from privest.privacy.clipped_sums import clipped_sum
from privest.privacy.gate import Gate
from privest.privacy.noise import SystemNoise
from testing.exact_mean import exact_mean

N, DELTA, CLIP = 10_000, 1e-6, 1.0
SEEDS = range(5)
TARGETS = {0.1: 1.7e-2, 0.3: 2.2e-3, 0.5: 9.4e-4, 1.0: 3.5e-4}
"""ε and the excess risk in the project's targets: ten steps of ½ from a mean within 1 of I."""


def directions(space: Manifold, base: Array, count: int, rng: np.random.Generator) -> Array:
    """Uniform unit tangent vectors at `base`, in coordinates: (count, size)."""
    drawn = space.from_coordinates(base, rng.standard_normal((count, space.coordinate_size)))
    coordinates = space.coordinates(base, drawn)
    return coordinates / lengths(coordinates)[:, None]


def cloud(space: Manifold, distance: float, rng: np.random.Generator, center: Array | None = None) -> Array:
    """Records about a point at `distance` from the centre: radius uniform up to the clip."""
    center = space.reference if center is None else center
    middle = space.exp_coordinates(center, distance * directions(space, center, 1, rng)[0])
    reach = CLIP * rng.uniform(size=(N, 1))
    return space.exp_coordinates(middle, reach * directions(space, middle, N, rng))


def optimum(space: Manifold, rows: Array, near: Array) -> Array:
    """The Fréchet mean without privacy."""
    return exact_mean(space, Records(rows), start=near, tolerance=1e-9).point


def plan(space: Manifold, radius: float, epsilon: float, center: Array | None = None) -> FrechetMeanPlan:
    declared = None if center is None else center.tolist()
    shape = PointsMetadata(N, {"name": space.name, **space.params}, declared, radius)
    return frechet_mean.plan(
        FrechetMeanSpec(clip=CLIP, diagnostics=False), shape, PrivacyTarget(epsilon, DELTA)
    )


def answer(planned: FrechetMeanPlan, rows: Array, threads: int | None = None) -> Array:
    return frechet_mean.run(planned, Gate(Records(rows, threads), planned.statistics, planned.releases))


def one_query(space: Manifold, epsilon: float) -> float:
    """E dist² if the whole budget bought one gradient at the optimum: d·(2C/n)²/μ²."""
    return space.dim * (2 * CLIP / N / mu_for(epsilon, DELTA)) ** 2


@dataclass(frozen=True)
class Case:
    """Records on a space, with their mean at `distance` from the public centre."""

    space: Manifold
    distance: float
    runs: int
    """Runs on each data set."""
    seeds: int = 5
    center: Array | None = None

    @property
    def name(self) -> str:
        """Name for people."""
        return " ".join([self.space.name, *map(str, self.space.params.values())])


def case(distance: float, runs: int, name: str, **params: int | str) -> Case:
    return Case(manifolds.get(name, **params), distance, runs)


CASES = (
    case(1.0, 1, "spd", dim=11),
    case(3.0, 1, "spd", dim=11),
    case(1.0, 1, "spd", dim=11, metric="log-euclidean"),
    case(3.0, 1, "spd", dim=11, metric="log-euclidean"),
    # 1 from I there are singular matrices, at which curvature is infinite; 3 from them it is not.
    Case(manifolds.get("spd", dim=5, metric="bures-wasserstein"), 1.0, 4, center=9.0 * np.eye(5)),
    case(1.0, 8, "poincare-ball", dim=10),
    case(3.0, 8, "poincare-ball", dim=10),
    case(1.0, 8, "lorentz", dim=10),
    case(3.0, 8, "lorentz", dim=10),
    case(1.0, 4, "grassmann", dim=10, rank=2),
    # A logarithm takes a quarter of a millisecond.
    Case(manifolds.get("stiefel", dim=10, rank=2), 1.0, 1, seeds=2),
    case(1.0, 8, "sphere", dim=11),
    case(1.0, 4, "sphere", dim=101),
    case(1.0, 8, "euclidean", dim=20),
)


def errors() -> tuple[str, str]:
    """Excess risk on SPD(11), and distance² over that of one query on every space."""
    risk_rows: list[list[str]] = []
    ratio_rows: list[list[str]] = []
    for each in CASES:
        space = each.space
        risks: dict[float, list[float]] = {epsilon: [] for epsilon in TARGETS}
        squares: dict[float, list[float]] = {epsilon: [] for epsilon in TARGETS}
        plans = {epsilon: plan(space, each.distance, epsilon, each.center) for epsilon in TARGETS}
        for seed in range(each.seeds):
            rows = cloud(space, each.distance, np.random.default_rng(seed), each.center)
            best = optimum(space, rows, rows[0])
            least = float(np.mean(space.dist(best, rows) ** 2))
            for epsilon, planned in plans.items():
                answers = [answer(planned, rows) for _ in range(each.runs)]
                squares[epsilon] += [float(space.dist(best, found)) ** 2 for found in answers]
                risks[epsilon] += [float(np.mean(space.dist(found, rows) ** 2)) - least for found in answers]
        if each.name == "spd 11 affine-invariant":
            risk_rows += [
                [
                    f"{each.distance:g}",
                    f"{epsilon:g}",
                    f"{len(plans[epsilon].releases)}",
                    f"{mean(risks[epsilon]):.1e} ± {stdev(risks[epsilon]):.0e}",
                    f"{target:.1e}",
                    f"{target / mean(risks[epsilon]):.1f}",
                ]
                for epsilon, target in TARGETS.items()
            ]
        ratio_rows.append(
            [each.name, f"{each.distance:g}", f"{each.seeds} × {each.runs}"]
            + [
                f"{mean(squares[epsilon]) / one_query(space, epsilon):.2f} ({len(planned.releases)} steps)"
                for epsilon, planned in plans.items()
            ]
        )
        print(*ratio_rows[-1], flush=True)
    return (
        table(["mean at", "ε", "steps", "F(w) − F(w*)", "target", "target / measured"], risk_rows),
        table(["space", "mean at", "data × runs", *(f"ε = {epsilon:g}" for epsilon in TARGETS)], ratio_rows),
    )


def hessian(space: Manifold, rows: Array) -> Array:
    """Eigenvalues of the Hessian of half the mean squared distance at its optimum, by differences."""
    best = optimum(space, rows, rows[0])
    along = space.coordinates(best, space.from_coordinates(best, np.eye(space.coordinate_size)))
    tangent = np.linalg.eigh(along)[1][:, -space.dim :]
    width = 1e-4

    def pull(direction: Array) -> Array:
        there = space.exp_coordinates(best, width * direction)
        return -space.log_coordinates(there, rows).mean(axis=0)

    slopes = np.array([pull(each) - pull(-each) for each in tangent.T]) @ tangent / (2 * width)
    return np.asarray(np.linalg.eigvalsh((slopes + slopes.T) / 2), dtype=float)


def hessians() -> str:
    """What the schedule takes the least Hessian eigenvalue to be, and what it is, on each space."""
    lines: list[list[str]] = []
    for each in {each.name: each for each in CASES}.values():
        rows = cloud(each.space, 1.0, np.random.default_rng(0), each.center)[:1000]
        found = hessian(each.space, rows)
        center = each.space.reference if each.center is None else each.center
        curvature = each.space.curvature[0], each.space.mean_curvature(center, 1.0)
        bounds = [hessian_bounds(curvature, share * CLIP) for share in (1.0, TYPICAL)]
        bounds.append((found[0], found[-1]))
        lines.append([each.name, *(f"{low:.2f} to {high:.2f}" for low, high in bounds)])
    return table(["space", "assumed, worst", "assumed, typical", "measured"], lines)


def seconds(action: Callable[[], object], repeats: int = 5) -> float:
    """Median time of an action, after one that does not count."""
    action()
    times: list[float] = []
    for _ in range(repeats):
        begun = perf_counter()
        action()
        times.append(perf_counter() - begun)
    return median(times)


def overhead() -> str:
    """Time of a private step over that of a plain mean of logarithms, on one thread and on all."""
    rows_of_table: list[list[str]] = []
    for name, dim in (("spd", 11), ("sphere", 11), ("sphere", 101), ("euclidean", 20)):
        space = manifolds.get(name, dim=dim)
        rows = cloud(space, 1.0, np.random.default_rng(0))
        point = space.reference
        planned = plan(space, 1.0, 0.5)
        steps = len(planned.releases)
        plain = seconds(lambda: space.log_coordinates(point, rows).mean(axis=0))  # noqa: B023
        single = seconds(lambda: answer(planned, rows, threads=1)) / steps  # noqa: B023
        every = seconds(lambda: answer(planned, rows)) / steps  # noqa: B023
        planning = seconds(lambda: plan(space, 1.0, 0.5))  # noqa: B023
        rows_of_table.append(
            [
                f"{name} {dim}",
                f"{1e3 * plain:.2f} ms",
                f"{single / plain:.2f}",
                f"{every / plain:.2f}",
                f"{1e3 * every * steps:.0f} ms",
                f"{1e3 * planning:.0f} ms",
            ]
        )
    header = ["space", "plain gradient", "private step, 1 thread", "private step, all", "whole run", "plan"]
    return table(header, rows_of_table)


def travel() -> str:
    """Share of the clip by which one step nears a far-off mean."""
    rng = np.random.default_rng(0)
    space = manifolds.get("spd", dim=11)
    low, high = hessian_bounds(space.curvature, CLIP)
    step = 2 / (low + high)
    middle = space.reference
    away = directions(space, middle, 2000, rng)
    spreads = {"on the sphere": 1.0, "uniform radius": rng.uniform(size=(2000, 1))}
    lines: list[list[str]] = []
    distances = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
    for label, reach in spreads.items():
        coordinates = CLIP * reach * away
        rows = space.exp_coordinates(middle, coordinates - coordinates.mean(axis=0))
        shares: list[str] = []
        for distance in distances:
            start = space.exp_coordinates(middle, CLIP * distance * directions(space, middle, 1, rng)[0])
            pull = clipped_sum(space.log_coordinates(start, rows), CLIP) / len(rows)
            end = space.exp_coordinates(start, step * pull)
            nearer = float(space.dist(start, middle)) - float(space.dist(end, middle))
            shares.append(f"{nearer / (step * CLIP):.2f}")
        lines.append([f"records {label}", *shares])
    lines.append(["D/√(D² + 1)", *(f"{d / sqrt(d * d + 1):.2f}" for d in distances)])
    return table(["distance D, in clips", *(f"{d:g}" for d in distances)], lines)


def laplace() -> str:
    """Root mean square length of noise for one ε: Laplace by coordinates over Laplace by length."""
    lines: list[list[str]] = []
    rng = np.random.default_rng(0)
    for size in (3, 11, 66):
        source = SystemNoise(size * 20_000)
        whole = np.array([source.draw("laplace", 1.0, size, 2.0**-32) for _ in range(20_000)]) * 2.0**-32
        each = rng.laplace(scale=sqrt(size), size=(20_000, size))
        ratio = sqrt(np.mean(each**2) / np.mean(whole**2))
        lines.append([str(size), f"{ratio:.3f}", f"{sqrt(2 * size / (size + 1)):.3f}"])
    return table(["dimension", "measured", "√(2d/(d + 1))"], lines)


def main() -> None:
    begun = perf_counter()
    risks, ratios = errors()
    body = f"""
n = {N:,}, δ = {DELTA:g}, clip {CLIP:g}, started at the reference point, the public radius as far as
the mean may be; all else by default. Records lie within the clip of their mean, at uniform distances.
Five seeds of data, fresh noise; means ± standard deviations. Adjacency: one record replaced.

### Excess risk on SPD(11)

F is the mean squared affine-invariant distance. The targets are those of ten even steps with the mean
within 1 of I; at distance 3 they are held against a harder case.

{risks}

### Squared distance to the optimum, in units of one query there

One Gaussian query at the optimum would leave d·(2C/n)²/μ². Means over data sets and runs on each; the
standard error is about 0.1, and 0.24 on Stiefel, where logarithms are slow. Under the Bures–Wasserstein
metric the centre is 9·I: about I, singular matrices, at which curvature is infinite, are as near as the
records.

{ratios}

Above 1 are steps taken for a Hessian that curvature allows and these records do not have: the schedule
assumes planes of the mean curvature, and records across the iterate's way, all at the clip in the worst
case, at {TYPICAL:g} of it in the typical one. Measured are the Hessian's eigenvalues at the optimum of
1,000 records.

{hessians()}

### Time

A step through the gate (clip, grid, exact sum, noise, exponential map) over the plain mean of
logarithms, ε = 0.5; small ratios are good, and all threads may be below 1.

{overhead()}

### How far a clipped step gets

Share of η·clip by which one step of size η nears the mean on SPD(11), from D clips away, for two spreads
of the records about their mean. The last line is the first in flat space of high dimension.

{travel()}

### δ = 0: Laplace noise by length

Error of independent Laplace noise in every coordinate over that of the density exp(−|z|/s), for the same
Euclidean sensitivity and ε.

{laplace()}
"""
    publish("frechet-mean", "Private Fréchet mean", body)
    print(f"\n{perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
