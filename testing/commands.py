"""Commands of Privest in processes of their own."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from testing.nursery import launch
from testing.server import ADMIN_KEY, HANG_GUARD, private_key_pem

PRIVEST = str(Path(sys.executable).with_name("privest"))
"""The command of this environment."""


def privest(
    directory: Path, *arguments: object, program: Path | str | None = None, **settings: str
) -> "subprocess.CompletedProcess[str]":
    """Run a command on what a `Server` of the same directory keeps there.

    Args:
        directory: of data, secret and signing key; they are made where there are none.
        arguments: of the command.
        program: of another version than this one.
        settings: further PRIVEST_… settings, by their names in lower case.
    """
    if not (directory / "secret").exists():
        (directory / "secret").write_bytes(b"x" * 32)
        (directory / "signing.pem").write_bytes(private_key_pem())
    given = {
        "admin_key": ADMIN_KEY,
        "data_dir": str(directory / "data"),
        "secret_file": str(directory / "secret"),
        "signing_key_file": str(directory / "signing.pem"),
        **settings,
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PRIVEST_")}
    environment |= {f"PRIVEST_{name.upper()}": value for name, value in given.items()}
    return run([str(program or PRIVEST), *map(str, arguments)], environment)


def run(command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, in a fork of the nursery where it is `PRIVEST`.

    Such a fork knows no PRIVEST_SECRETS_DIR, which is read as the service is loaded.
    """
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as errors:
        status = launch(command, environment, said, errors).wait(HANG_GUARD)
        told = (_text(file) for file in (said, errors))
        return subprocess.CompletedProcess(command, status, *told)


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode()
