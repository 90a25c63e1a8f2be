"""What `make quick` chooses: tests that changed, and those that have a source's name or import it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testing import ROOT

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
FILES = {
    "core/privest/privacy/gate.py": "",
    "core/privest/privacy/__init__.py": "",
    "core/privest/privacy/gates.py": "",
    "scripts/check-it": "",
    "README.md": "",
    "tests/core/privacy/test_gate.py": "",
    "tests/core/privacy/test_gates.py": "from privest.privacy import gates\n",
    "tests/core/test_all.py": "from privest.privacy import (\n    cost,\n    gate,\n)\n",
    "tests/core/test_inside.py": "def test():\n    from privest.privacy.gate import Gate\n",
    "tests/scripts/test_check_it.py": "from privest.privacy.gates import Gates\n",
}
OF_GATE = {"tests/core/privacy/test_gate.py", "tests/core/test_all.py", "tests/core/test_inside.py"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project on a branch, with one commit, on main, that has all these files."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    commit(tmp_path)
    git(tmp_path, "checkout", "--quiet", "-b", "other")
    return tmp_path


def git(project: Path, *arguments: str) -> None:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@y", *arguments]
    subprocess.run(command, cwd=project, env=ENVIRONMENT, check=True)


def commit(project: Path) -> None:
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "-m", "What there is")


def chosen(project: Path) -> set[str]:
    command = [sys.executable, str(ROOT / "scripts" / "changed-tests"), "main"]
    done = subprocess.run(command, cwd=project, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("core/privest/privacy/gate.py", OF_GATE),
        (
            "core/privest/privacy/gates.py",
            {"tests/core/privacy/test_gates.py", "tests/scripts/test_check_it.py"},
        ),
        ("core/privest/privacy/__init__.py", {"tests/core/privacy/test_gates.py", "tests/core/test_all.py"}),
        ("scripts/check-it", {"tests/scripts/test_check_it.py"}),
        ("tests/core/test_all.py", {"tests/core/test_all.py"}),
        ("tests/core/test_new.py", {"tests/core/test_new.py"}),
        ("README.md", set()),
    ],
)
@pytest.mark.parametrize("committed", [True, False])
def test_they_are_those_that_a_change_concerns(
    project: Path, changed: str, tests: set[str], committed: bool
) -> None:
    assert chosen(project) == set()
    (project / changed).write_text("# changed\n")
    if committed:
        commit(project)
    assert chosen(project) == tests


def test_what_others_did_on_main_meanwhile_is_theirs(project: Path) -> None:
    git(project, "checkout", "--quiet", "main")
    (project / "core/privest/privacy/gate.py").write_text("# changed\n")
    commit(project)
    git(project, "checkout", "--quiet", "other")
    (project / "README.md").unlink()
    commit(project)
    assert chosen(project) == set()
    assert (project / "core/privest/privacy/gate.py").read_text() == ""
