"""Processes of tests' own, forked from one that has loaded what they need and has no threads."""

import multiprocessing
import os
import signal
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

    That is a server beside the one that Python has for each process, from which workers of services go on to
    be forked that tests run in their own process: it does not end before they do.
    """
    own = forkserver.ForkServer()
    own.set_forkserver_preload([module])
    with pytest.MonkeyPatch.context() as patch:
        # Before Python 3.14 the server itself finds modules by the environment alone.
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        own.ensure_running()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(forkserver, "connect_to_new_process", own.connect_to_new_process)
            yield
    finally:
        # It would wait for all that was forked from it.
        os.kill(own._forkserver_pid, signal.SIGKILL)  # pyright: ignore[reportAttributeAccessIssue]
        own._stop()  # pyright: ignore[reportAttributeAccessIssue]


def put_parent(parents: "multiprocessing.SimpleQueue[int]") -> None:
    """Put the id of this process's parent into a queue; test modules may not be found where it runs."""
    parents.put(os.getppid())
