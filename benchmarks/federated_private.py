"""Private estimates over several owners, against all their rows under one gate."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.figures_robust_pca import PICTURES, saved, styled
from benchmarks.report import publish, table
from privest import manifolds
from privest.arrays import Array
from privest.data.metadata import DatasetMetadata, PartialVectorsMetadata, PointsMetadata, VectorsMetadata
from privest.data.records import Records
from privest.estimators import federation
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FrechetMeanSpec
from privest.estimators.subspace import matrix_completion, robust_pca
from privest.estimators.subspace.matrix_completion import MatrixCompletionSpec
from privest.estimators.subspace.robust_pca import RobustPCASpec
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from testing.exact_mean import exact_mean

RUNS = 60
EPSILONS = (0.3, 1.0, 3.0, 10.0)
TAUS = (1, 2, 5, 10)
ROUNDS = 6
"""Rounds of a descent, as a plan for PCA makes them."""


@dataclass(frozen=True)
class Problem:
    """Rows of several owners, what is asked of them, and how far an answer is from that of all rows."""

    name: str
    data: Sequence[Array]
    shape: Callable[[int], DatasetMetadata]
    estimator: Any
    spec: Any
    error: Callable[[Any], float]

    @property
    def delta(self) -> float:
        """The δ that the service takes for the smallest owner. It is the same for all that are compared."""
        return min(map(len, self.data)) ** -1.5

    def targets(self, epsilons: Sequence[float]) -> list[PrivacyTarget]:
        return [PrivacyTarget(epsilon, self.delta) for epsilon in epsilons]

    def federated(self, epsilons: Sequence[float], spec: Any = None) -> Any:
        """The plan of one run over all owners."""
        shapes = [self.shape(len(rows)) for rows in self.data]
        plan_one = partial(self.estimator.plan, spec or self.spec)
        return federation.plan(plan_one, shapes, self.targets(epsilons))

    def errors(self, plan: Any, runs: int = RUNS) -> Array:
        """Errors of a number of runs of a plan, each with fresh noise."""
        records = [Records(rows, threads=1) for rows in self.data]

        def answer() -> Any:
            gates = [
                Gate(rows, plan.statistics, part.releases)
                for rows, part in zip(records, plan.parts, strict=True)
            ]
            return federation.run(plan, self.estimator.run, gates)

        return np.array([self.error(answer()) for _ in range(runs)])

    def pooled(self, epsilon: float, spec: Any = None, runs: int = RUNS) -> Array:
        """Errors of all rows under one gate at this ε."""
        rows = np.concatenate(self.data)
        plan = self.estimator.plan(spec or self.spec, self.shape(len(rows)), *self.targets([epsilon]))
        records = Records(rows, threads=1)
        return np.array(
            [
                self.error(self.estimator.run(plan, Gate(records, plan.statistics, plan.releases)))
                for _ in range(runs)
            ]
        )


def angle_to(truth: Array) -> Callable[[Any], float]:
    space = manifolds.get("grassmann", dim=truth.shape[0], rank=truth.shape[1])
    return lambda answer: float(space.dist(answer.basis, truth))


def leading(rows: Array, rank: int) -> Array:
    x = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.linalg.eigh(x.T @ x)[1][:, -rank:]


def digits(owners: int, *, sort: bool, rank: int = 2) -> Problem:
    """The digits of scikit-learn among owners: sorted by label, or shuffled."""
    x, labels = load_digits(return_X_y=True)
    order = np.argsort(labels, kind="stable") if sort else np.random.default_rng(0).permutation(len(x))
    each = len(x) // owners
    rows = np.asarray(x, dtype=float)[order][: each * owners] / 16
    data = list(rows.reshape(owners, each, -1))
    name = f"digits, {owners} {'sorted' if sort else 'shuffled'} owners of {each}"
    spec = RobustPCASpec(rank, loss="squared")
    return Problem(
        name, data, lambda n: VectorsMetadata(n, 64), robust_pca, spec, angle_to(leading(rows, rank))
    )


def missed() -> Problem:
    """The sorted digits, measured by the share of the best two directions' variance that an answer misses."""
    problem = digits(10, sort=True)
    rows = np.concatenate(problem.data)
    x = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    moment = x.T @ x
    best = np.linalg.eigvalsh(moment)[-2:].sum()

    def error(answer: Any) -> float:
        return float(1 - np.trace(answer.basis.T @ moment @ answer.basis) / best)

    return replace(problem, name=f"{problem.name}, variance missed", error=error)


def haystack() -> Problem:
    """Rows about a plane, GLAD's loss; each owner has a crowd of outliers in a direction of its own."""
    rng = np.random.default_rng(1)
    truth = np.linalg.qr(rng.standard_normal((10, 2)))[0]
    data = []
    for _ in range(5):
        inliers = rng.standard_normal((1400, 2)) @ truth.T + 0.05 * rng.standard_normal((1400, 10))
        crowd = rng.standard_normal(10) + 0.3 * rng.standard_normal((400, 10))
        data.append(np.concatenate([inliers, crowd]))
    spec = RobustPCASpec(2, loss="absolute")
    name = "GLAD, 5 owners of 1,800, crowds of outliers"
    return Problem(name, data, lambda n: VectorsMetadata(n, 10), robust_pca, spec, angle_to(truth))


