"""Fréchet means of points in one cluster or two, on flat and curved spaces: coverage, error and width."""

import os
from concurrent.futures import ProcessPoolExecutor
from math import sqrt
from zlib import crc32

import numpy as np

from benchmarks.report import publish, table
from testing.ordinary_points import PointsCase, points_cases, radii

RUNS = int(os.environ.get("PRIVEST_BENCH_RUNS", "200"))
"""Runs of each case."""

HEADER = ["points", "coverage", "error ÷ textbook", "radius ÷ ideal", "warned"]


def measured(case: PointsCase) -> list[str]:
    """Return the line of a case; noise depends on its name, so that lines are independent."""
    found = case.answers(RUNS, crc32(case.name.encode()))
    off, stated = case.off(found), radii(found)
    warned = np.mean([bool(each.uncertainty and each.uncertainty.warnings) for each in found])
    return [
        case.name,
        f"{np.mean(off <= stated):.3f}",
        f"{sqrt(np.mean(off**2)) / case.textbook:.3g}",
        f"{np.median(stated) / np.quantile(off, 0.95):.2f}",
        f"{warned:.2f}",
    ]


def main() -> None:
    """Write the section."""
    with ProcessPoolExecutor(2) as pool:
        lines = list(pool.map(measured, points_cases()))
    publish(
        "ordinary-points",
        "Fréchet means of ordinary points",
        f"""
Means by default in {RUNS} runs a line, ε = 1 and δ = n^-1.5 where nothing else is said. *Coverage* is that of
the stated regions of 95 %. The *textbook* is one noisy sum of logarithms at the mean, which nobody knows, and
a Newton step with the exact Hessian. Its clip is the declared radius, or that of the whole space; where
neither is finite, the distance that holds .95 of the points, which nobody knows either. *Ideal* is the
distance that .95 of these answers are within. The targets are a coverage of .93, an error of 1.1 where a
fitting radius is declared, and a radius of 1.3. By chance a region that holds .95 covers less than .93 of 200
runs in one line of 13.

{table(HEADER, lines)}
""",
    )


if __name__ == "__main__":
    main()
