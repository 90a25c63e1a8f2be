"""Processes that tests fork from a loaded one: it is their own, beside that of workers of services."""

import multiprocessing
import os

from testing.processes import clean, forked_with


def test_they_are_forked_from_a_server_of_their_own_while_another_has_children():
    """Python's own server ends after all that was forked from it: whoever ends it waits for workers."""
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    worker = context.Process(target=theirs.recv)
    worker.start()
    parents = context.SimpleQueue()
    with forked_with("testing.server"):
        within = clean.Process(target=_tell_parent, args=(parents,))
        within.start()
        within.join()
        assert within.exitcode == 0
    after = context.Process(target=_tell_parent, args=(parents,))
    after.start()
    after.join()
    assert parents.get() != parents.get()
    assert worker.is_alive()
    ours.send(None)
    worker.join()
    assert worker.exitcode == 0


def _tell_parent(parents: "multiprocessing.SimpleQueue[int]") -> None:
    parents.put(os.getppid())
