"""Zhang et al. (2024): losses, mini-batches, other τ, the step sizes of Theorem 4.3, and γ estimated."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from multiprocessing import get_context
from typing import Any, Literal

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.federated import (
    COLORS,
    LEAST,
    LINES,
    MAIN,
    METHODS,
    NEAREST,
    TAUS,
    Problem,
    dash,
    kpca,
    ours,
    power,
    problem_of,
    synthetic_data,
)
from benchmarks.figures_robust_pca import PICTURES, saved, styled
from benchmarks.report import publish, table
from privest import manifolds
from privest.arrays import Array
from privest.manifolds import Embedded
from privest.optim.federated import Gradient
from testing import completion
from testing.federated import Federation, everyone, iterates

BATCHES = (4, 16, 64)
"""Records of an owner's mini-batches; all 179 beside."""

SEEDS = 3
SHORT, LONG, STALLED = 1_600, 4_000, 200
"""Rounds of runs whose η is 1/β and 1/(20β), and of RFedAvg and RFedProx, which stall long before."""

MARKS = (10, 100, 300, 1_000)
FIGURES = {
    "digits": ("5", "kPCA, digits, τ = 10"),
    "synthetic": ("6", "kPCA, synthetic, τ = 5"),
    "lrmc": ("8", "completion, τ = 10"),
}


def owned_digits() -> list[Array]:
    """The digits, sorted and split among 10 owners, as in `benchmarks.federated`."""
    data, labels = load_digits(return_X_y=True)
    rows = np.asarray(data, dtype=float)[np.argsort(labels, kind="stable")] / 16
    each = len(rows) // 10
    return [rows[i * each : (i + 1) * each] for i in range(10)]


def beta_of(parts: Sequence[Array]) -> float:
    """β, the square of the largest singular value of all rows."""
    return float(np.linalg.norm(np.vstack(parts), 2) ** 2)


# Losses.


def loss_of(name: str) -> Callable[[Array], float]:
    """The mean of the owners' losses above its least value; of completion that is 0, as the rank is exact."""
    if name == "lrmc":
        rng, (d, t, k) = np.random.default_rng(0), (100, 1_000, 2)
        columns = (rng.standard_normal((d, k)) @ rng.standard_normal((k, t))).T
        mask = (rng.uniform(size=(t, d)) <= 10 * k * (d + t - k) / (d * t)).astype(np.float64)

        def missed(x: Array) -> float:
            left = mask * (completion.coefficients(x, columns, mask) @ x.T - columns)
            return 0.5 * float(np.sum(left**2)) / 10

        return missed
    parts = owned_digits() if name == "digits" else synthetic_data(np.random.default_rng(NEAREST))
    moment = np.mean([a.T @ a for a in parts], axis=0)
    values, vectors = np.linalg.eigh(moment)

    def excess(x: Array) -> float:
        """½ tr of what the best frame holds less what x does, without the rounding of their difference."""
        shares = np.sum((vectors.T @ x) ** 2, axis=1)
        k = x.shape[1]
        middle = values[-k]  # taken off all eigenvalues, which changes nothing, so that small terms stay
        lost = (values[-k:] - middle) @ (1 - shares[-k:]) + (middle - values[:-k]) @ shares[:-k]
        return 0.5 * float(lost)

    return excess


# Runs.


@dataclass(frozen=True)
class Key:
    """One run.

    Attributes:
        kind: what it is for.
        name: of the problem.
        method: of the federation.
        number: τ, or the size of mini-batches.
        seed: of mini-batches.
    """

    kind: Literal["loss", "tau", "batch", "steps"]
    name: str
    method: str
    number: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Trace:
    """Norms of the gradient, and losses, before the first round and after each round."""

    norms: Array
    losses: Array

    def rounds(self, level: float) -> int | None:
        """After which the gradient is first no longer than this."""
        below = np.flatnonzero(self.norms <= level)
        return int(below[0]) if len(below) else None


STEPS = {
    "η = 1/β, η_g = 1": (1.0, 1.0),
    "η = 1/(β√n), η_g = √n: the same η̃": (1 / sqrt(10), sqrt(10)),
    "η = 1/β, η_g = √n: √n times the η̃": (1.0, sqrt(10)),
    "η̃ = 1/(24ML), η_g = √n: (11)": (0.0, sqrt(10)),
}
"""Factors on η = 1/β, and η_g; 0 for the theorem's."""


