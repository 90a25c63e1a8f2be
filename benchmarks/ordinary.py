"""Means of ordinary columns beside the textbook mechanism, diffprivlib and OpenDP: coverage, error, width."""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import numpy as np

from benchmarks import ordinary_cases, ordinary_speed
from benchmarks.ordinary_cases import WIDE
from benchmarks.peers import call
from benchmarks.real_table import Half
from benchmarks.report import publish, table
from testing.ordinary_columns import Case, answers, sets_of_columns, single_columns

RUNS = int(os.environ.get("PRIVEST_BENCH_RUNS", "200"))
"""Runs of each case."""

_AGAIN = 5
"""How many times as many other runs tell chance from fault where a line misses a target."""

COVERAGE, ERROR = 0.93, 1.1
"""Least coverage, and largest error over the textbook's."""


@dataclass(frozen=True)
class Line:
    """What runs of one case came to.

    Attributes:
        name: of the case.
        most: largest error over the textbook's that is accepted; None where none is.
        coverage: share of stated intervals that contain the truth.
        error: root mean square, over the textbook's.
        width: median length of stated intervals over the textbook's.
        stated: share of intervals that are stated.
        warned: share of answers with a warning.
    """

    name: str
    most: float | None
    coverage: float
    error: float
    width: float
    stated: float
    warned: float

    @property
    def misses(self) -> bool:
        """Whether it misses a target."""
        return self.coverage < COVERAGE or (self.most is not None and self.error > self.most)

    def cells(self) -> list[str]:
        """The line in a table."""
        numbers = [self.coverage, self.error, self.width, self.stated, self.warned]
        forms = (".3f", ".3g", ".3g", ".2f", ".2f")
        return [
            self.name,
            *("–" if np.isnan(x) else f"{x:{form}}" for x, form in zip(numbers, forms, strict=True)),
        ]


HEADER = ["columns", "coverage", "error", "width", "stated", "warned"]


@dataclass(frozen=True)
class Group:
    """Cases of one table.

    Attributes:
        title: its headline.
        about: what it shows, in words.
        cases: each with the largest error that is accepted.
    """

    title: str
    about: str
    cases: tuple[tuple[Case, float | None], ...]


def group(title: str, about: str, cases: Iterable[Case], most: float | None = ERROR) -> Group:
    """A group whose cases have one target."""
    return Group(title, about, tuple((case, most) for case in cases))


def measured(case: Case, most: float | None, runs: int, seed: int) -> Line:
    """The line of a case. Noise depends on its name, so that lines are independent."""
    found = answers(case, runs, crc32(f"{case.name} {seed}".encode()))
    unit = case.textbook
    return Line(
        case.name,
        most,
        found.coverage,
        found.error(unit),
        found.width(unit),
        float(found.stated.mean()),
        float(found.warned.mean()),
    )


def groups() -> Iterator[Group]:
    """All groups of cases but those beside peers."""
    yield group("Single columns", "", single_columns())
    yield group("Sets of columns in one query", "", sets_of_columns())
    known = "The unit is one noisy sum within the least and the largest value, which nobody may know."
    yield group("Columns without bounds", known, ordinary_cases.unbounded_columns(), None)
    halves: dict[Half, str] = {"TUNE": "that may be looked at", "FINAL": "that only measurements look at"}
    for half, seen in halves.items():
        told = f"Tables {seen}. All constants were tuned on synthetic columns alone."
        yield group(f"Real columns, {half}", told, ordinary_cases.real_columns(half))
        yield group(f"Real columns of a table in one query, {half}", told, ordinary_cases.real_sets(half))
    wide = "Bounds so many times too wide. Accepted errors are 0.35, 0.1 and 0.01 for 10, 100 and 1,000."
    cases = ordinary_cases.wide_columns()
    yield Group("Wide bounds", wide, tuple((case, WIDE[factor]) for factor, case in cases))
    basic = "On an account that adds up ε and δ, beside the textbook's Laplace mechanism."
    yield group("Single columns on a basic account", basic, ordinary_cases.basic_columns())


def _pooled(asked: Sequence[tuple[Case, float | None, int, int]]) -> list[Line]:
    """The lines of cases, which two processes measure."""
    with ProcessPoolExecutor(2) as pool:
        return [each.result() for each in [pool.submit(measured, *one) for one in asked]]


def measure(shown: Sequence[Group], runs: int) -> tuple[list[list[Line]], list[list[Line]]]:
    """The lines of each group, and of those that miss a target the same with many other runs."""
    asked = [(case, most) for each in shown for case, most in each.cases]
    first = _pooled([(case, most, runs, 0) for case, most in asked])
    missing = [at for at, line in enumerate(first) if line.misses]
    repeats = _pooled([(*asked[at], _AGAIN * runs, 1) for at in missing])
    again = dict(zip(missing, repeats, strict=True))
    lines, other, start = list[list[Line]](), list[list[Line]](), 0
    for each in shown:
        places = range(start, start + len(each.cases))
        lines.append([first[at] for at in places])
        other.append([again[at] for at in places if at in again])
        start = places.stop
    return lines, other


