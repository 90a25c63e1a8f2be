"""Commands of Privest in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

from testing.server import ADMIN_KEY, HANG_GUARD, private_key_pem


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
    told = [str(program or Path(sys.executable).with_name("privest")), *map(str, arguments)]
    return subprocess.run(
        told, env=environment, capture_output=True, text=True, timeout=HANG_GUARD, check=False
    )
