"""Compiles the C library of `core/privest/manifolds` when the package is built or installed.

Where there is no C compiler the package is made without it: LAPACK does the same, more slowly.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("core/privest/manifolds/logarithms.c")
LIBRARY = SOURCE.with_suffix(".so")
FLAGS = ("-O3", "-fno-math-errno", "-fPIC", "-shared", "-Wno-psabi")
"""No flag lets the compiler reorder sums or assume that numbers are finite."""


class CompiledLibrary(BuildHookInterface[Any]):
    """The hook that hatchling calls before it makes a wheel, or an installation of the sources in place."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - of the interface
        """Compile the library beside its source, and add it to the wheel, which is then of this platform."""
        root = Path(self.root)
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            print("no C compiler: Privest is installed without its compiled library", file=sys.stderr)
            return
        # Compiled elsewhere first: processes may have the last one mapped.
        made = root / LIBRARY.with_suffix(".so.new")
        subprocess.run([compiler, *FLAGS, root / SOURCE, "-o", made, "-lm"], check=True)  # noqa: S603
        made.replace(root / LIBRARY)
        build_data["artifacts"].append(LIBRARY.as_posix())
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
