"""Federated descent without privacy (Zhang et al. 2024, Section 5, Appendix A.4): rounds, matrices, time."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from time import process_time
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.figures_robust_pca import PICTURES, saved, styled
from benchmarks.report import publish, table
from privest.arrays import Array
from privest.manifolds import Embedded
from privest.manifolds.stiefel_grassmann import Stiefel
from privest.optim.federated import Gradient, Projection
from testing import completion
from testing.federated import Federation, iterates, nearby_frame

LEVELS = (1e-2, 1e-4, 1e-6, 1e-8)
LEAST = 1e-10
"""Norm of the gradient at which runs end."""


@dataclass(frozen=True)
class Problem:
    """One sum of losses over owners, and how it is descended."""

    space: Embedded
    owners: Sequence[Gradient]
    start: Array
    """First point, on the manifold."""
    steps: int
    step_size: float
    rounds: int
    """Most rounds; runs end earlier at `LEAST`."""
    error: Callable[[Array], float] = lambda _: float("nan")
    """Relative error of the completed matrix; not a number for other problems."""

    def norm(self, point: Array) -> float:
        """Norm of the Riemannian gradient of the mean of the owners' losses."""
        return float(np.linalg.norm(sum(owner(point) for owner in self.owners))) / len(self.owners)


Method = Callable[[Problem], Iterator[Array]]


# Algorithm 1, and variants of it.


def ours(problem: Problem, project: Projection | None = None, share: float = 1.0) -> Iterator[Array]:
    """Algorithm 1 with η_g = 1; with another projection, or a share of the owners, drawn in public."""
    order = np.random.default_rng(0).random((problem.rounds, len(problem.owners)))
    participation = order.argsort(axis=1).argsort(axis=1) < share * len(problem.owners)
    federation = Federation(participation, problem.steps, problem.step_size)
    return iterates(
        project or problem.space.project, problem.owners, start=problem.start, federation=federation
    )


# The methods it is compared with (Li and Ma 2022), with the cheapest maps that serve: the polar retraction,
# the projection of a difference for its inverse, and the projection for transport.


@dataclass(frozen=True)
class Maps:
    """How points and tangent vectors are moved about."""

    space: Embedded

    def go(self, base: Array, v: Array) -> Array:
        return self.space.project(base + v)

    def back(self, base: Array, x: Array) -> Array:
        return self.space.project_tangent(base, x - base)

    def carried(self, base: Array, v: Array) -> Array:
        return self.space.project_tangent(base, v)


@dataclass(frozen=True)
class Geodesics(Maps):
    """Maps of the method as it is stated: the exponential map and its inverse."""

    def go(self, base: Array, v: Array) -> Array:
        return self.space.exp(base, v)

    def back(self, base: Array, x: Array) -> Array:
        return self.space.log(base, x)


def walked(maps: Maps, problem: Problem, way: Callable[[int, Array], Array], point: Array) -> Array:
    """The mean, in the tangent space at `point`, of where owners get from it, each along `way(owner, z)`."""
    total = np.zeros_like(point)
    for i in range(len(problem.owners)):
        z = point
        for _ in range(problem.steps):
            z = maps.go(z, -problem.step_size * way(i, z))
        total += maps.back(point, z)
    return maps.go(point, total / len(problem.owners))


def rfedavg(problem: Problem) -> Iterator[Array]:
    """RFedAvg: owners descend by themselves."""
    maps, point = Maps(problem.space), problem.start
    for _ in range(problem.rounds):
        point = walked(maps, problem, lambda i, z: problem.owners[i](z), point)
        yield point


def rfedprox(problem: Problem) -> Iterator[Array]:
    """RFedProx: and are drawn back to where they began, with a weight of a tenth of 1/η."""
    maps, point, weight = Maps(problem.space), problem.start, 0.1 / problem.step_size
    for _ in range(problem.rounds):

        def way(i: int, z: Array, anchor: Array = point) -> Array:
            return problem.owners[i](z) - weight * maps.back(z, anchor)

        point = walked(maps, problem, way, point)
        yield point