def matrices() -> Problem:
    """SPD(5) about centres of the owners' own."""
    rng, space = np.random.default_rng(2), manifolds.get("spd", dim=5)
    data = []
    for _ in range(10):
        centre = space.exp_coordinates(np.eye(5), 0.1 * rng.standard_normal(space.dim))
        data.append(space.exp_coordinates(centre, 0.15 * rng.standard_normal((500, space.dim))))
    truth = exact_mean(space, Records(np.concatenate(data)), start=np.eye(5), tolerance=1e-10).point
    shape = lambda n: PointsMetadata(n, {"name": "spd", "dim": 5}, radius=2.0)  # noqa: E731
    error = lambda answer: float(space.dist(answer, truth))  # noqa: E731
    name = "Fréchet mean, SPD(5), 10 owners of 500 about centres of their own"
    return Problem(name, data, shape, frechet_mean, FrechetMeanSpec(), error)


def columns() -> Problem:
    """Rank 2 of 30, two fifths of the entries known; coefficients of each owner are of a law of its own."""
    rng = np.random.default_rng(3)
    truth = np.linalg.qr(rng.standard_normal((30, 2)))[0]
    data = []
    for _ in range(10):
        rows = (rng.standard_normal((2_000, 2)) * rng.uniform(0.4, 1.6, 2)) @ truth.T
        rows[rng.uniform(size=rows.shape) > 0.4] = np.nan
        data.append(rows)
    name = "completion, rank 2 of 30, 40 % known, 10 owners of 2,000"
    shape = lambda n: PartialVectorsMetadata(n, 30, 0.4)  # noqa: E731
    return Problem(name, data, shape, matrix_completion, MatrixCompletionSpec(2, steps=12), angle_to(truth))


PROBLEMS = {
    "digits": partial(digits, 10, sort=True),
    "missed": missed,
    "haystack": haystack,
    "matrices": matrices,
    "columns": columns,
}


# What is measured. Each is a function of its place in a table, run in a process of its own.


def against_pooled(key: str, epsilon: float) -> tuple[Array, Array]:
    problem = PROBLEMS[key]()
    plan = problem.federated([epsilon] * len(problem.data))
    return problem.errors(plan), problem.pooled(epsilon)


def descent(epsilon: float, tau: int) -> Array:
    """kPCA by rounds of τ local steps from the start that a descent has."""
    problem = digits(10, sort=True)
    spec = RobustPCASpec(2, loss="squared", steps=ROUNDS, local_steps=tau)
    return problem.errors(problem.federated([epsilon] * 10, spec))


def uneven(sort: bool, how: str) -> tuple[list[float], Array, list[float]]:
    """Three owners of different or equal ε; weights, errors, and what each was charged as a μ."""
    problem = digits(3, sort=sort)
    epsilons = [0.3, 1.0, 3.0] if how in ("ours", "records", "variance") else [float(how)] * 3
    forced = {"records": 1e6, "variance": 1e-9}.get(how, federation._UNLIKE)
    with patch.object(federation, "_UNLIKE", forced):
        plan = problem.federated(epsilons)
    charged = [sqrt(part.cost.mu_squared) for part in plan.parts]
    return list(plan.weights), problem.errors(plan, 3 * RUNS), charged


def rms(errors: Array) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def with_spread(errors: Array) -> str:
    low, high = np.quantile(errors, [0.1, 0.9])
    return f"{rms(errors):.3g} ({low:.2g}–{high:.2g})"


# What is said of it.

TITLE = "Zhang et al. (2024), private: several owners in one run"
TEXT = """
`benchmarks/federated_private.py`. Every owner's rows lie behind a gate of its own, with the owner's ε; δ is
n^−1.5 of one owner. Errors are distances to the answer of all rows without privacy, or to the planted one:
lengths of the vector of principal angles in radians, or geodesic ones; in root mean square over {runs} runs,
with the 10 % and 90 % quantiles.

**Against one gate.** Rows of k owners under one gate, at the same ε for each record, have √k times less
noise; no method on k gates can do better than √k times that error where noise is small. The target is twice
that on the sorted digits at ε = 1. There, 179 rows an owner, angles are near what chance has (1.57 for each
of two directions at most), which flatters the ratio; the share of variance that is missed tells more, and
grows with the square of the noise, so that k times the error of one gate would be no surprise. GLAD's error
is for the most part not noise, but what the crowds bend: it is the same for one gate."""
TEXT_TAU = """
**Local steps.** kPCA on the sorted digits by {rounds} rounds of Algorithm 1, τ noisy gradients each, from a
start with a share of the budget; the first line is the plan that nobody has to ask for, one release of the
second moment. A round's mean gradient has the same noise for every τ, as τ gradients share its budget, and
the corrections keep owners who hold one digit each from drifting apart; so τ changes little, in either
direction. It saves rounds where rounds are what is dear, which here, with all gates in one process, they are
not: the service takes τ = 1 unless it is asked."""
TEXT_UNEVEN = """
**Owners with ε = 0.3, 1 and 3 in one run**, against runs in which all have the same; 180 of each. An owner
is charged its own: the μ in the last column. The weights of the planner balance noise against what it would
mean to leave an owner's rows out (`federation._weights`); beside them, weights by records alone and by the
noise alone. Where owners differ, leaving two of them out costs more than noise; where they do not, less."""


