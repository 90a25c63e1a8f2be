"""Other packages, in their own locked environment, and how its scripts are called."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent


def call(script: str, *arguments: str | Path) -> Any:
    """The JSON object that a script prints on its last line. Scripts import nothing of privest."""
    uv = shutil.which("uv") or "uv"
    done = subprocess.run(  # noqa: S603
        [uv, "run", "--quiet", "--locked", "--project", _HERE, "python", _HERE / script, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return json.loads(done.stdout.splitlines()[-1])
