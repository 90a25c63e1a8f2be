"""Libraries in C, each compiled beside its source when the package is installed (`hatch_build.py`)."""

import ctypes
from pathlib import Path


def library(source: Path) -> ctypes.CDLL | None:
    """The library of a source in C; None where the package was installed without a C compiler."""
    try:
        return ctypes.CDLL(str(source.with_name(f"lib{source.stem}.so")))
    except OSError:
        return None
