"""Processes of tests' own, forked from one that has loaded what they need and has no threads."""

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver

import pytest

clean = multiprocessing.get_context("forkserver")
"""Starts them, within `forked_with`."""


@contextmanager
def forked_with(module: str) -> Iterator[None]:
    """Have processes be forked from one that has loaded a module of tests.

    A process has one such server: workers of a service that tests run in their own process are forked from it
    too, with what they need. So any that runs is ended before, and this one afterwards.
    """
    _end()
    with pytest.MonkeyPatch.context() as patch:
        # Before Python 3.14 the server itself finds modules by the environment alone.
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        clean.set_forkserver_preload([module])
        forkserver.ensure_running()
    try:
        yield
    finally:
        _end()


def _end() -> None:
    forkserver._forkserver._stop()  # pyright: ignore[reportAttributeAccessIssue]
