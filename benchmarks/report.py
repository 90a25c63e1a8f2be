"""Writing results: Markdown tables, and one section of docs/benchmarks.md for each benchmark."""

import os
import re
from collections.abc import Iterable
from datetime import date
from pathlib import Path

_PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
_HEAD = """# Benchmarks

`make bench` measures again and replaces the sections below, each by its own. Ratios within one run count;
times differ by 30 % and more from one run to the next.
"""


def table(header: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    lines = [list(map(str, header)), *(list(map(str, row)) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def publish(name: str, title: str, body: str) -> None:
    """Print a section, and write it to the page in place of the former section of that name."""
    stamp = f"Measured {date.today().isoformat()} on {os.cpu_count()} cores."
    section = f"<!-- begin {name} -->\n## {title}\n\n{stamp}\n\n{body.strip()}\n<!-- end {name} -->"
    print(section)
    page = _PAGE.read_text() if _PAGE.exists() else _HEAD
    former = re.compile(rf"<!-- begin {re.escape(name)} -->.*?<!-- end {re.escape(name)} -->", re.DOTALL)
    page, replaced = former.subn(lambda _: section, page)
    _PAGE.write_text(page if replaced else f"{page.rstrip()}\n\n{section}\n")