def rfedsvrg(problem: Problem, kind: type[Maps] = Maps) -> Iterator[Array]:
    """RFedSVRG: owners send their gradients at the common point first, and then where they got."""
    maps, point = kind(problem.space), problem.start
    for _ in range(problem.rounds):
        own = np.array([owner(point) for owner in problem.owners])
        excess = own - own.mean(axis=0)

        def way(i: int, z: Array, excess: Array = excess) -> Array:
            return problem.owners[i](z) - maps.carried(z, excess[i])

        point = walked(maps, problem, way, point)
        yield point


METHODS: dict[str, tuple[Method, int]] = {
    "Algorithm 1": (ours, 1),
    "RFedSVRG": (rfedsvrg, 2),
    "RFedProx": (rfedprox, 1),
    "RFedAvg": (rfedavg, 1),
}
"""Methods, with the number of matrices that an owner sends in a round."""

COLORS = {"Algorithm 1": "#2a78d6", "RFedSVRG": "#eb6834", "RFedProx": "#178a63", "RFedAvg": "#8a6bbd"}


# Problems.


def kpca(data: Sequence[Array], rank: int, rng: np.random.Generator, **how: Any) -> Problem:
    """f_i(x) = −½tr(xᵀA_iᵀA_i x) on frames, from a random one."""
    space = Stiefel(data[0].shape[1], rank)

    def owner(moment: Array) -> Gradient:
        return lambda x: space.project_tangent(x, -moment @ x)

    owners = [owner(a.T @ a) for a in data]
    start = space.project(rng.standard_normal(space.shape))
    return Problem(space=space, owners=owners, start=start, **how)


def synthetic_data(rng: np.random.Generator) -> list[Array]:
    """Appendix A.4.1: 30 owners of 15 rows with variance 2i/n."""
    return [np.sqrt(2 * i / 30) * rng.standard_normal((15, 20)) for i in range(1, 31)]


def synthetic(seed: int, **how: Any) -> Problem:
    """Synthetic data with a subspace of dimension 5."""
    rng = np.random.default_rng(seed)
    return kpca(synthetic_data(rng), 5, rng, **how)


def digits(steps: int, rounds: int) -> Problem:
    """The 8×8 digits of scikit-learn, pixels in [0, 1], sorted and split among 10 owners; η = 1/β."""
    data, labels = load_digits(return_X_y=True)
    rows = np.asarray(data, dtype=float)[np.argsort(labels, kind="stable")] / 16
    each = len(rows) // 10
    parts = [rows[i * each : (i + 1) * each] for i in range(10)]
    beta = np.linalg.norm(np.vstack(parts), 2) ** 2
    return kpca(parts, 2, np.random.default_rng(0), steps=steps, step_size=1 / beta, rounds=rounds)


