"""docs/references.md has every work that anything cites, and says truly where it is used."""

import re
from calendar import month_abbr, month_name
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "references.md"
CITING = ("core", "service", "client", "audit", "benchmarks", "testing", "tests", "docs", "examples")

NAME = r"[A-Z][\w-]+(?:’s|'s)?"
CITED = re.compile(rf"({NAME})((?:, {NAME})*(?:,? and {NAME}|,? et al\.)?)(?:,)? \(?((?:19|20)\d\d)\b")
"""Surnames and a year: `Mironov 2012`, `Balle and Wang (2018)`, `Balle, Barthe and Gaboardi 2018`."""

NO_AUTHORS = {*month_name, *month_abbr, "Measured", "Python", "Ward"}
"""Words that may stand before a year without being authors."""


def known() -> set[tuple[str, str]]:
    """First authors and years on the page, each where its entry begins."""
    found = re.findall(rf"(?:^### |\*\*)({NAME}).*? \(((?:19|20)\d\d)\)", PAGE.read_text(), re.MULTILINE)
    assert len(found) > 50
    assert len(set(found)) >= len(found) - 1  # Balle and Wang, Balle et al.
    return set(found)


def cited() -> Iterator[tuple[str, str, Path]]:
    for folder in CITING:
        for path in sorted((ROOT / folder).rglob("*")):
            # Peers of benchmarks have environments of their own.
            if path.suffix not in (".py", ".md", ".html") or path == PAGE or ".venv" in path.parts:
                continue
            text = " ".join(path.read_text().split())
            for found in CITED.finditer(text):
                if not NO_AUTHORS & set(re.findall(r"\w+", found[0])):
                    yield found[1].removesuffix("'s").removesuffix("’s"), found[3], path


def test_every_work_that_is_cited_is_listed() -> None:
    listed, everything = known(), list(cited())
    assert len(everything) > 60
    assert not sorted(
        {
            (name, year, str(path.relative_to(ROOT)))
            for name, year, path in everything
            if (name, year) not in listed
        }
    )


def test_what_is_said_to_use_a_work_is_there() -> None:
    places = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", PAGE.read_text())
    assert len(places) > 50
    assert not [
        place
        for place in places
        if not (ROOT / place).exists() and not (ROOT / "core/privest" / place).exists()
    ]


def test_no_paper_is_called_by_a_number() -> None:
    numbered = re.compile(r"\bpapers?\s+00\d", re.IGNORECASE)
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "core").rglob("*.py")]
    assert not [page.name for page in pages if numbered.search(page.read_text())]