def theorem_step(problem: Problem, parts: Sequence[Array]) -> float:
    """η̃ of (11) by its first two terms, of a Stiefel manifold: γ = ½, as the reach is 1, diam = 2√k.

    L is that of the owners' Riemannian gradients on frames, at most twice the norm of their moments.
    """
    steepest = max(float(np.linalg.norm(a.T @ a, 2)) for a in parts)
    gamma, diameter = 0.5, 2 * sqrt(problem.start.shape[1])
    largest = sqrt(problem.start.shape[1]) * steepest
    return min(1 / (24 * max(diameter / gamma, 2.0) * 2 * steepest), gamma / (6 * largest))


def noisy(parts: Sequence[Array], size: int, rng: np.random.Generator, space: Embedded) -> list[Gradient]:
    """Owners who take a fresh mini-batch for each gradient, scaled to all their records."""

    def owner(rows: Array, own: np.random.Generator) -> Gradient:
        def gradient(x: Array) -> Array:
            drawn = rows[own.choice(len(rows), size, replace=False)]
            return space.project_tangent(x, -(len(rows) / size) * (drawn.T @ (drawn @ x)))

        return gradient

    return [owner(rows, own) for rows, own in zip(parts, rng.spawn(len(parts)), strict=True)]


def points_of(key: Key) -> tuple[Problem, Any]:
    """The problem by which a run is judged, and its iterates."""
    if key.kind in ("loss", "tau"):
        steps = key.number or MAIN[key.name]
        problem = problem_of(key.name, steps)
        if key.kind == "tau" and key.method in ("RFedProx", "RFedAvg"):
            problem = replace(problem, rounds=STALLED)
        if key.kind == "loss":
            problem = replace(problem, rounds=min(problem.rounds, MARKS[-1]))
        return problem, METHODS[key.method][0](problem)
    parts = owned_digits()
    tau = MAIN["digits"]
    problem = kpca(parts, 2, np.random.default_rng(0), steps=tau, step_size=1 / beta_of(parts), rounds=SHORT)
    if key.kind == "batch":
        problem = replace(problem, step_size=problem.step_size / 20, rounds=LONG)
        if not key.number:
            return problem, ours(problem)
        owners = noisy(parts, key.number, np.random.default_rng([key.seed, key.number]), problem.space)
        return problem, ours(replace(problem, owners=owners))
    factor, server = STEPS[key.method]
    eta = factor * problem.step_size if factor else theorem_step(problem, parts) / (server * tau)
    federation = Federation(everyone(SHORT, len(parts)), tau, eta, server)
    run = iterates(problem.space.project, problem.owners, start=problem.start, federation=federation)
    return problem, run


def run(key: Key) -> tuple[Key, Trace]:
    """One run, until the gradient is `LEAST` long or the rounds are over."""
    problem, found = points_of(key)
    loss = loss_of(key.name) if key.kind == "loss" else lambda _: float("nan")
    norms, losses = [problem.norm(problem.start)], [loss(problem.start)]
    while norms[-1] > LEAST and (point := next(found, None)) is not None:
        norms.append(problem.norm(point))
        losses.append(loss(point))
    return key, Trace(np.array(norms), np.array(losses))


def all_keys() -> list[Key]:
    return [
        *(Key("loss", name, method) for name in MAIN for method in METHODS),
        *(Key("tau", name, method, tau) for name, taus in TAUS.items() for tau in taus for method in METHODS),
        Key("batch", "digits", "Algorithm 1"),
        *(Key("batch", "digits", "Algorithm 1", size, seed) for size in BATCHES for seed in range(SEEDS)),
        *(Key("steps", "digits", method) for method in STEPS),
    ]


# What is made of it.

Found = dict[Key, Trace]
TITLE = "Zhang et al. (2024), Figures 3, 5, 6 and 8: losses, mini-batches and step sizes"

TEXT_LOSSES = """
Algorithm 1 with η_g = 1 beside its peers, on the problems of the section above and without privacy.
**Figures 5, 6 and 8**: the mean of the owners' losses, less the least that it can be: by eigenvalues for
kPCA, 0 for completion, whose matrix has rank k exactly. MNIST is not to be had: digits of scikit-learn
stand for it."""

TEXT_TAUS = """
**Other τ** (Figures 2, 7 and 9 as a table, all four methods). Rounds until the gradient is 1e-6 long, and
where a run ends that does not get there: the norm after its last round. More local steps save rounds as
long as owners' corrections settle; a row whose matrices are as many as rounds is Algorithm 1's."""

