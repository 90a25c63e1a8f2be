"""Settings of the memory allocator in every process that sums rows."""

import ctypes
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's malloc.h."""

_KEPT, _MAPPED = 2**24, 2**23
"""Bytes that a thread may keep, and of arrays with pages of their own. A block of rows has 2**20."""


def keep_freed() -> None:
    """Let this process keep a little of the memory that it frees.

    Else each block of rows has its temporaries given back to the kernel, and faulted in anew for the next:
    millions of page faults, and half of the time of a sum. Dask's nanny even asks for that.
    """
    with suppress(OSError, AttributeError, TypeError):  # where malloc is not glibc's, it is as it is
        malloc = ctypes.CDLL(None)
        malloc.mallopt(_M_MMAP_THRESHOLD, _MAPPED)
        malloc.mallopt(_M_TRIM_THRESHOLD, _KEPT)
