"""What a private logistic regression costs: time against diffprivlib, memory over a memory-mapped file."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np

from benchmarks.peers import call
from benchmarks.report import table
from privest.arrays import Array
from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.estimators.linear_model import logistic_regression
from privest.estimators.linear_model.logistic_regression import LogisticSpec
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate

TIMED = (100_000, 20)
LARGE = (1_000_000, 50)
ROUNDS = 5
PRIVACY = PrivacyTarget(1.0, 1e-6)

_CHILD = """
import sys
import numpy as np
from benchmarks.logistic_regression_cost import fit, held
before = held()
fit(np.load(sys.argv[1], mmap_mode="r"))
print(held() - before)
"""


def rows_of(n: int, dim: int, seed: int = 0) -> Array:
    """Standard normal features, labels by a logistic model; a label is the last number of a row."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, dim + 1))
    score = 3 / sqrt(dim) * rows[:, :-1].sum(axis=1)
    rows[:, -1] = rng.uniform(size=n) < 1 / (1 + np.exp(-score))
    return rows


def fit(rows: Array, threads: int | None = None) -> None:
    """Plan, charge nothing, run: all defaults."""
    n, dim = len(rows), rows.shape[1] - 1
    names = tuple(f"x{place}" for place in range(dim))
    shape = LabelledMetadata(n, names, "y", ("0", "1"), sqrt(dim), (0.0,) * dim, (1.0,) * dim)
    planned = logistic_regression.plan(LogisticSpec(), shape, PRIVACY)
    logistic_regression.run(planned, Gate(Records(rows, threads), planned.statistics, planned.releases))


def held() -> int:
    """Most bytes this process has held. `ru_maxrss` would start at what the parent held when it forked."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def timed(action: Callable[[], object]) -> tuple[float, float]:
    """Median wall and processor seconds of five."""
    taken: list[tuple[float, float]] = []
    for _ in range(5):
        wall, cpu = perf_counter(), process_time()
        action()
        taken.append((perf_counter() - wall, process_time() - cpu))
    wall, cpu = np.median(taken, axis=0)
    return float(wall), float(cpu)


def times() -> str:
    rows = rows_of(*TIMED)
    found: dict[str, list[tuple[float, float]]] = {"all threads": [], "one thread": [], "peer": []}
    fit(rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, x=rows[:, :-1] / sqrt(TIMED[1]), y=rows[:, -1])
        for _ in range(ROUNDS):
            theirs = call("logistic.py", "--time", path)[str(path)]
            found["peer"].append((theirs["wall"], theirs["cpu"]))
            found["all threads"].append(timed(lambda: fit(rows)))
            found["one thread"].append(timed(lambda: fit(rows, threads=1)))

    def spread(values: list[float], unit: str = "") -> str:
        return f"{median(values):.3f} ({min(values):.3f} to {max(values):.3f}){unit}"

    lines: list[list[str]] = []
    for place, kind in enumerate(("wall", "processor")):
        peer = [each[place] for each in found["peer"]]
        line = [kind, spread(peer, " s")]
        for name in ("all threads", "one thread"):
            own = [each[place] for each in found[name]]
            ratios = [o / p for o, p in zip(own, peer, strict=True)]
            line += [spread(own, " s"), spread(ratios)]
        lines.append(line)
    n, dim = TIMED
    threads = os.environ.get("OMP_NUM_THREADS", "unset")
    header = ["time", "diffprivlib", "ours, all threads", "ratio", "ours, one thread", "ratio"]
    return f"""
Fit of {n:,}×{dim}, two classes: diffprivlib (`data_norm=1.0`, else defaults, δ = 0) and ours (all
defaults, plan included, δ = 1e-6), both at ε = 1. Median of {ROUNDS} rounds of five fits of each in turn, and
least to most; OMP_NUM_THREADS is 1 for diffprivlib and {threads} for ours. Ratios below 1: ours is faster.

{table(header, lines)}
"""


def memory() -> str:
    n, dim = LARGE
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(n, dim + 1))
        for place, start in enumerate(range(0, n, 100_000)):
            rows[start : start + 100_000] = rows_of(100_000, dim, seed=place)
        rows.flush()
        size = path.stat().st_size
        del rows
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", _CHILD, path], stdout=subprocess.PIPE, text=True, check=True
        )
    peak = int(done.stdout)
    verdict = "below twice its size: yes" if peak < 2 * size else "below twice its size: **no**"
    return f"""
Memory of a fit of {n:,}×{dim} through a memory-mapped npy of {size / 1e6:.0f} MB, in a process of its own: at
most {peak / 1e6:.0f} MB more than after its imports, pages of the file included, which the system may drop at
will; {verdict}.
"""


def cost() -> str:
    return f"{times()}\n{memory()}"
