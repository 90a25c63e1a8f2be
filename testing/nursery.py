"""A process that has loaded the service once, from which tests fork theirs: `python -m testing.nursery FD`.

An interpreter of its own takes two to three seconds of processor time to load the service, and that of its
workers another; a fork takes a twentieth of that. What is forked runs the same program with the same
arguments and the same environment, and starts its workers as it would. Only what it imports is there
already. It ends without taking all of that apart.
"""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from multiprocessing import forkserver, get_context, util
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from sqlalchemy.orm import configure_mappers

from privest_service.database.migrate import head
from privest_service.workers import pool
from testing import ROOT
from testing.server import Process, spawn

_LOADED = (
    "privest_service.cli",
    "privest_service.app",
    "privest_service.database.migrate",
    "privest_service.slow_clients",
    "privest_service.proxy_middleware",
    "privest_service.telemetry.traces",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    "privest_service.database.postgresql",
    "privest_service.datasets.readers.tables",
    "privest.privacy.cross_check",
    "autodp.mechanism_zoo",
    "autodp.transformer_zoo",
)
"""What the web process loads, and workers where they need it.

The names of what workers load at once stand in the pool that starts them.
"""

_LONGEST = 2**17
"""Bytes of a request, most of which is the environment."""


class Forked:
    """A program in a process that was forked: the part of `subprocess.Popen` that tests use.

    Attributes:
        pid: of the process.
        returncode: as of `subprocess.Popen`; None until the end is known.
    """

    def __init__(self, pid: int, end: BinaryIO) -> None:
        self.pid, self._end = pid, end
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it ended, or None where it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended, and return how.

        Raises:
            subprocess.TimeoutExpired: it has not, after so many seconds.
        """
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            with self._end:
                self.returncode = int(self._end.readline())
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def launch(
    command: Sequence[str], environment: Mapping[str, str], log: BinaryIO, errors: BinaryIO | None = None
) -> Process:
    """Start a program: `privest` and modules of this environment in a fork of this process's nursery.

    Others are started as usual: they are of another version, or are no programs of Python. So should be what
    changes the service before it is loaded.

    Args:
        command: the program with its arguments. A module is given as `sys.executable -m NAME`; where it has a
            function `prepare`, that is called before there is a process from which workers are forked.
        environment: all of it.
        log: takes what it prints.
        errors: takes what it prints as errors, where that is not for the log.
    """
    if not _is_module(command) and Path(command[0]) != Path(sys.executable).with_name("privest"):
        return spawn(command, environment, log, errors)
    read, write = os.pipe()
    end = os.fdopen(read, "rb", buffering=0)
    asked = json.dumps([list(command), dict(environment), str(Path.cwd())]).encode()
    socket.send_fds(_nursery(), [asked], [log.fileno(), (errors or log).fileno(), write])
    os.close(write)
    return Forked(int(end.readline()), end)


def _is_module(command: Sequence[str]) -> bool:
    return list(command[:2]) == [sys.executable, "-m"]


@cache
def _nursery() -> socket.socket:
    """Start the nursery of this process: it ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "testing.nursery", str(theirs.fileno())]
    nowhere = subprocess.DEVNULL
    # Some settings are read as the service is loaded: none of a test's, which others would then have too.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PRIVEST_")}
    subprocess.Popen(command, cwd=ROOT, env=clean, pass_fds=[theirs.fileno()], stdin=nowhere, stdout=nowhere)
    theirs.close()
    return ours


def _serve(asked: socket.socket) -> None:
    """Load everything, and fork what is asked for until nobody can ask any more."""
    gc.disable()
    for name in (*_LOADED, *pool._PRELOADED):
        import_module(name)
    configure_mappers()
    head()
    gc.freeze()
    gc.enable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that wait for a program
    while True:
        said, files, *_ = socket.recv_fds(asked, _LONGEST, 3)
        if not said:
            return
        if not os.fork():
            _mind(*json.loads(said), *files)
        for file in files:
            os.close(file)


def _mind(
    command: list[str], environment: dict[str, str], directory: str, log: int, errors: int, end: int
) -> None:
    """Fork a program, tell its number, and tell how it ended; only in the fork does this return."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        _close_all_but(end)
        os.write(end, b"%d\n" % pid)
        with suppress(BrokenPipeError):  # nobody waits any more
            os.write(end, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os._exit(0)
    os.dup2(log, 1)
    os.dup2(errors, 2)
    _close_all_but()
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    if _is_module(command):
        getattr(import_module(command[2]), "prepare", lambda: None)()
    _fork_forkserver()
    _run(command)


def _close_all_but(*kept: int) -> None:
    """Close all files but the usual three and these, as a new interpreter has no others."""
    first = 3
    for file in sorted(kept):
        os.closerange(first, file)
        first = file + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _fork_forkserver() -> None:
    """Start the process from which the service forks its workers as the service does, but by a fork."""
    usual = util.spawnv_passfds

    def fork(path: bytes, arguments: list[Any], files: list[int]) -> int:
        if "forkserver" not in arguments[-1]:
            return usual(path, arguments, files)
        if pid := os.fork():
            return pid
        _close_all_but(*files)
        forkserver._forkserver.__init__()  # who asks for this holds its lock
        try:
            exec(arguments[-1], {})  # noqa: S102 - what the new interpreter would run
        except SystemExit:  # it ends by this, which those who asked for it must not catch
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    util.spawnv_passfds = fork
    get_context("forkserver").set_forkserver_preload(pool._PRELOADED)
    pool._ensure_forkserver()
    util.spawnv_passfds = usual


def _run(command: list[str]) -> NoReturn:
    """Run a script or a module as its own interpreter would, and end with all that was loaded left whole."""
    status: object = 0
    try:
        if _is_module(command):
            sys.argv = command[2:]
            runpy.run_module(command[2], run_name="__main__", alter_sys=True)
        else:
            sys.argv = command
            sys.path[0] = str(Path(command[0]).parent)
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    if isinstance(status, str):
        print(status, file=sys.stderr)
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue] - it waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 1)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