TEXT_BATCHES = """
**Figure 3: mini-batches.** kPCA on the digits, η = 1/(20β), τ = 10: each gradient of an owner is that of
so many of its 179 records, drawn afresh, times 179 over their number. The paper does not tell its batch
sizes. Norm of the gradient of all records: the median of {seeds} runs, with the least and the most. As in the
paper each ends in a neighbourhood, which is smaller the larger the batch. It has no noise for privacy; the
private form of it is `solver: sggd` with `local_steps`."""

TEXT_STEPS = """
**Theorem 4.3's step sizes** (11), kPCA on the digits, τ = 10. They bound η̃ = η_g·η·τ, with η_g = √n for
n = 10 owners. At the same η̃ a larger η_g makes the owners' own steps √n times shorter, which gains nothing
where corrections settle at η_g = 1 already. At the same η the whole step is √n times as long. The theorem's
own η̃ (the first two terms of (11), with M = diam/γ, γ = ½ and L = 2·max‖A_iᵀA_i‖; the third, L_P, is not
told) is {shorter:,.0f} times shorter than what works. η_g = √n at the same η takes a quarter to a half
fewer rounds here, as any longer step of the server may; the planner of private
runs chooses the server's step itself, so that η_g is no option. The theorem's rate is 1/R for the mean square
of the gradient; what is seen above is linear."""

TEXT_GAMMA = """
**γ, estimated.** The reach of a closed set is the infimum of |y − x|²/(2·|normal part of y − x|) over pairs
of its points (Federer 1959, Theorem 4.18), and the paper's γ is half of it. The least value over {pairs:,}
random pairs, and over as many that differ in one column, beside the reach that `manifolds` states. Random
pairs alone are no estimate of a least value: they come to it from above, and not near. So the spaces state
theirs, and no other is served."""


def draw(found: Found) -> None:
    """Losses by matrices sent, and the gradient's norm by rounds for mini-batches."""
    figure, axes = styled().subplots(1, 4, figsize=(14, 3.6), layout="constrained")
    for axis, name in zip(axes, FIGURES, strict=False):
        number, title = FIGURES[name]
        for method, color in COLORS.items():
            losses = found[Key("loss", name, method)].losses
            matrices = np.arange(len(losses)) * METHODS[method][1]
            axis.plot(matrices, np.maximum(losses, 1e-16), color=color, label=method, **LINES[method])
        axis.set(yscale="log", title=f"Figure {number}: {title}", xlabel="matrices sent by an owner")
    axes[0].set_ylabel("loss above the least")
    axes[0].legend(frameon=False, fontsize=8)
    shades = ("#9dc3ec", "#2a78d6", "#123f73")
    for size, color in zip(BATCHES, shades, strict=True):
        norms = found[Key("batch", "digits", "Algorithm 1", size)].norms
        axes[3].plot(norms, color=color, lw=1.0, label=f"{size} of 179 records")
    axes[3].plot(
        found[Key("batch", "digits", "Algorithm 1")].norms, color="#222222", lw=1.6, label="all records"
    )
    axes[3].set(yscale="log", title="Figure 3: mini-batches, τ = 10, η = 1/(20β)", xlabel="rounds")
    axes[3].set_ylabel("norm of the gradient")
    axes[3].legend(frameon=False, fontsize=8)
    for axis in axes:
        axis.set_xlim(left=0)
        axis.grid(axis="y", color="#e6e6e6", linewidth=0.6)
        axis.set_axisbelow(True)
    saved(figure, "federated-losses")


def loss_table(found: Found) -> str:
    rows = []
    for name, (number, title) in FIGURES.items():
        for method in METHODS:
            losses = found[Key("loss", name, method)].losses
            cells = [power(max(losses[min(mark, len(losses) - 1)], 1e-16)) for mark in MARKS]
            rows.append([number, title, method, power(losses[0]), *cells, f"{len(losses) - 1:,}"])
    head = ("figure", "problem", "method", "at the start", *(f"after {mark:,}" for mark in MARKS))
    return table((*head, "rounds until it ends"), rows)


