"""Time per tangent Gaussian sample in a loop, against the baselines of Utpala et al. 2023, Section 6.1."""

from collections.abc import Callable
from functools import partial
from statistics import median
from time import process_time
from typing import Any

import numpy as np

from benchmarks import baselines
from benchmarks.report import publish, table
from privest import manifolds
from privest.arrays import Array
from privest.manifolds import Manifold

Sampler = Callable[[Array, Array], Array]
"""A function from a base point and standard normal numbers to a tangent vector."""

CASES: tuple[dict[str, Any], ...] = (
    *(
        {"name": "spd", "dim": dim, "metric": metric}
        for metric in ("affine-invariant", "bures-wasserstein", "log-euclidean")
        for dim in (5, 10, 11, 20, 30, 50)
    ),
    {"name": "sphere", "dim": 784},
    *(
        {"name": name, "dim": dim}
        for name in ("sphere", "poincare-ball", "lorentz")
        for dim in (250, 500, 1000, 1500, 2000)
    ),
    *(
        {"name": name, "dim": dim, "rank": rank}
        for name in ("stiefel", "grassmann")
        for rank in (10, 20)
        for dim in (100, 250, 500, 750, 1000)
    ),
)
"""The sizes of the paper's Figure 1, and those of its Table 2."""

BASIS_BYTES = 2e8
"""Largest basis that is written out, in bytes."""


def samplers(space: Manifold) -> dict[str, Sampler]:
    found: dict[str, Sampler] = {"ours": space.from_coordinates}
    small = space.dim * np.prod(space.shape) * 8 <= BASIS_BYTES
    if small:
        found["explicit"] = partial(baselines.explicit, space, baselines.reference_basis(space))
    if space.name in {"spd", "lorentz"}:
        basis = baselines.ambient_basis(space, space.reference) if space.name == "spd" else None

        def gram_schmidt(base: Array, normal: Array) -> Array:
            here = baselines.ambient_basis(space, base) if basis is None else basis
            return baselines.gram_schmidt(space, here, base, normal)

        found["Gram–Schmidt"] = gram_schmidt
    if space.name in {"stiefel", "grassmann", "poincare-ball"}:
        found["sparse"] = partial(baselines.explicit_sparse, space)
    return found


def per_sample(
    space: Manifold, sampler: Sampler, own: bool, bases: list[Array], budget: float = 0.8
) -> float:
    """Median seconds a sample in loops whose base changes each step; noise is drawn ahead, and counted."""
    rng = np.random.default_rng(1)
    size = space.coordinate_size if own else space.dim
    begun = process_time()
    sampler(bases[0], rng.standard_normal(size))
    once = process_time() - begun
    count = int(np.clip(budget / 5 / once, 1, 1000))
    times: list[float] = []
    for _ in range(5 if once < budget else 1):
        begun = process_time()
        for k, normal in enumerate(rng.standard_normal((count, size))):
            sampler(bases[k % len(bases)], normal)
        times.append((process_time() - begun) / count)
    return median(times)


def squared_length(space: Manifold, sampler: Sampler, own: bool, base: Array, count: int) -> float:
    """Mean of ‖ξ‖²/d, which is 1 for σ = 1."""
    rng = np.random.default_rng(2)
    size = space.coordinate_size if own else space.dim
    drawn = [sampler(base, normal) for normal in rng.standard_normal((count, size))]
    return float(np.mean([space.inner(base, v, v) for v in drawn])) / space.dim


def metropolis(space: Manifold, bases: list[Array]) -> tuple[float, int, float]:
    """Seconds a sample, steps of a chain (medians over base points), and mean ‖ξ‖²/d."""
    rng = np.random.default_rng(3)
    chains = [baselines.Metropolis(space, base) for base in bases[:9]]
    steps = int(median(chain.steps for chain in chains))
    begun = process_time()
    chains[0].sample(rng, 4000)
    step = (process_time() - begun) / 4000
    shortest = min(chains, key=lambda chain: chain.steps)
    ratio = float(np.mean(shortest.many(rng, 60) ** 2)) if shortest.steps * space.dim < 1e7 else float("nan")
    return step * steps, steps, ratio


def main() -> None:
    lines: list[list[str]] = []
    laws: list[list[str]] = []
    methods = ("ours", "explicit", "Gram–Schmidt", "sparse", "MCMC")
    for case in CASES:
        space = manifolds.get(**case)
        rng = np.random.default_rng(0)
        bases = [space.random_point(rng) for _ in range(20 if space.dim > 5000 else 200)]
        label = " ".join(str(part) for part in case.values())
        times: dict[str, float] = {}
        ratios: dict[str, float] = {}
        for method, sampler in samplers(space).items():
            times[method] = per_sample(space, sampler, method == "ours", bases)
            count = int(np.clip(0.3 / times[method], 2, 2000))
            ratios[method] = squared_length(space, sampler, method == "ours", bases[0], count)
        if space.name == "spd" and space.dim < 1000:
            times["MCMC"], steps, ratios["MCMC"] = metropolis(space, bases)
            label += f" (chains of {steps:,})"
        ours = times["ours"]
        lines.append(
            [label, f"{1e6 * ours:.1f} µs"]
            + [
                f"{1e6 * times[m]:,.0f} µs ({times[m] / ours:,.1f}×)" if m in times else "–"
                for m in methods[1:]
            ]
        )
        laws.append([label] + [f"{ratios[m]:.3f}" if m in ratios else "–" for m in methods])
    body = f"""
Processor time of one sample at a base point that changes each step, the numbers drawn ahead in one call
and counted; in the multiple of our time. `explicit` transports a whole basis and combines it; Gram–Schmidt is
the Cholesky factor of the Gram matrix, its fastest form; `sparse` is the basis as a sparse matrix. MCMC is
a random walk of the best step length, from zero at every base point until the variance of the slowest
direction is within 5 %: a step is timed, and multiplied.
Bases above {BASIS_BYTES / 1e6:.0f} MB are not written out.

{table(["space", "ours", *methods[1:]], lines)}

### The same law: mean of ‖ξ‖²/(d·σ²)

Of up to 2,000 samples of each (60 chains); 1 is right.

{table(["space", *methods], laws)}
"""
    publish("tangent-sampling", "Tangent Gaussian", body)


if __name__ == "__main__":
    main()
