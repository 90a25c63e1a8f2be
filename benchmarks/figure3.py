"""Figure 3 of Utpala et al. 2023: excess risk of DP-RGD, DP-RSGD and DP-RSVRG, as a table and by passes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from time import perf_counter
from typing import Any

import numpy as np
from matplotlib import pyplot as plt

from benchmarks.passes import Traced, curve, drawn, gradients, saved
from benchmarks.report import publish, table
from privest import manifolds
from privest.arrays import Array, lengths
from privest.data.metadata import PointsMetadata
from privest.data.records import Records
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FrechetMeanSpec
from privest.manifolds import Manifold
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from testing.exact_mean import exact_mean

MAMMALS = Path(__file__).parents[2] / "shared" / "data" / "wordnet_mammals.tsv"
EPSILONS, DELTA, SEEDS = (0.1, 0.3, 0.5), 1e-6, 3
MOST_PASSES = 60
"""Most passes of a run that is drawn."""

MOST_OF_ALL = 2_000
"""Most records for which the paper's own loops run as well. They take minutes."""


@dataclass(frozen=True)
class Data:
    """Records with the public facts of a query, and the clip."""

    label: str
    space: Manifold
    rows: Array
    center: Array
    radius: float
    clip: float


def digits() -> Data:
    """Covariance descriptors of all of scikit-learn's digits."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - as above

    from privest_service.demo import descriptors  # noqa: PLC0415 - service

    images = load_digits(return_X_y=True)[0].reshape(-1, 8, 8)
    rows = descriptors.covariance_descriptors(images)
    space = manifolds.get("spd", dim=rows.shape[-1])
    return Data("digits, SPD(8)", space, rows, descriptors.public_center(), descriptors.PUBLIC_RADIUS, 0.75)


def synthetic() -> Data:
    """10,000 records on SPD(11), up to 1 from a point at distance 1 from I."""
    rng = np.random.default_rng(0)
    space = manifolds.get("spd", dim=11)
    away = rng.standard_normal((10_001, space.dim))
    away /= lengths(away)[:, None]
    middle = space.exp_coordinates(space.reference, away[0])
    rows = space.exp_coordinates(middle, rng.uniform(size=(10_000, 1)) * away[1:])
    return Data("synthetic, SPD(11)", space, rows, space.reference, 1.0, 1.0)


def poincare_embedding(pairs: Array, count: int, dim: int, *, epochs: int = 150, seed: int = 0) -> Array:
    """Nickel and Kiela 2017: −log softmax over ten false parents of minus the distance, by Riemannian SGD."""
    rng = np.random.default_rng(seed)
    space = manifolds.get("poincare-ball", dim=dim)
    x = rng.uniform(-1e-3, 1e-3, (count, dim))
    for epoch in range(epochs):
        rate = 0.03 if epoch < 10 else 0.3
        shuffled = rng.permutation(pairs)
        for batch in np.array_split(shuffled, len(pairs) // 50):
            child = np.repeat(batch[:, :1], 11, axis=1)
            others = np.concatenate([batch[:, 1:2], rng.integers(0, count, (len(batch), 10))], axis=1)
            distance = space.dist(x[child], x[others])
            weight = np.exp(distance.min(axis=1, keepdims=True) - distance)
            weight /= -weight.sum(axis=1, keepdims=True)
            weight[:, 0] += 1
            weight[others == child] = 0.0
            # The gradient of dist(u, v) in u is the unit vector away from v.
            moves = np.zeros_like(x)
            for one, other in ((child, others), (others, child)):
                toward = space.log_coordinates(x[one], x[other])
                unit = toward / np.maximum(lengths(toward), 1e-9)[..., None]
                np.add.at(moves, one, weight[..., None] * unit)
            moved = np.unique(np.r_[child[:, 0], others.ravel()])
            x[moved] = space.exp_coordinates(x[moved], rate * moves[moved])
            x[moved] *= np.minimum(1, (1 - 1e-5) / np.maximum(lengths(x[moved]), 1e-9))[:, None]
    return x


def mammals(dim: int = 5) -> Data:
    """The mammals of WordNet in the Poincaré ball."""
    lines = [line.split("\t")[:2] for line in MAMMALS.read_text().splitlines()]
    lines = [line for line in lines if line[0] not in {"id1", "child"} and len(line) == 2]
    names = sorted({name for line in lines for name in line})
    index = {name: k for k, name in enumerate(names)}
    pairs = np.array([[index[a], index[b]] for a, b in lines if a != b])
    rows = poincare_embedding(pairs, len(names), dim)
    space = manifolds.get("poincare-ball", dim=dim)
    return Data(f"mammals, hyperbolic {dim}", space, rows, space.reference, 2.0, 1.0)


def solvers(n: int) -> Mapping[str, Mapping[str, Any]]:
    defaults = {name: {"solver": name[3:].lower()} for name in ("DP-RGD", "DP-RSGD", "DP-RSVRG")}
    if n > MOST_OF_ALL:
        return defaults
    return {
        **defaults,
        "DP-RSGD, one record, 5n steps": {"solver": "rsgd", "rate": 1 / n, "steps": 5 * n},
        "DP-RSVRG, S = 5, m = n/10, noise each step": {
            "solver": "rsvrg",
            "epochs": 5,
            "steps": n // 10,
            "full_noise": "step",
        },
    }


def lines_for(data: Data) -> tuple[list[list[str]], str]:
    """The rows of the table, and the line of the picture."""
    space, n = data.space, len(data.rows)
    kind = {"name": space.name, **space.params}
    shape = PointsMetadata(n, kind, center=data.center.tolist(), radius=data.radius)
    reach = float(space.dist(data.center, data.rows).max())
    best = exact_mean(space, Records(data.rows), start=data.center).point
    least = float(np.mean(space.dist(best, data.rows) ** 2))
    away = float(space.dist(best, data.center))
    print(data.label, "F* =", least, "mean at", away, "reach", reach, flush=True)
    lines: list[list[str]] = []

    def risk(at: Any) -> float:
        return float(np.mean(space.dist(at, data.rows) ** 2)) - least

    canvas, axes = plt.subplots(1, len(EPSILONS), figsize=(13, 3.6), sharey=True, layout="constrained")
    for label, options in solvers(n).items():
        cells = [data.label, label]
        for axis, epsilon in zip(axes, EPSILONS, strict=True):
            try:
                planned = frechet_mean.plan(
                    FrechetMeanSpec(clip=data.clip, diagnostics=False, **options),
                    shape,
                    PrivacyTarget(epsilon, DELTA),
                )
            except ValueError as refused:
                cells.append(str(refused))
                continue
            begun = perf_counter()
            curves = []
            for _ in range(SEEDS):
                gate = Gate(Records(data.rows), planned.statistics, planned.releases)
                traced = Traced(gate, planned.releases, n)
                curves.append(curve(traced, frechet_mean.run(planned, traced), risk))
            risks = [found[-1] for _, found in curves]
            calls = sum(each.count * gradients(each) for each in planned.releases) / n
            spread = f"{mean(risks):.1e} ± {stdev(risks):.0e}"
            cells.append(f"{spread} ({planned.steps:,} steps, {calls:.0f} passes)")
            if calls <= MOST_PASSES:
                drawn(axis, label, curves)
                axis.set(title=f"{data.label}, ε = {epsilon:g}", xlabel="passes")
            print(cells[0], label, epsilon, cells[-1], f"{perf_counter() - begun:.1f} s", flush=True)
        lines.append(cells)
    still = f"{risk(data.center):.1e}"
    lines.append([data.label, f"(at the centre, {away:.2f} from the optimum)", *[still] * len(EPSILONS)])
    axes[0].set_ylabel("F(w) − F(w*)")
    axes[-1].legend()
    name = data.label.split(",")[0]
    return lines, saved(canvas, f"figure-3-{name}", f"Risk over passes: {data.label}")


def main() -> None:
    lines: list[list[str]] = []
    pictures: list[str] = []
    if not MAMMALS.exists():
        lines.append(["mammals", "wordnet_mammals.tsv is not at hand", *["–"] * len(EPSILONS)])
    for make in (mammals, digits, synthetic) if MAMMALS.exists() else (digits, synthetic):
        rows, picture = lines_for(make())
        lines += rows
        pictures.append(picture)
    body = f"""
F(w) − F(w*), F the mean squared distance, w* the Fréchet mean without clip; δ = {DELTA:g}, mean ± standard
deviation of {SEEDS} runs. Clip and start are public, step sizes and what is not named are the planner's.
One pass is n gradients (the paper's IFO calls over n).

{table(["data", "solver", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)], lines)}

{chr(10).join(pictures)}

The pictures have the median risk of these runs over passes, of runs of at most {MOST_PASSES} passes.
"""
    publish("figure-3", "Utpala et al. (2023), Figure 3 as a table", body, page="reproductions.md")


if __name__ == "__main__":
    main()
