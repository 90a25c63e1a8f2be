"""Runs other packages in their own locked environment."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent


def _uv() -> str:
    """uv: of the path, else the one that `make install` brought.

    Raises:
        SystemExit: there is neither.
    """
    here = _HERE.parents[1] / ".uv" / "bin"
    if found := shutil.which("uv") or shutil.which("uv", path=str(here)):
        return found
    raise SystemExit(
        "peers are measured in an environment that uv makes: call `make install`, which brings it"
    )


def call(script: str, *arguments: str | Path) -> Any:
    """The JSON object that a script prints on its last line. Scripts import nothing of privest.

    Each runs in the environment of its folder.
    """
    done = subprocess.run(  # noqa: S603
        [
            _uv(),
            "run",
            "--quiet",
            "--locked",
            "--project",
            (_HERE / script).parent,
            "python",
            _HERE / script,
            *arguments,
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return json.loads(done.stdout.splitlines()[-1])