def peers(cases: Sequence[Case], runs: int) -> tuple[dict[str, str], list[dict[str, float]]]:
    """Versions of other packages, and their errors on each case over the textbook's."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{at}.npz" for at in range(len(cases))]
        for path, case in zip(paths, cases, strict=True):
            low, high = _ends(case)
            np.savez(path, x=case.rows[:, 0], low=low, high=high, epsilon=case.epsilon, runs=runs)
        told: dict[str, Any] = call("means.py", *paths)
    errors = list[dict[str, float]]()
    for case, found in zip(cases, told["found"], strict=True):
        truth = float(np.clip(case.rows[:, 0], *_ends(case)).mean())
        unit = float(case.textbook[0])
        errors.append(
            {name: sqrt(np.mean((np.array(values) - truth) ** 2)) / unit for name, values in found.items()}
        )
    return told["versions"], errors


def _ends(case: Case) -> tuple[float, float]:
    """Bounds of a case's only column."""
    (column,) = case.columns
    return (0.0, 1.0) if column.low is None or column.high is None else (column.low, column.high)


def _summary(shown: Sequence[Group], lines: Sequence[list[Line]], again: Sequence[list[Line]]) -> str:
    """One row for each group."""
    rows = list[list[str]]()
    for each, first, other in zip(shown, lines, again, strict=True):
        coverage, error, width = (np.array([getattr(line, name) for line in first]) for name in HEADER[1:4])
        rows.append(
            [
                each.title,
                f"{len(first)}",
                f"{coverage.mean():.3f} ({coverage.min():.3f})",
                f"{np.median(error):.3g} ({error.max():.3g})",
                f"{np.nanmedian(width):.3g}",
                f"{np.mean([line.stated for line in first]):.2f}",
                f"{np.mean([line.warned for line in first]):.2f}",
                f"{len(other)}",
                f"{sum(line.misses for line in other)}",
            ]
        )
    header = ["group", "lines", "coverage (least)", "error (largest)", "width", "stated", "warned"]
    return table([*header, f"miss in {RUNS}", f"miss in {_AGAIN * RUNS} others"], rows)


def _beside_peers() -> str:
    """Errors of other packages on the same columns, with δ = 0."""
    cases = tuple(ordinary_cases.pure_columns())
    versions, theirs = peers(cases, RUNS)
    ours = _pooled([(case, ERROR, RUNS, 0) for case in cases])
    rows = [
        [line.name, f"{line.error:.3g}", *(f"{error:.3g}" for error in others.values())]
        for line, others in zip(ours, theirs, strict=True)
    ]
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"""
### Beside other packages, δ = 0

Root mean square errors over the textbook's, of {RUNS} runs; {packages}. The mean of diffprivlib cuts its
answers off at the bounds, and uses the same noise in every line; that of OpenDP is of so many clamped values,
with Laplace noise. Neither states an interval.

{table(["columns", "privest", *versions], rows)}
"""


def main() -> None:
    """Write the section."""
    time = ordinary_speed.told()
    shown = list(groups())
    lines, again = measure(shown, RUNS)
    missing = [line for other in again for line in other]
    body = f"""
Means of columns by default, ε = 1 and δ = n^-1.5 where nothing else is said, in {RUNS} runs a line. The
*textbook* is one noisy sum over the declared bounds, with the whole budget. *Coverage* is that of stated
intervals of 95 %, *error* the root mean square over the textbook's, *width* the median length of stated
intervals over the textbook's. Targets are a coverage of {COVERAGE} and an error of {ERROR}. By chance an
interval that holds .95 covers less than .93 of 200 runs of one column in one line of 13, and of 100 runs in
one of 8. So lines that miss are measured again, in {_AGAIN * RUNS} other runs. Constants were tuned on
synthetic columns alone.

{_summary(shown, lines, again)}

### Lines that missed a target, in {_AGAIN * RUNS} other runs

{table([*HEADER, "misses"], [[*line.cells(), "yes" if line.misses else "no"] for line in missing])}
{_beside_peers()}
### Time
{time}"""
    for each, found in zip(shown, lines, strict=True):
        body += f"\n### {each.title}\n\n{each.about}\n\n{table(HEADER, [line.cells() for line in found])}\n"
    publish("ordinary", "Means of ordinary columns", body)


if __name__ == "__main__":
    main()
