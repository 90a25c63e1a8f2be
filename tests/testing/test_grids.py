"""Thin grids: any two values meet, however they are told, and nothing is lost to `make prove`."""

import subprocess
import sys
from itertools import combinations, product
from pathlib import Path

import pytest

from testing import ROOT
from testing.grids import keep_few, meeting, thin

BACKENDS = ("sqlite", "postgresql")
GRID = """
import pytest

@pytest.fixture(params=["sqlite", "postgresql"])
def backend(request):
    return request.param

@pytest.mark.parametrize("solver", list("abcd"))
@pytest.mark.parametrize(("delta", "law"), [(0.0, "laplace"), (1e-6, "gaussian"), (1e-3, "gaussian")])
def test_grid(backend, solver, delta, law): ...

@pytest.mark.parametrize("solver", list("abcd"))
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_table(solver, delta): ...

@pytest.mark.sparse
@pytest.mark.parametrize("solver", list("abcd"))
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_sparse(solver, delta): ...

@pytest.mark.either
@pytest.mark.parametrize("solver", list("abcdefgh"))
def test_either(backend, solver): ...

@pytest.fixture
def server(backend): ...

@pytest.mark.parametrize("solver", list("abcdefgh"))
def test_http(server, solver): ...

@pytest.mark.both
@pytest.mark.parametrize("solver", list("abcdefgh"))
def test_both(server, solver): ...

@pytest.mark.parametrize(("solver", "delta", "batch"), [(*"ab", n) for n in range(9)])
def test_list(solver, delta, batch): ...
"""


class Found:
    """Thins what is collected, as `tests/conftest.py` does, and keeps the names of what is left."""

    names: tuple[str, ...] = ()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        thin(items)
        keep_few(items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.names = tuple(item.name for item in session.items)


def found(file: Path, name: str = "", marked: str = "not prove") -> list[str]:
    """The names of the tests that are chosen of a file."""
    seen, settings = Found(), file.with_name("pytest.ini")
    settings.write_text("[pytest]\nmarkers =\n  prove\n  costly\n  few\n  sparse\n  either\n  both\n")
    options = ["--collect-only", "-qq", "-pno:xdist", f"--rootdir={file.parent}", f"-c{settings}"]
    pytest.main([*options, "-m", marked, f"{file}{name}"], plugins=[seen])
    return [*seen.names]


@pytest.mark.parametrize("sides", [(2, 2, 2), (8, 2, 3, 2), (23, 4, 4), (1, 5, 6), (7,), ()])
def test_any_two_values_meet_in_few_places(sides: tuple[int, ...]) -> None:
    grid = [*product(*map(range, sides))]
    chosen = [grid[at] for at in meeting(grid)]
    met = {pair for place in chosen for pair in combinations(enumerate(place), 2)}
    assert met == {pair for place in grid for pair in combinations(enumerate(place), 2)}
    moving = sorted(side for side in sides if side > 1)
    assert {pair for at in meeting(grid, 1) for pair in enumerate(grid[at])} == {
        pair for place in grid for pair in enumerate(place)
    }
    if len(moving) < 3:
        assert chosen == grid
    else:
        assert len(chosen) <= 1.5 * moving[-1] * moving[-2]


FEW = """
import pytest

@pytest.mark.few(3)
@pytest.mark.parametrize("n", range(12))
def test_long(n): ...

@pytest.mark.few(3)
@pytest.mark.parametrize("n", range(2))
def test_short(n): ...
"""


def test_of_a_costly_list_a_few_are_kept_and_spread(tmp_path: Path) -> None:
    file = tmp_path / "test_lists.py"
    file.write_text(FEW)
    kept, left_out = (found(file, marked=marks) for marks in ("not costly", "costly"))
    assert kept == ["test_long[0]", "test_long[4]", "test_long[8]", "test_short[0]", "test_short[1]"]
    assert len(left_out) == 9


def test_what_begins_too_late_is_skipped_and_another_order_begins_with_another_module() -> None:
    def run(*options: str) -> str:
        files = [f"tests/testing/test_{name}.py" for name in ("exact_mean", "grids")]
        command = [sys.executable, "-m", "pytest", "-n0", *options, *files]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "6 skipped" in run("--minutes=0", "-k", "any_two_values")
    assert "6 passed" in run("--minutes=60", "-k", "any_two_values")
    for order, first in ("a", "exact_mean"), ("b", "grids"):
        assert run("--collect-only", f"--order={order}").startswith(f"tests/testing/test_{first}.py")


@pytest.mark.costly
def test_what_is_more_of_a_grid_is_left_to_the_long_proofs(tmp_path: Path) -> None:
    file = tmp_path / "test_file.py"
    file.write_text(GRID)
    usual, long = found(file), found(file, marked="prove")

    def left(name: str) -> list[str]:
        return [each for each in usual if each.startswith(f"test_{name}[")]

    names = "grid", "sparse", "either", "http", "both", "table", "list"
    assert [len(left(name)) for name in names] == [12, 4, 8, 8, 16, 8, 9]
    assert {name[-2] for name in left("sparse")} == {*"abcd"}
    for name in ("either", "http"):
        assert {database for each in left(name) for database in BACKENDS if database in each} == {*BACKENDS}
    assert len(usual) + len(long) == 24 + 8 + 3 * 16 + 8 + 9
    assert found(file, f"::{long[0]}") == [long[0]]  # called for by its name
