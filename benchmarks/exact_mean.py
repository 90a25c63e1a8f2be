"""The Fréchet mean without privacy, to gradient norm 1e-8, against pyriemann, geomstats and pymanopt."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np

from benchmarks.report import publish, table
from privest import manifolds
from privest.arrays import Array, lengths, transposed
from privest.manifolds import Manifold
from privest.manifolds.spd import eigen
from privest.records import Records, blocks
from privest.solvers.schedule import hessian_bounds

PEERS = Path(__file__).parent / "peers"
TOLERANCE = 1e-8
CASES = (
    ("spd", 10, 10_000),
    ("spd", 20, 10_000),
    ("spd", 50, 2_000),
    ("sphere", 11, 100_000),
    ("sphere", 101, 100_000),
    ("lorentz", 10, 100_000),
    ("lorentz", 100, 100_000),
)

LogSum = Callable[[Manifold, Array, Array], Array]
"""Σ log_point(row) in coordinates at the point: (space, point, rows) to (size,)."""


def plain_sum(space: Manifold, point: Array, rows: Array) -> Array:
    return space.log_coordinates(point, rows).sum(axis=0)


def fused_sum(space: Manifold, point: Array, rows: Array) -> Array:
    """As `plain_sum`, as weighted sums of the rows themselves: no array of logarithms is built."""
    if space.name == "sphere":
        cosine = rows @ point
        sine = np.sqrt(np.maximum((1 - cosine) * (1 + cosine), 0.0))
        weight = np.arctan2(sine, cosine) / np.where(sine > 1e-8, sine, 1.0)
        weight = np.where(sine > 1e-8, weight, 1.0)
        far = cosine < -0.999  # the weight grows, and side = x − cos·w cancels
        if far.any():
            weight[far] = 0.0
            rest = space.log_coordinates(point, rows[far]).sum(axis=0)
        else:
            rest = 0.0
        return weight @ rows - (weight @ cosine) * point + rest
    if space.name == "lorentz":
        t, w = point[0], point[1:]
        cosh = np.maximum(rows @ np.concatenate([[t], -w]), 1.0)
        sinh = np.sqrt((cosh - 1) * (cosh + 1))
        weight = np.where(sinh > 1e-8, np.arccosh(cosh) / np.where(sinh > 1e-8, sinh, 1.0), 1.0)
        total = weight @ rows
        return total[1:] + w * (w @ total[1:] / (1 + t) - total[0])
    inverse = np.linalg.inv(np.linalg.cholesky(point))
    values, vectors = eigen(inverse @ rows @ inverse.T)
    left = (vectors * np.log(values)[:, None, :]).transpose(1, 0, 2).reshape(len(inverse), -1)
    total = left @ transposed(vectors).reshape(-1, len(inverse))
    return space.coordinates(np.eye(len(inverse)), total)


def exact_mean(
    space: Manifold,
    rows: Array,
    start: Array,
    radius: float,
    log_sum: LogSum = plain_sum,
    secant: bool = False,
    threads: int | None = None,
) -> tuple[Array, int]:
    """Gradient descent to gradient norm 1e-8, in as many threads as `Records` takes.

    Args:
        space: where the rows live.
        rows: (n, *shape).
        start: (*shape).
        radius: no row is further from any iterate; it bounds the Hessian, and so the step from below.
        log_sum: how logarithms are summed.
        secant: steps by the last change of the gradient (Barzilai and Borwein 1988), between 1/high and
            1/low; else always 1/high.
        threads: of the sums.

    Returns:
        The mean, and the number of gradients that it took.
    """
    low, high = hessian_bounds(space.curvature, radius)
    records = Records(rows, threads)

    def gradient(at: Array) -> Array:
        whole = records.sum(lambda chunk: sum(log_sum(space, at, block) for block in blocks(chunk)))  # pyright: ignore
        return whole / len(rows)

    point, step = start, 1 / high
    pull = gradient(point)
    for count in range(1, 500):
        if float(lengths(pull)) < TOLERANCE:
            return point, count
        point = space.exp_coordinates(point, step * pull)
        before, pull = pull, gradient(point)
        if secant:
            change = (before - pull) / step
            curved = float(change @ before) / float(before @ before)
            step = 1 / min(max(curved, low), high)
    raise ArithmeticError("no mean found")


def data(name: str, dim: int, n: int) -> tuple[Manifold, Array]:
    """Records about a random point."""
    rng = np.random.default_rng(0)
    space = manifolds.get(name, dim=dim)
    middle = space.random_point(rng)
    spread = {"spd": 0.5 / np.sqrt(dim), "sphere": 0.5 / np.sqrt(dim), "lorentz": 1 / np.sqrt(dim)}[name]
    return space, space.exp_coordinates(middle, spread * rng.standard_normal((n, space.coordinate_size)))


def first_guess(space: Manifold, rows: Array) -> Array:
    """The mean of the rows in the space around, as peers take it."""
    return space.canonical(rows.mean(axis=0))


def ours(space: Manifold, rows: Array) -> dict[str, tuple[float, int, Array]]:
    """Processor seconds on one thread, gradients and the mean, of each variant."""
    start = first_guess(space, rows)
    radius = float(space.dist(start, rows).max())
    variants: dict[str, dict[str, Any]] = {
        "1/high": {},
        "secant": {"secant": True},
        "secant, fused": {"secant": True, "log_sum": fused_sum},
    }
    found: dict[str, tuple[float, int, Array]] = {}
    for label, options in variants.items():
        times: list[float] = []
        while not times or (len(times) < 3 and sum(times) < 1.0):
            begun = process_time()
            point, count = exact_mean(space, rows, start, radius, threads=1, **options)
            times.append(process_time() - begun)
        found[label] = (median(times), count, point)
    return found


def peers(path: Path) -> dict[str, dict[str, object]]:
    """What peers/run.py measures, in its own locked environment."""
    uv = shutil.which("uv") or "uv"
    done = subprocess.run(  # noqa: S603
        [uv, "run", "--quiet", "--locked", "--project", PEERS, "python", PEERS / "run.py", path],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return json.loads(done.stdout.splitlines()[-1])[str(path)]


def main() -> None:
    kinds = {"spd": "spd", "sphere": "sphere", "lorentz": "hyperbolic"}
    lines: list[list[str]] = []
    for name, dim, n in CASES:
        space, rows = data(name, dim, n)
        found = ours(space, rows)
        best = found["secant, fused"][2]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "case.npz"
            np.savez(path, rows=rows, kind=kinds[name])
            theirs = peers(path)
        cells = [f"{kinds[name]} {space.dim if name != 'spd' else dim}, n = {n:,}"]
        cells += [f"{1e3 * time:.0f} ms ({count})" for time, count, _ in found.values()]
        fastest = found["secant, fused"][0]
        plain = found["1/high"][0]
        for peer in ("pyriemann", "geomstats", "pymanopt"):
            if peer not in theirs:
                cells.append("–")
                continue
            time, point = float(theirs[peer]["seconds"]), np.array(theirs[peer]["point"])  # pyright: ignore
            off = lengths(plain_sum(space, point, rows) / n)
            assert space.dist(best, point) < 1e-4
            cells.append(f"{1e3 * time:.0f} ms: {time / plain:.1f}×, {time / fastest:.1f}× (norm {off:.0e})")
        lines.append(cells)
        print(cells, flush=True)
    variants = ("1/high", "secant", "secant, fused")
    header = ["case", *(f"ours, {label}" for label in variants), "pyriemann", "geomstats", "pymanopt"]
    body = f"""
Processor time on one thread to gradient norm {TOLERANCE:g}, in brackets the number of gradients; of peers the
multiples of our time with steps of 1/high and with secant steps on fused sums, and the norm of the gradient
where they stopped. All start at the mean in the space around, but geomstats at a record. Only those
of pymanopt are above the tolerance: one of its other criteria stopped it.

{table(header, lines)}
"""
    publish("exact-mean", "Fréchet mean without privacy", body)


if __name__ == "__main__":
    main()
