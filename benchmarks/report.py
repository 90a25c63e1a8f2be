"""Results of benchmarks: each is a file in benchmarks/results, which a section of a page in docs/ shows."""

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import median

import numpy as np

_ROOT = Path(__file__).parents[1]
_DOCS, _RESULTS = _ROOT / "docs", _ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Result:
    """Result of one benchmark, or of a part of it that has a section of its own.

    Attributes:
        section: name of the section and of the data file.
        page: file in docs/ that shows it.
        title: heading of the section.
        module: benchmark that measured it.
        date: day of the measurement, in ISO format.
        commit: short hash of the measured code, with a `+` if files differed from that commit.
        machine: processor and versions, as `machine` returns them; older results have the cores only.
        text: lines of the section in Markdown, with its tables.
    """

    section: str
    page: str
    title: str
    module: str
    date: str
    commit: str | None
    machine: dict[str, str | int | None]
    text: list[str]

    def render(self) -> str:
        """Return the section as the page shows it."""
        code = f" at commit {self.commit}" if self.commit else ""
        names = ("cpu", "python", "numpy", "blas")
        known = [str(self.machine[name]) for name in names if self.machine.get(name)]
        where = ", ".join([f"{self.machine['cores']} cores", *known])
        stamp = f"Measured {self.date}{code} on {where}."
        lines = [f"<!-- begin {self.section} -->", f"## {self.title}", "", stamp, "", *self.text]
        return "\n".join([*lines, f"<!-- end {self.section} -->"])


def machine() -> dict[str, str | int | None]:
    """Return the processor's model and cores, and the versions of Python, NumPy and its BLAS."""
    about, blas = Path("/proc/cpuinfo"), np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    model = re.search(r"^model name\s*: (.*)$", about.read_text() if about.exists() else "", re.MULTILINE)
    return {
        "cpu": model[1] if model else platform.processor() or None,
        "cores": os.cpu_count(),
        "python": f"Python {platform.python_version()}",
        "numpy": f"NumPy {np.__version__}",
        "blas": f"{blas['name']} {blas['version']}",
    }


def commit(root: Path = _ROOT) -> str | None:
    """Return the short hash of the present commit, or None outside a repository.

    A `+` follows it if files differ from that commit. Pages and results do not count: benchmarks write them.
    """

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)  # noqa: S603, S607
        return done.stdout.strip()

    try:
        head = git("rev-parse", "--short=8", "HEAD")
        changed = git("status", "--porcelain", "--", ".", ":!docs", ":!benchmarks/results")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head}+" if changed else head


_COMMIT = commit()
"""Read when a benchmark starts: files may change while it runs for hours."""


def table(header: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    lines = [list(map(str, header)), *(list(map(str, row)) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(values: list[float], form: str = ",.0f") -> str:
    """The median, with the least and the most."""
    return f"{median(values):{form}} ({min(values):{form}}–{max(values):{form}})"


def publish(name: str, title: str, body: str, page: str = "benchmarks.md", module: str | None = None) -> None:
    """Print a section, and write its data and its place in the page.

    Args:
        name: of the section, in place of whose former text it is written.
        title: heading of the section.
        body: Markdown text of the section.
        page: file in docs/ that shows it.
        module: benchmark that measured it; the calling module by default.
    """
    # A module that is run as a program has its name in its path alone.
    module = module or f"benchmarks.{Path(sys._getframe(1).f_globals['__file__']).stem}"
    lines = body.strip().splitlines()
    today = date.today().isoformat()
    result = Result(name, page, title, module, today, _COMMIT, machine(), lines)
    print(result.render())
    text = json.dumps(asdict(result), indent=1, ensure_ascii=False)
    (_RESULTS / f"{name}.json").write_text(text + "\n")
    write_pages(name)


def results() -> list[Result]:
    """Return all results that are stored, by the names of their sections."""
    return [Result(**json.loads(path.read_text())) for path in sorted(_RESULTS.glob("*.json"))]


def write_pages(*names: str) -> None:
    """Write sections into their pages, all of them or those that are named. New ones go to the end."""
    for result in results():
        if names and result.section not in names:
            continue
        path, section, name = _DOCS / result.page, result.render(), re.escape(result.section)
        former = re.compile(rf"<!-- begin {name} -->.*?<!-- end {name} -->", re.DOTALL)
        text, replaced = former.subn(lambda _, section=section: section, path.read_text())
        path.write_text(text if replaced else f"{text.rstrip()}\n\n{section}\n")