def draw(found: dict[Any, Any]) -> None:
    """Errors on the digits against ε."""
    figure, axis = styled().subplots(figsize=(6.4, 4.2), layout="constrained")
    pooled = [rms(found["pooled", "digits", e][1]) for e in EPSILONS]
    ours = [rms(found["pooled", "digits", e][0]) for e in EPSILONS]
    lines = [
        ("all rows, one gate", pooled, "#8a8a8a", "-"),
        ("√10 times that", [sqrt(10) * e for e in pooled], "#8a8a8a", (0, (4, 2))),
        ("10 gates, second moments", ours, "#2a78d6", "-"),
    ]
    for tau, color in zip((1, 10), ("#eb6834", "#178a63"), strict=True):
        lines.append(
            (f"10 gates, descent, τ = {tau}", [rms(found["tau", e, tau]) for e in EPSILONS], color, "-")
        )
    for label, values, color, style in lines:
        axis.plot(EPSILONS, values, color=color, linestyle=style, marker="o", markersize=3.5, label=label)
    axis.set(xscale="log", yscale="log", xlabel="ε of each owner", ylabel="angle to the subspace of all rows")
    axis.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
    axis.grid(color="#e6e6e6", linewidth=0.6)
    axis.legend(frameon=False, fontsize=8)
    axis.set_title("kPCA, 10 owners with one digit each")
    saved(figure, "federated-private")


def tables(found: dict[Any, Any]) -> str:
    compared, names = [], {key: make() for key, make in PROBLEMS.items()}
    for key, problem in names.items():
        for epsilon in EPSILONS:
            ours, pooled = found["pooled", key, epsilon]
            ratio = rms(ours) / (sqrt(len(problem.data)) * rms(pooled))
            compared.append(
                (problem.name, f"{epsilon:g}", with_spread(ours), with_spread(pooled), f"{ratio:.2f}")
            )
    first = table(("", "ε", "a gate for each owner", "one gate", "ratio, over √owners"), compared)
    rows = [("second moments", *(with_spread(found["pooled", "digits", e][0]) for e in EPSILONS))]
    rows += [(f"τ = {tau}", *(with_spread(found["tau", e, tau]) for e in EPSILONS)) for tau in TAUS]
    second = table(("", *(f"ε = {e:g}" for e in EPSILONS)), rows)
    labels = {
        "0.3": "all 0.3",
        "1.0": "all 1",
        "3.0": "all 3",
        "ours": "0.3, 1, 3",
        "records": "0.3, 1, 3, weights by records",
        "variance": "0.3, 1, 3, weights by noise",
    }
    third = table(
        ("ε", "weights", "sorted digits", "shuffled digits", "charged, μ"),
        [
            (
                label,
                ", ".join(f"{w:.2f}" for w in found["uneven", True, how][0]),
                with_spread(found["uneven", True, how][1]),
                with_spread(found["uneven", False, how][1]),
                ", ".join(f"{mu:.3f}" for mu in found["uneven", True, how][2]),
            )
            for how, label in labels.items()
        ],
    )
    picture = f"![Error against ε]({PICTURES.name}/federated-private.png)"
    parts = [
        TEXT.format(runs=RUNS),
        first,
        picture,
        TEXT_TAU.format(rounds=ROUNDS),
        second,
        TEXT_UNEVEN,
        third,
    ]
    return "\n\n".join(part.strip() for part in parts)


def keys() -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = [("pooled", key, e) for key in PROBLEMS for e in EPSILONS]
    found += [("tau", e, tau) for e in EPSILONS for tau in TAUS]
    hows = ("0.3", "1.0", "3.0", "ours", "records", "variance")
    return found + [("uneven", sort, how) for sort in (True, False) for how in hows]


def measure(key: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
    what = {"pooled": against_pooled, "tau": descent, "uneven": uneven}[key[0]]
    return key, what(*key[1:])


def main() -> None:
    """All of it, on every core: a picture, and tables in docs/reproductions.md."""
    with get_context("spawn").Pool() as pool:
        found = dict(pool.imap_unordered(measure, keys(), chunksize=1))
    draw(found)
    publish("federated-private", TITLE, tables(found), "reproductions.md")


if __name__ == "__main__":
    main()
