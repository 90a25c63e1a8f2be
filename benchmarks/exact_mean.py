"""The Fréchet mean without privacy, to gradient norm 1e-8, against pyriemann, geomstats and pymanopt."""

import tempfile
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np

from benchmarks.peers import call
from benchmarks.report import publish, table
from privest import manifolds
from privest.arrays import Array, lengths
from privest.data.records import Records
from privest.manifolds import Manifold
from testing.exact_mean import ExactMean, exact_mean

KINDS = {"spd": "spd", "sphere": "sphere", "lorentz": "hyperbolic"}
TOLERANCE = 1e-8
CASES = (
    ("spd", 10, 10_000),
    ("spd", 20, 10_000),
    ("spd", 50, 10_000),
    ("sphere", 11, 100_000),
    ("sphere", 101, 100_000),
    ("lorentz", 10, 100_000),
    ("lorentz", 100, 100_000),
)


def data(name: str, dim: int, n: int) -> tuple[Manifold, Array]:
    """Records about a random point."""
    rng = np.random.default_rng(0)
    space = manifolds.get(name, dim=dim)
    middle = space.random_point(rng)
    spread = {"spd": 0.5 / np.sqrt(dim), "sphere": 0.5 / np.sqrt(dim), "lorentz": 1 / np.sqrt(dim)}[name]
    return space, space.exp_coordinates(middle, spread * rng.standard_normal((n, space.coordinate_size)))


def ours(space: Manifold, rows: Array) -> tuple[float, ExactMean]:
    """Processor seconds on one thread, from the mean in the space around, as most peers start."""
    times: list[float] = []
    while True:
        begun = process_time()
        start = space.canonical(rows.mean(axis=0))
        found = exact_mean(space, Records(rows, threads=1), start=start, tolerance=TOLERANCE)
        times.append(process_time() - begun)
        if len(times) == 3 or sum(times) > 1.0:
            return median(times), found


def main() -> None:
    lines: list[list[str]] = []
    for name, dim, n in CASES:
        space, rows = data(name, dim, n)
        time, found = ours(space, rows)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "case.npz"
            np.savez(path, rows=rows, kind=KINDS[name])
            theirs = call("run.py", path)[str(path)]
        size = dim if name == "spd" else space.dim
        cells = [f"{KINDS[name]} {size}, n = {n:,}", f"{1e3 * time:.0f} ms ({found.gradients})"]
        for peer in ("pyriemann", "geomstats", "pymanopt"):
            if peer not in theirs:
                cells.append("–")
                continue
            longer, point = theirs[peer]["seconds"], np.array(theirs[peer]["point"])
            left = lengths(space.log_coordinates(point, rows).mean(axis=0))
            assert space.dist(found.point, point) < 1e-4
            cells.append(f"{1e3 * longer:.0f} ms: {longer / time:.1f}× (norm {left:.0e})")
        lines.append(cells)
        print(cells, flush=True)
    body = f"""
Processor time on one thread to gradient norm {TOLERANCE:g}, in brackets the number of gradients; of peers the
multiples of ours, and the norm of the gradient where they stopped. All start at the mean in the space around,
but geomstats at a record. Only those of pymanopt are above the tolerance: one of its other criteria stopped
it.

{table(["case", "ours", "pyriemann", "geomstats", "pymanopt"], lines)}
"""
    publish("exact-mean", "Fréchet mean without privacy", body)


if __name__ == "__main__":
    main()
