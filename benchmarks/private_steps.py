"""Table 2 of Utpala et al. 2023: what privacy adds to each of 3×10⁵ stochastic steps."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from time import process_time

import numpy as np

from benchmarks.report import publish, table
from privest import manifolds
from privest.arrays import Array
from privest.data.metadata import PointsMetadata
from privest.data.records import Records
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FrechetMeanSpec
from privest.estimators.frechet_mean.losses import SquaredDistance
from privest.manifolds import Manifold
from privest.optim.descent import Ball, gradient_descent
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.clipped_sums import Statistic
from privest.privacy.gate import Gate
from privest.privacy.mechanisms import SubsampledSum
from privest.privacy.noise import SystemNoise
from testing.leading_eigenvector import LeadingEigenvector

PAPER_STEPS, STEPS, ROUNDS = 300_000, 2_000, 7
STEP_SIZE = 1e-3


@dataclass(frozen=True)
class Case:
    """A space, its records and the statistic of a step."""

    label: str
    space: Manifold
    rows: Array
    statistic: Statistic
    plain: Callable[[Array, Array], Array]
    """Negative gradient of one record, in coordinates."""
    clip: float
    radius: float

    def release(self, scheme: str, count: int) -> SubsampledSum:
        """A step of the run that 3×10⁵ steps at (.5, 1e-6) would be; the noise is certified for those."""
        space = self.space
        shape = PointsMetadata(len(self.rows), {"name": space.name, **space.params}, radius=self.radius)
        spec = FrechetMeanSpec(
            clip=self.clip,
            solver="rsgd",
            rate=1 / len(self.rows),
            sampling=scheme,  # pyright: ignore[reportArgumentType]
            steps=PAPER_STEPS,
            diagnostics=False,
            step_size=STEP_SIZE,
        )
        release = frechet_mean.plan(spec, shape, PrivacyTarget(0.5, 1e-6)).releases[0]
        assert isinstance(release, SubsampledSum)
        return replace(release, count=count)

    def private(self, release: SubsampledSum) -> Array:
        gate = Gate(Records(self.rows), {"gradient": self.statistic}, (release,))
        ball = Ball(self.space, self.space.reference, self.radius)
        return gradient_descent(
            ball, gate, start=self.space.reference, step_size=STEP_SIZE, steps=release.count
        )

    def not_private(self, count: int) -> Array:
        point = self.space.reference
        for index in np.random.default_rng(0).integers(0, len(self.rows), count).tolist():
            point = self.space.exp_coordinates(point, STEP_SIZE * self.plain(point, self.rows[index]))
        return point


def pull(point: Array, row: Array) -> Array:
    """Negative gradient of −(wᵀz)²."""
    along = row @ point
    return (2 * along) * (row - along * point)


def cases() -> list[Case]:
    rng = np.random.default_rng(0)
    spd = manifolds.get("spd", dim=11)
    matrices = spd.exp_coordinates(spd.reference, 0.08 * rng.standard_normal((10_704, spd.dim)))
    sphere = manifolds.get("sphere", dim=784)
    images = sphere.canonical(np.abs(rng.standard_normal((6_903, 784))) + 0.5)
    images[:, 0] += 1.0  # away from the cut locus of the reference
    images = sphere.canonical(images)
    return [
        Case("SPD(11), Fréchet mean", spd, matrices, SquaredDistance(spd), spd.log_coordinates, 0.1, 2.0),
        Case(
            "784-sphere, eigenvector",
            sphere,
            images,
            LeadingEigenvector(784),
            pull,
            0.1,
            np.pi,
        ),
        Case(
            "784-sphere, Fréchet mean",
            sphere,
            images,
            SquaredDistance(sphere),
            sphere.log_coordinates,
            0.1,
            np.pi,
        ),
    ]


def seconds_per_step(actions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Medians over rounds in which the actions take turns, after one that does not count."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(1 + ROUNDS):
        for name, action in actions.items():
            begun = process_time()
            action()
            times[name].append((process_time() - begun) / STEPS)
    return {name: median(found[1:]) for name, found in times.items()}


def main() -> None:
    lines: list[list[str]] = []
    for case in cases():
        size = case.space.coordinate_size
        fixed, poisson = case.release("fixed", STEPS), case.release("poisson", STEPS)
        found = seconds_per_step(
            {
                "plain": lambda: case.not_private(STEPS),  # noqa: B023
                "fixed": lambda: case.private(fixed),  # noqa: B023
                "poisson": lambda: case.private(poisson),  # noqa: B023
                "drawing": lambda: SystemNoise(0).draw("gaussian", 1.0, STEPS * size, 2.0**-32),  # noqa: B023
            }
        )
        added = found["fixed"] - found["plain"]
        lines.append(
            [
                case.label,
                f"{1e6 * found['plain']:.1f} µs",
                f"{1e6 * found['fixed']:.1f} µs (+{added / found['plain']:.0%})",
                f"{1e6 * found['poisson']:.1f} µs ({found['poisson'] / found['plain'] - 1:+.0%})",
                f"{1e6 * found['drawing']:.1f} µs",
                f"{added * PAPER_STEPS:.0f} s",
            ]
        )
    header = [
        "run",
        "plain step",
        "private, one record",
        "private, Poisson",
        "drawing noise",
        "added by 3×10⁵ steps",
    ]
    body = f"""
Processor time, one thread. A plain step is the logarithm (or gradient) of one random record and the
exponential map. A private step goes through `Gate.mean` and `Walk.step`: random batch, clip, grid, noise,
and back into the ball. Median of {ROUNDS} rounds of {STEPS:,} steps, noise as certified for 3×10⁵. The paper
names 41 s (SPD) and 24 s (sphere) for what privacy adds.

{table(header, lines)}
"""
    publish("private-steps", "What privacy adds to a step (Table 2)", body)


if __name__ == "__main__":
    main()
