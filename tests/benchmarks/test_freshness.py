"""Sections of pages know the code that they measured."""

from pathlib import Path

import pytest

from benchmarks import freshness

PROGRAM = '"""Words."""\nfrom privest.sums import add\n\nprint(add(1, 2))\n'
SUMS = 'def add(a, b):\n    """Add."""\n    return a + b  # as one does\n'


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of a benchmark and of what it measures."""
    (tmp_path / "measured.py").write_text(PROGRAM)
    (tmp_path / "sums.py").write_text(SUMS)
    (tmp_path / "other.py").write_text("")
    monkeypatch.setattr(freshness, "_HOUSES", {"benchmarks": tmp_path, "privest": tmp_path})
    return tmp_path


def _told(page: str) -> tuple[list[str], list[str]]:
    for remembered in (freshness._tree, freshness._imported, freshness._code):
        remembered.cache_clear()
    return freshness.older(page)


@pytest.mark.parametrize(
    ("name", "text", "stale"),
    [
        ("sums.py", SUMS.replace("a + b", "a - b"), True),
        ("measured.py", PROGRAM.replace("1, 2", "1, 3"), True),
        ("sums.py", SUMS.replace("Add.", "Add two.").replace("  # as one does", ""), False),
        ("other.py", "print(1)\n", False),
        ("sums.py", SUMS, False),
    ],
)
def test_a_section_is_older_than_its_code_once_that_does_something_else(
    house: Path, name: str, text: str, stale: bool
) -> None:
    _told("")
    mark = freshness.mark("benchmarks.measured")
    page = f"<!-- begin sums -->\n{mark}\n## Sums\n<!-- end sums -->\n<!-- begin old -->\n<!-- end old -->\n"
    assert _told(page) == ([], ["old"])
    (house / name).write_text(text)
    assert _told(page) == (["sums"] if stale else [], ["old"])


@pytest.mark.costly
def test_whoever_starts_a_server_measures_the_service() -> None:
    found, left = set[str](), ["benchmarks.ledger_load"]
    while left:
        name = left.pop()
        if name not in found and freshness._path(name):
            found.add(name)
            left += freshness._imported(name)
    assert {"testing.server", "privest_service.app", "privest.privacy.gate"} <= found
