"""Compiles each file in C to a library beside it, when the package is built or installed.

Where there is no C compiler, or one that cannot, the package is made without: numpy and LAPACK do the same,
more slowly.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("core/privest")
FLAGS = ("-O3", "-fno-math-errno", "-fPIC", "-shared", "-Wno-psabi")
"""No flag lets the compiler reorder sums or assume that numbers are finite."""


class CompiledLibraries(BuildHookInterface[Any]):
    """The hook that hatchling calls before it makes a wheel, or an installation of the sources in place."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - of the interface
        """Compile each library beside its source, and add it to the wheel, which is then of this platform."""
        root = Path(self.root)
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            print("no C compiler: Privest is installed without its compiled libraries", file=sys.stderr)
            return
        for source in sorted(root.glob(f"{PACKAGE}/**/*.c")):
            library = source.with_name(f"lib{source.stem}.so")
            # Compiled elsewhere first: processes may have the last one mapped.
            made = source.with_suffix(".so.new")
            done = subprocess.run([compiler, *FLAGS, source, "-o", made, "-lm"], check=False)  # noqa: S603
            if done.returncode:
                print(f"{source.name} does not compile: Privest is installed without it", file=sys.stderr)
                library.unlink(missing_ok=True)  # an older one
                continue
            made.replace(library)
            build_data["artifacts"].append(library.relative_to(root).as_posix())
        if build_data["artifacts"]:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
