"""Results of benchmarks are stored as data, and sections of pages show nothing else."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import report

SECTION = re.compile(r"<!-- begin ([\w-]+) -->.*?<!-- end \1 -->", re.DOTALL)
PAGE = "# Times\n\n<!-- begin sums -->\nold\n<!-- end sums -->\n\nWords between.\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one page and no results."""
    (tmp_path / "results").mkdir()
    (tmp_path / "times.md").write_text(PAGE)
    monkeypatch.setattr(report, "_DOCS", tmp_path)
    monkeypatch.setattr(report, "_RESULTS", tmp_path / "results")
    monkeypatch.setattr(report, "_COMMIT", "0123abcd+")
    return tmp_path


def test_each_section_of_the_pages_shows_its_data() -> None:
    results = {result.section: result for result in report.results()}
    shown = set[str]()
    for page in {result.page for result in results.values()} | {"benchmarks.md", "reproductions.md"}:
        for section in SECTION.finditer((report._DOCS / page).read_text()):
            name = section[1]
            assert name not in shown, f"{name} is shown twice"
            assert name in results, f"docs/{page} shows {name}, which has no file in benchmarks/results"
            assert (results[name].page, results[name].render()) == (page, section[0]), (
                f"docs/{page} and the data of {name} differ: run `python -m benchmarks --pages`"
            )
            shown.add(name)
    assert shown == results.keys()


def test_a_result_is_stored_and_replaces_its_section(project: Path) -> None:
    body = "Seconds:\n\n" + report.table(["n", "s"], [[1, "é"]])
    report.publish("sums", "Sums", body, page="times.md")
    report.publish("products", "Products", "none", page="times.md", module="benchmarks.products")
    products, sums = report.results()
    assert (sums.section, sums.module, sums.commit) == ("sums", "benchmarks.test_report", "0123abcd+")
    assert (products.module, products.text) == ("benchmarks.products", ["none"])
    assert sums.text == ["Seconds:", "", "| n | s |", "| --- | --- |", "| 1 | é |"]
    shown = f"# Times\n\n{sums.render()}\n\nWords between.\n\n{products.render()}\n"
    assert (project / "times.md").read_text() == shown
    (project / "times.md").write_text(shown.replace("Sums", "Changed"))
    assert benchmarks.main(["--pages"]) == 0
    assert (project / "times.md").read_text() == shown


def test_a_section_states_when_where_and_with_which_code_it_was_measured() -> None:
    machine: dict[str, str | int | None] = {"cpu": "Z80", "cores": 2, "python": "Python 3.11", "blas": None}
    result = report.Result("a", "b.md", "A", "benchmarks.a", "2026-11-29", "0123abcd", machine, ["words"])
    assert result.render().splitlines() == [
        "<!-- begin a -->",
        "## A",
        "",
        "Measured 2026-11-29 at commit 0123abcd on 2 cores, Z80, Python 3.11.",
        "",
        "words",
        "<!-- end a -->",
    ]
    assert "Measured 2026-11-29 on 2 cores," in replace(result, commit=None).render()
    assert report.machine().keys() == {"cpu", "cores", "python", "numpy", "blas"}


def test_the_commit_says_whether_files_differ_from_it(tmp_path: Path) -> None:
    assert report.commit(tmp_path) is None
    user = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for arguments in (["init", "-q"], [*user, "commit", "-q", "--allow-empty", "-m", "Begin"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    clean = report.commit(tmp_path)
    assert clean is not None
    assert re.fullmatch("[0-9a-f]{8}", clean)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "times.md").touch()
    assert report.commit(tmp_path) == clean
    (tmp_path / "code.py").touch()
    assert report.commit(tmp_path) == f"{clean}+"
