"""What exact noise adds to whole runs: their time over that of the same runs with numpy's ziggurat."""

from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import publish, spread, table
from privest.arrays import Array, lengths
from privest.data.metadata import (
    DatasetMetadata,
    LabelledMetadata,
    PartialVectorsMetadata,
    PointsMetadata,
    VectorsMetadata,
)
from privest.data.records import Records
from privest.estimators.frechet_mean.frechet_mean import FRECHET_MEAN, FrechetMeanSpec
from privest.estimators.linear_model.classifier_score import CLASSIFIER_SCORE, ScoreSpec
from privest.estimators.linear_model.logistic_regression import LOGISTIC_REGRESSION, LogisticSpec
from privest.estimators.range_finding.bounds import BOUNDS, BoundsSpec
from privest.estimators.subspace.matrix_completion import MATRIX_COMPLETION, MatrixCompletionSpec
from privest.estimators.subspace.robust_pca import ROBUST_PCA, RobustPCASpec
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.clipped_sums import Grid
from privest.privacy.gate import Gate
from privest.privacy.mechanisms import Noise, NoisySum, SubsampledSum
from privest.privacy.noise import Normals, SystemNoise
from testing.noise import KnownNormals

ROUNDS, SECONDS = 9, 0.25
_BLOCK = 2**18


class Ziggurat(SystemNoise):
    """Noise as it was drawn before it was exact: numpy's variates in blocks, rounded to the grid."""

    def __init__(self, expected: int) -> None:
        super().__init__(expected)
        self._left, self._drawn, self._at = expected, np.empty(0), 0

    def _ziggurat(self, size: int) -> Array:
        if self._at + size > len(self._drawn):
            self._drawn = self._generator.standard_normal(max(size, min(self._left, _BLOCK)))
            self._at = 0
        self._left = max(0, self._left - size)
        self._at += size
        return self._drawn[self._at - size : self._at]

    def draw(self, noise: Noise, scale: float, size: int, spacing: float) -> NDArray[np.int64]:
        """See `NoiseSource`."""
        drawn = scale * self._ziggurat(size)
        if noise == "laplace":
            drawn *= self._generator.standard_gamma(size) / lengths(drawn / scale)
        return Grid(spacing).quantise(drawn)

    def normals(self, scale: float, size: int) -> Normals:
        """See `NoiseSource`."""
        return KnownNormals(scale * self._ziggurat(size))


@dataclass(frozen=True)
class Case:
    """A run that is timed."""

    about: str
    estimator: Any
    spec: Any
    shape: DatasetMetadata
    delta: float = 1e-6

    def seconds(self) -> tuple[int, list[float]]:
        """Draws of a run, and times with exact noise over those without, of runs that take turns."""
        plan = self.estimator.plan(self.spec, self.shape, PrivacyTarget(1.0, self.delta))
        rows = self.shape.dummy(self.shape.n, np.random.default_rng(0))
        records = Records(rows, threads=1)
        sums = [r for r in plan.releases if isinstance(r, NoisySum | SubsampledSum)]
        expected = sum(r.size * r.count for r in sums)

        def once(source: type[SystemNoise]) -> float:
            begun = process_time()
            gate = Gate(records, plan.statistics, plan.releases, source(expected))
            self.estimator.run(plan, gate)
            return process_time() - begun

        once(Ziggurat)
        runs = max(1, round(SECONDS / once(SystemNoise)))
        ratios = list[float]()
        for _ in range(ROUNDS):
            exact, plain = 0.0, 0.0
            for _ in range(runs):
                exact, plain = exact + once(SystemNoise), plain + once(Ziggurat)
            ratios.append(exact / plain)
        return expected, ratios


def variates() -> list[float]:
    """Times of variates alone, exact over ziggurat, in rounds that take turns."""
    size = 2**20

    def seconds(source: type[SystemNoise]) -> float:
        noise = source(size)
        begun = process_time()
        noise.draw("gaussian", 1.0, size, 2.0**-32)
        return process_time() - begun

    return [seconds(SystemNoise) / seconds(Ziggurat) for _ in range(ROUNDS)]


def cases() -> list[Case]:
    """Estimators and solvers; with batches, few records a step, so that noise is most of it."""
    n = 10_000
    flat, ball = {"name": "euclidean", "dim": 10}, {"name": "sphere", "dim": 784}
    points, spd = (
        PointsMetadata(n, flat, radius=1.0),
        PointsMetadata(n, {"name": "spd", "dim": 5}, radius=1.0),
    )
    images = PointsMetadata(n, ball, radius=1.0)
    vectors = VectorsMetadata(n, 20)
    labelled = LabelledMetadata(n, tuple(map(str, range(20))), "y", ("0", "1"), 4.0, (0.0,) * 20, (1.0,) * 20)
    mean = FRECHET_MEAN
    one = {"solver": "rsgd", "rate": 1 / n, "steps": 500, "diagnostics": False, "clip": 1.0}
    score = ScoreSpec([0.1] * 20, 0.0)
    batches = LogisticSpec(solver="nag", batch_size=64, steps=200)
    return [
        Case("mean, 10 numbers", mean, FrechetMeanSpec(), points),
        Case("mean, SPD(5)", mean, FrechetMeanSpec(), spd),
        Case("mean, 10 numbers, δ = 0", mean, FrechetMeanSpec(), points, 0.0),
        Case("mean, 10 numbers, one record a step", mean, FrechetMeanSpec(**one), points),
        Case("mean, 784-sphere, one record a step", mean, FrechetMeanSpec(**one), images),
        Case("bounds, 10 columns", BOUNDS, BoundsSpec(), points),
        Case("robust PCA, 20 columns", ROBUST_PCA, RobustPCASpec(rank=2), vectors),
        Case("robust PCA by batches", ROBUST_PCA, RobustPCASpec(rank=2, solver="sggd"), vectors),
        Case("matrix completion", MATRIX_COMPLETION, MatrixCompletionSpec(rank=2),
             PartialVectorsMetadata(n, 20, 0.5)),
        Case("logistic regression", LOGISTIC_REGRESSION, LogisticSpec(), labelled),
        Case("logistic regression, nag-opt", LOGISTIC_REGRESSION, LogisticSpec(solver="nag-opt"), labelled),
        Case("logistic regression, nag by batches", LOGISTIC_REGRESSION, batches, labelled),
        Case("score of a classifier", CLASSIFIER_SCORE, score, labelled),
    ]  # fmt: skip


def main() -> None:
    """Time every case."""
    lines, medians = list[list[str]](), list[float]()
    for case in cases():
        drawn, ratios = case.seconds()
        medians.append(median(ratios))
        lines.append([case.about, f"{drawn:,}", spread(ratios, ".2f")])
    body = f"""
Processor time of a whole run from plan to answer, on 10,000 records, over that of the same run with numpy's
normal variates rounded to the grid. Both take turns; median of {ROUNDS} rounds, with the least and the most.
The median over the runs is {median(medians):.2f}, the most {max(medians):.2f}. A variate alone takes
{spread(variates(), ".1f")} times as long, in a vector of 2²⁰.

{table(["run", "variates", "exact over ziggurat"], lines)}
"""
    publish("noise", "What exact noise adds to a run", body)


if __name__ == "__main__":
    main()