def tau_table(found: Found) -> str:
    rows = []
    for name, taus in TAUS.items():
        for tau in taus:
            cells = []
            for method, (_, matrices) in METHODS.items():
                trace = found[Key("tau", name, method, tau)]
                rounds = trace.rounds(1e-6)
                told = f"{rounds:,} ({rounds * matrices:,})" if rounds is not None else None
                cells.append(told or f"– ({power(trace.norms[-1])} after {len(trace.norms) - 1:,})")
            rows.append([FIGURES[name][1].rsplit(",", 1)[0], tau, *cells])
    return table(("problem", "τ", *(f"{method}: rounds (matrices)" for method in METHODS)), rows)


def batch_table(found: Found) -> str:
    marks = (100, 300, 1_000, LONG)
    rows = []
    for size in BATCHES:
        norms = np.array(
            [found[Key("batch", "digits", "Algorithm 1", size, seed)].norms for seed in range(SEEDS)]
        )
        cells = [f"{np.median(n):.2g} ({n.min():.2g}–{n.max():.2g})" for n in norms[:, list(marks)].T]
        rows.append([f"{size} of 179", *cells])
    whole = found[Key("batch", "digits", "Algorithm 1")].norms
    rows.append(["all", *(power(whole[min(mark, len(whole) - 1)]) for mark in marks)])
    return table(("records in a batch", *(f"after {mark:,} rounds" for mark in marks)), rows)


def step_table(found: Found) -> str:
    rows = []
    for method in STEPS:
        trace = found[Key("steps", "digits", method)]
        cells = [dash(trace.rounds(level)) for level in (1e-2, 1e-4, 1e-6)]
        rows.append([method, *cells, f"{power(trace.norms[-1])} after {len(trace.norms) - 1:,}"])
    return table(("steps", "rounds to 1e-2", "to 1e-4", "to 1e-6", "norm at the end"), rows)


SPACES: dict[str, dict[str, int]] = {
    "sphere": {"dim": 20},
    "oblique": {"dim": 5, "rank": 4},
    "stiefel": {"dim": 20, "rank": 5},
}
PAIRS = 20_000


def gamma_table() -> str:
    """The reach by pairs of points, beside what the manifolds state."""
    rng, rows = np.random.default_rng(0), []
    for name, params in SPACES.items():
        space = manifolds.get(name, **params)
        assert isinstance(space, Embedded)
        x = np.stack([space.random_point(rng) for _ in range(PAIRS)])
        one = x.reshape(PAIRS, len(x[0]), -1).copy()
        fresh = rng.standard_normal(one.shape[:2])
        rest = one[:, :, 1:]
        fresh -= np.einsum("ndk,nk->nd", rest, np.einsum("ndk,nd->nk", rest, fresh))
        one[:, :, 0] = fresh / np.linalg.norm(fresh, axis=1, keepdims=True)
        least = []
        for y in (x[::-1], one.reshape(x.shape)):
            way = y - x
            normal = way - np.stack([space.project_tangent(p, w) for p, w in zip(x, way, strict=True)])
            flat = tuple(range(1, x.ndim))
            lengths, off = (np.sqrt(np.sum(v**2, axis=flat)) for v in (way, normal))
            used = off > 1e-12
            least.append(float(np.min(lengths[used] ** 2 / (2 * off[used]))))
        shape = "×".join(map(str, params.values()))
        rows.append([f"{name} {shape}", *(f"{each:.4f}" for each in least), f"{space.reach:g}"])
    return table(("manifold", "random pairs", "pairs that differ in one column", "reach, stated"), rows)


def main() -> None:
    """All runs, on every core; a picture, and tables in docs/reproductions.md."""
    with get_context("spawn").Pool() as pool:
        found = dict(pool.imap_unordered(run, all_keys(), chunksize=1))
    draw(found)
    parts = owned_digits()
    problem = kpca(parts, 2, np.random.default_rng(0), steps=10, step_size=1 / beta_of(parts), rounds=1)
    shorter = problem.steps * problem.step_size / theorem_step(problem, parts)
    sections = [
        TEXT_LOSSES,
        f"![Losses and mini-batches]({PICTURES.name}/federated-losses.png)",
        loss_table(found),
        TEXT_TAUS,
        tau_table(found),
        TEXT_BATCHES.format(seeds=SEEDS),
        batch_table(found),
        TEXT_STEPS.format(shorter=shorter),
        step_table(found),
        TEXT_GAMMA.format(pairs=PAIRS),
        gamma_table(),
    ]
    body = "\n\n".join(section.strip() for section in sections)
    publish("federated-figures", TITLE, body, "reproductions.md")


if __name__ == "__main__":
    main()
