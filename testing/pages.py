"""Runs what pages of the documentation show, and names those that tests run together."""

import os
import subprocess
import sys
from pathlib import Path

from testing.server import HANG_GUARD

BIN = Path(sys.executable).parent

PAGES_OF_CALLS = (
    "docs/data.md",
    "docs/several-owners.md",
    "docs/asking.md",
    "docs/ledger.md",
    "docs/approvals.md",
    "docs/bi.md",
)
"""Pages that show the calls which the README leaves out. They run in the README's shell."""


def shell(script: str, folder: Path, **environment: str) -> str:
    """What a script prints in a folder, with this environment's commands; the first that fails ends it."""
    done = subprocess.run(
        ["/bin/bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=folder,
        env=os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"} | environment,
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
