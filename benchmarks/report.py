"""Writing results: Markdown tables, and one section of docs/benchmarks.md for each benchmark."""

import os
import re
import sys
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import freshness

_DOCS = Path(__file__).parents[1] / "docs"
_HEAD = """# Benchmarks

`make bench` measures again and replaces the sections below, each by its own. Ratios within one run count;
times differ by 30 % and more from one run to the next.
"""


def table(header: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    lines = [list(map(str, header)), *(list(map(str, row)) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(values: list[float], form: str = ",.0f") -> str:
    """The median, with the least and the most."""
    return f"{median(values):{form}} ({min(values):{form}}–{max(values):{form}})"


def publish(name: str, title: str, body: str, page: str = "benchmarks.md") -> None:
    """Print a section, and write it to the page in place of the former section of that name.

    A digest of the code that was measured stands beside it. Sections that are older than theirs are named.
    """
    stamp = f"Measured {date.today().isoformat()} on {os.cpu_count()} cores."
    measured = freshness.mark(_module(sys._getframe(1).f_globals))
    head = f"<!-- begin {name} -->\n{measured}\n## {title}"
    section = f"{head}\n\n{stamp}\n\n{body.strip()}\n<!-- end {name} -->"
    print(section)
    path = _DOCS / page
    text = path.read_text() if path.exists() else _HEAD
    former = re.compile(rf"<!-- begin {re.escape(name)} -->.*?<!-- end {re.escape(name)} -->", re.DOTALL)
    text, replaced = former.subn(lambda _: section, text)
    path.write_text(text if replaced else f"{text.rstrip()}\n\n{section}\n")
    freshness.main()


def _module(names: dict[str, Any]) -> str:
    """The benchmark that publishes; one that is run as a program has its name in its path alone."""
    return f"benchmarks.{Path(names['__file__']).stem}"
