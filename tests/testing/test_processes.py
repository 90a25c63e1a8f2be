"""Processes that tests fork from a loaded one: it is their own, beside that of workers of services."""

from multiprocessing import SimpleQueue

from testing.processes import clean, forked_with, put_parent


def test_they_are_forked_from_a_server_of_their_own_while_another_has_children():
    """One server would end after all that was forked from it: whoever ends it waits for workers."""
    parents: SimpleQueue[int] = clean.SimpleQueue()
    with forked_with("testing.grids"):
        ours, theirs = clean.Pipe()
        worker = clean.Process(target=theirs.recv)
        worker.start()
        with forked_with("testing.grids"):
            _ask_for_parent(parents)
        _ask_for_parent(parents)
        assert parents.get() != parents.get()
        assert worker.is_alive()
        ours.send(None)
        worker.join()
        assert worker.exitcode == 0


def _ask_for_parent(parents: "SimpleQueue[int]") -> None:
    asked = clean.Process(target=put_parent, args=(parents,))
    asked.start()
    asked.join()
    assert asked.exitcode == 0
