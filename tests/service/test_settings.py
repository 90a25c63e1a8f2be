"""Settings that are secret may stand in files, where no listing of environments shows them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testing.server import HANG_GUARD

PRINT = "from privest_service.settings import Settings; print(Settings().admin_key.get_secret_value())"


def told(**environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PRIVEST_")}
    command = [sys.executable, "-c", PRINT]
    return subprocess.run(
        command, env=clean | environment, capture_output=True, text=True, check=True, timeout=HANG_GUARD
    ).stdout


@pytest.fixture
def directory(tmp_path: Path) -> str:
    (tmp_path / "privest_admin_key").write_text("the-key-in-a-file\n")
    return str(tmp_path)


def test_a_file_stands_for_a_variable_that_is_not_set(directory: str) -> None:
    assert told(PRIVEST_SECRETS_DIR=directory) == "the-key-in-a-file\n"


def test_the_environment_comes_first(directory: str) -> None:
    key = "the-key-of-the-environment"
    assert told(PRIVEST_SECRETS_DIR=directory, PRIVEST_ADMIN_KEY=key) == key + "\n"
