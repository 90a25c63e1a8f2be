"""Subjects of new commits are short: which are looked at, and what is no fault."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testing import ROOT

SCRIPT = ROOT / "scripts" / "check-commits"
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@y")
    command = ["git", *identity, *arguments]
    done = subprocess.run(command, cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def check(directory: Path, *base: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *base]
    return subprocess.run(
        command, cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


def commit(directory: Path, subject: str) -> str:
    git(directory, "commit", "--quiet", "--allow-empty", "-m", f"{subject}\n\n{'why ' * 50}")
    return git(directory, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    return tmp_path


def test_a_new_subject_of_73_characters_is_told(repository: Path) -> None:
    commit(repository, "o" * 100)  # before the rule
    base = commit(repository, "The rule begins")
    commit(repository, "é" * 72)
    assert check(repository, base).returncode == 0
    found = commit(repository, "x" * 73)
    commit(repository, "short")
    told = check(repository, base)
    assert told.returncode == 1
    assert told.stdout.count("\n") == 1
    assert found[:7] in told.stdout
    assert "73 characters" in told.stdout


def test_merges_may_have_any_subject(repository: Path) -> None:
    base = commit(repository, "The rule begins")
    git(repository, "checkout", "--quiet", "-b", "other")
    commit(repository, "there")
    git(repository, "checkout", "--quiet", "main")
    commit(repository, "here")
    git(repository, "merge", "--quiet", "--no-ff", "-m", "m" * 90, "other")
    assert check(repository, base).returncode == 0
    assert git(repository, "log", "-1", "--format=%s") == "m" * 90


def test_without_that_history_there_is_nothing_to_look_at(tmp_path: Path, repository: Path) -> None:
    assert check(Path("/")).returncode == 0
    commit(repository, "x" * 90)
    assert check(repository).returncode == 0  # another project, or a shallow copy of this one