def lrmc(steps: int, step_size: float, rounds: int) -> Problem:
    """Appendix A.4.2: T = 1,000 columns of length 100 and rank 2 among 10 owners, of which ν is known."""
    rng, (d, t, k, n) = np.random.default_rng(0), (100, 1_000, 2, 10)
    columns = (rng.standard_normal((d, k)) @ rng.standard_normal((k, t))).T
    mask = (rng.uniform(size=(t, d)) <= 10 * k * (d + t - k) / (d * t)).astype(np.float64)
    space = Stiefel(d, k)

    def owner(part: slice) -> Gradient:
        known, where = columns[part], mask[part]
        return lambda x: completion.gradient(x, known, where)

    def error(x: Array) -> float:
        found = completion.coefficients(x, columns, mask) @ x.T
        return float(np.linalg.norm(found - columns) / np.linalg.norm(columns))

    owners = [owner(slice(i * t // n, (i + 1) * t // n)) for i in range(n)]
    start = space.project(rng.standard_normal(space.shape))
    return Problem(space, owners, start, steps, step_size, rounds, error)


# What is measured.


@dataclass(frozen=True)
class Trace:
    """One run: norm of the gradient and seconds so far, before the first round and after each round."""

    norms: Array
    seconds: Array
    matrices: float
    """Matrices that an owner sends in a round."""
    error: float
    """Error at the end."""

    def rounds(self, level: float) -> int | None:
        """After which the gradient is first no longer than this."""
        below = np.flatnonzero(self.norms <= level)
        return int(below[0]) if len(below) else None


def traced(problem: Problem, method: Method, matrices: float = 1) -> Trace:
    """Run until the gradient is `LEAST`; what measuring takes is not counted."""
    point, run = problem.start, method(problem)
    norms, seconds = [problem.norm(point)], [0.0]
    while norms[-1] > LEAST:
        begin = process_time()
        found = next(run, None)
        if found is None:
            break
        point = found
        seconds.append(seconds[-1] + process_time() - begin)
        norms.append(problem.norm(point))
    return Trace(np.array(norms), np.array(seconds), matrices, problem.error(point))


# What is run.

NEAREST = 9
"""The instance, of the first ten, whose spectral gap is nearest to what the rounds we compare with tell."""

INSTANCES = range(12)
TAUS = {"digits": (10, 15, 20), "synthetic": (10, 15, 20), "lrmc": (5, 10, 20)}
MAIN = {"digits": 10, "synthetic": 5, "lrmc": 10}
"""Local steps τ of each problem where methods are compared."""


def problem_of(name: str, steps: int) -> Problem:
    """Set up a problem as in the paper's figures; η of the completion is ours, as it is not stated."""
    if name == "digits":
        return digits(steps, 3_500)
    if name == "lrmc":
        return lrmc(steps, 2e-5, 400)
    return synthetic(
        NEAREST, steps=steps, step_size=4e-3 if steps == 5 else 7e-4, rounds=1_600 if steps == 5 else 4_000
    )


SHORTER = 3e-3
"""Step size η for the synthetic data, other than the paper's."""


def instance(seed: int, step_size: float = 4e-3) -> Problem:
    """Another draw of the synthetic data."""
    return synthetic(seed, steps=5, step_size=step_size, rounds=1_600)


VARIANTS: Mapping[str, tuple[Method, float]] = METHODS | {
    "Algorithm 1, Newton–Schulz": (partial(ours, project=partial(nearby_frame, rounds=2)), 1),
    "Algorithm 1, half of the owners a round": (partial(ours, share=0.5), 0.5),
}
Key = tuple[str, str, int]


def run(key: Key) -> tuple[Key, Trace]:
    """One run, in a process of its own."""
    name, method, number = key
    if name == "instance":
        return key, traced(instance(number), *METHODS[method])
    if name == "shorter":
        return key, traced(instance(number, SHORTER), *METHODS[method])
    problem = problem_of(name, number)
    if method == "geodesics":
        return key, traced(replace(problem, rounds=20), partial(rfedsvrg, kind=Geodesics), 2)
    return key, traced(problem, *VARIANTS[method])


def all_keys() -> list[Key]:
    compared = [(name, method, MAIN[name]) for name in MAIN for method in (*VARIANTS, "geodesics")]
    longer = [
        (name, method, steps) for name, taus in TAUS.items() for steps in taus for method in list(METHODS)[:2]
    ]
    instances = [("instance", method, seed) for seed in INSTANCES for method in list(METHODS)[:2]]
    shorter = [("shorter", "Algorithm 1", seed) for seed in INSTANCES]
    return list(dict.fromkeys([*compared, *longer, *instances, *shorter]))


# What is said of it.

TITLE = "Zhang et al. (2024), Figures 1, 2, 4, 6, 7 and 9: federated descent, not private"
TEXT_TARGETS = """
`benchmarks/federated.py`: Algorithm 1 with η_g = 1 and the owners' full gradients, from a random frame. A
round counts when it is over, so that the start is the point of no rounds; the targets, in
`../shared/targets.md`, count it as the first. The digits are all there is to their problem, and so is
what the rounds tell; of the synthetic data the paper gives the law and no draw."""
TEXT_INSTANCES = """
**Another draw** of the synthetic data, τ = 5 and η = 4e-3. What a round leaves of the gradient is about 1
− ητ·gap, with the gap between the fifth and the sixth eigenvalue of the mean of the A_iᵀA_i: gap × rounds
is the same for all draws, and the targets' 306 rounds for each factor of 100 are those of a gap of 0.70.
Draw 9 is the nearest of these to that; the ratio of the rounds at τ = 20 and at τ = 5 is free of the
draw, and 1.48 in both.

Not every draw lets the algorithm settle at the paper's step. An owner's correction is as old as the round
before it; near the solution its error becomes 1 − m times as large from round to round, where m is the
mean of (1 + ηh)^t over t < τ and −h the least curvature of that owner's own loss. Near m = 2 corrections,
and the common point a little with them, alternate for ever where the gradient is not zero. That is no
drift of the kind that corrections cure, and a shorter step ends it; RFedSVRG, which pays a second matrix
for corrections that are never old, does not have it."""
NOTES = {
    "digits": """
The paper takes MNIST, which is not to be had here. RFedAvg and RFedProx stall. With half of the owners in a
round, drawn in public, as many rounds are enough, at half the matrices.""",
    "synthetic": """
RFedAvg and RFedProx stall, as in the paper.""",
    "lrmc": """
The paper gives no η. The matrix has rank k exactly, so that all owners' losses have their minimum in the same
subspace: nothing drifts, and RFedAvg and RFedProx arrive as well.""",
}

LEGEND = """
**Methods.** RFedAvg, RFedProx (proximal weight 0.1/η) and RFedSVRG after Li and Ma 2022, with the
cheapest maps that serve: polar retraction, the projection of a difference for its inverse, the projection
for transport. Seconds are of one process, owners and server together; processes share the machine, and
what measuring takes is not counted."""


# What is made of it.

Found = dict[Key, Trace]
TITLES = {
    "digits": "kPCA, digits of scikit-learn: 10 sorted owners, k = 2, η = 1/β",
    "synthetic": "kPCA, synthetic: 30 owners, d = 20, k = 5, p = 15, η = 4e-3",
    "lrmc": "Completion: T = 1,000, d = 100, k = 2, 10 owners, η = 2e-5",
}
LINES: dict[str, dict[str, float]] = {method: {"linewidth": 1.6} for method in METHODS} | {
    "RFedSVRG": {"linewidth": 3.6, "zorder": 1.9}
}
"""Styles of lines. RFedSVRG's are drawn beneath those of Algorithm 1, with which they partly coincide."""

SHADES = ("#9dc3ec", "#2a78d6", "#123f73"), ("#f6b896", "#eb6834", "#8a3211")


def draw(found: Found, name: str, eta: str) -> None:
    """The gradient's norm against rounds, matrices and time; and for three τ against matrices."""
    figure, axes = styled().subplots(1, 4, figsize=(14, 3.6), sharey=True, layout="constrained")
    for method, color in COLORS.items():
        trace = found[name, method, MAIN[name]]
        rounds = np.arange(len(trace.norms))
        for axis, x in zip(axes, (rounds, rounds * trace.matrices, trace.seconds), strict=False):
            axis.plot(x, trace.norms, color=color, label=method, **LINES[method])
    for method, shades, style in zip(list(METHODS)[:2], SHADES, ("-", (0, (4, 1.5))), strict=True):
        for steps, color in zip(TAUS[name], shades, strict=True):
            trace = found[name, method, steps]
            x = np.arange(len(trace.norms)) * trace.matrices
            label = f"{method}, τ = {steps}"
            axes[3].plot(x, trace.norms, color=color, linestyle=style, label=label, **LINES[method])
    titles = (f"τ = {MAIN[name]}, {eta}", "", "", f"Three τ, {'η = 7e-4' if name == 'synthetic' else eta}")
    labels = (
        "rounds",
        "matrices sent by an owner",
        "seconds of CPU, all owners",
        "matrices sent by an owner",
    )
    for axis, title, label in zip(axes, titles, labels, strict=True):
        axis.set(yscale="log", xlabel=label, title=title, ylim=(LEAST, None))
        axis.set_xlim(left=0)
        axis.grid(axis="y", color="#e6e6e6", linewidth=0.6)
        axis.set_axisbelow(True)
    axes[0].set_ylabel("norm of the gradient")
    axes[0].legend(frameon=False, fontsize=8)
    axes[3].legend(frameon=False, fontsize=7.5)
    saved(figure, f"federated-{name}")


def dash(value: float | None, form: str = ",.0f") -> str:
    return "–" if value is None else f"{value:{form}}"


def power(value: float) -> str:
    """Write 1e-6, not 1e-06."""
    return f"{value:.0e}".replace("e-0", "e-") if value < 0.1 else f"{value:.2g}"


def target_table(found: Found) -> str:
    """Rounds of Algorithm 1 against those in the project's targets."""
    rows = [
        ("digits, τ = 10", ("digits", "Algorithm 1", 10), (761, 1_555)),
        (f"synthetic {NEAREST}, τ = 5", ("synthetic", "Algorithm 1", 5), (316, 622, 928, 1_234)),
        (f"synthetic {NEAREST}, τ = 20", ("synthetic", "Algorithm 1", 20), (469, 921, 1_374)),
    ]
    return table(
        ("rounds to gradient norm", *map(power, LEVELS)),
        [
            (
                label,
                *(
                    dash(found[key].rounds(level)) + (f" (target {targets[k]:,})" if k < len(targets) else "")
                    for k, level in enumerate(LEVELS)
                ),
            )
            for label, key, targets in rows
        ],
    )


def method_table(found: Found, name: str) -> str:
    """What methods need, and where they end."""
    rows = []
    for method in (*VARIANTS, "geodesics"):
        trace = found[name, method, MAIN[name]]
        count = len(trace.norms) - 1
        pace = f"{1e3 * trace.seconds[-1] / count:.1f}"
        if method == "geodesics":
            rows.append(("RFedSVRG with exp and log (20 rounds)", "", "", "", pace, "", ""))
            continue
        rounds = trace.rounds(1e-6)
        rows.append(
            (
                method,
                dash(rounds),
                dash(None if rounds is None else rounds * trace.matrices),
                dash(None if rounds is None else float(trace.seconds[rounds]), ".2f"),
                pace,
                power(trace.norms[-1]),
                power(trace.error) if np.isfinite(trace.error) else "–",
            )
        )
    head = ("to gradient norm 1e-6", "rounds", "matrices an owner sends", "seconds of CPU", "ms a round")
    return table((*head, "norm at the end", "relative error of the matrix"), rows)


def instance_table(found: Found) -> str:
    """What another draw of the synthetic data changes."""
    rows = []
    for seed in INSTANCES:
        mine, theirs = (found["instance", method, seed] for method in list(METHODS)[:2])
        shorter = found["shorter", "Algorithm 1", seed]
        gap, growth = facts_of(seed)
        rounds = [mine.rounds(level) for level in LEVELS]
        second, third = rounds[1:3]
        decade = "–" if second is None or third is None else f"{(third - second) * gap:.0f}"
        rows.append(
            (
                seed,
                f"{gap:.3f}",
                f"{growth:.2f}",
                *map(dash, rounds),
                decade,
                *(power(trace.norms[-1]) for trace in (mine, shorter, theirs)),
            )
        )
    levels = [power(level) for level in LEVELS]
    head = (
        "draw",
        "gap",
        "m",
        *levels,
        "gap × rounds from 1e-4 to 1e-6",
        "norm at the end",
        "η = 3e-3",
        "RFedSVRG",
    )
    return table(head, rows)


def facts_of(seed: int) -> tuple[float, float]:
    """Spectral gap of the mean moment, and m of `Federation.step_size` at the solution."""
    problem = instance(seed)
    moments = np.array([a.T @ a for a in synthetic_data(np.random.default_rng(seed))])
    values, vectors = np.linalg.eigh(moments.mean(axis=0))
    off, on = vectors[:, :-5], vectors[:, -5:]
    h = np.linalg.eigvalsh(off.T @ moments @ off)[:, -1] - np.linalg.eigvalsh(on.T @ moments @ on)[:, 0]
    m = np.mean((1 + problem.step_size * h.max()) ** np.arange(problem.steps))
    return float(values[-5] - values[-6]), float(m)


def main() -> None:
    """All runs, on every core; pictures, and tables in docs/reproductions.md."""
    with get_context("spawn").Pool() as pool:
        found = dict(pool.imap_unordered(run, all_keys(), chunksize=1))
    for name, eta in (("digits", "η = 1/β"), ("synthetic", "η = 4e-3"), ("lrmc", "η = 2e-5")):
        draw(found, name, eta)
    parts = [TEXT_TARGETS, target_table(found), TEXT_INSTANCES, instance_table(found), LEGEND]
    for name, title in TITLES.items():
        parts += [
            f"### {title}, τ = {MAIN[name]}",
            f"![{title}]({PICTURES.name}/federated-{name}.png)",
            NOTES[name],
        ]
        parts.append(method_table(found, name))
    body = "\n\n".join(part.strip() for part in parts)
    publish("federated", TITLE, body, "reproductions.md")


if __name__ == "__main__":
    main()
