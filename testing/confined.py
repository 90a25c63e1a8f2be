"""What a hostile file might have its parser do, done in the worker that parses; and what parsing needs."""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import re
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from privest_service.datasets import confinement, parsing
from privest_service.datasets.import_spec import ImportSpec
from privest_service.formats import Format

_libc = ctypes.CDLL(None, use_errno=True)


def ways_out(others: str, parent: int, listener: int) -> dict[str, Callable[[], Any]]:
    """Return ways out of confinement by name. Each raises an error or returns None where it is closed.

    Args:
        others: a file of another owner.
        parent: a process that must not be reached.
        listener: a port of this machine on which somebody listens.
    """
    beside = os.path.relpath(others)
    unlimited, none = (ctypes.c_uint64 * 2)(2**64 - 1, 2**64 - 1), (ctypes.c_uint64 * 2)()
    return {
        "another owner's rows": lambda: Path(others).read_bytes(),
        "another owner's rows by a relative path": lambda: Path(beside).read_bytes(),
        "the folder of all uploads": lambda: list(Path("..").iterdir()),
        "a link to another owner's rows": lambda: Path("link").symlink_to(others),
        "a hard link to another owner's rows": lambda: Path("hard").hardlink_to(others),
        "the service's environment": lambda: Path(f"/proc/{parent}/environ").read_bytes(),
        "the service's memory": lambda: Path(f"/proc/{parent}/mem").open("rb").close(),
        "a secret of the machine": lambda: Path("/etc/shadow").read_bytes(),
        "a file elsewhere": lambda: Path(others).with_name("left").touch(),
        "a socket": lambda: socket.socket().connect(("127.0.0.1", listener)),
        "a datagram": lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", listener)),
        "a pair of sockets": socket.socketpair,
        "a program": lambda: subprocess.run(["/bin/true"], check=True),
        "a process": lambda: os.fork() or os._exit(0),
        "a look into a process": lambda: _called("ptrace", 0x4206, parent, 0, 0),  # without stopping it
        "a signal": lambda: os.kill(parent, 0),
        "root": lambda: os.setuid(0) if os.getuid() else _called("setuid", 0),
        "rights of a file": lambda: Path(others).chmod(0o600),
        "rights of a file by a young call": lambda: _called("syscall", 452, -100, others.encode(), 0o600, 0),
        "rights of its own rows": lambda: Path("by-a-thread").chmod(0o600),
        "an owner of a file": lambda: os.chown(others, -1, -1),
        "times of a file": lambda: os.utime(others),
        "attributes of a file": lambda: os.setxattr(others, "user.x", b""),
        "limits of a process": lambda: _called("prlimit", parent, resource.RLIMIT_CPU, unlimited, None),
        "its own limits": lambda: _called("setrlimit", resource.RLIMIT_CORE, none),
        "a priority": lambda: os.setpriority(
            os.PRIO_PROCESS, parent, os.getpriority(os.PRIO_PROCESS, parent)
        ),
        "a schedule": lambda: os.sched_setscheduler(parent, os.SCHED_OTHER, os.sched_param(0)),
        "processors": lambda: os.sched_setaffinity(parent, os.sched_getaffinity(parent)),
        "a signal to a thread": lambda: _called("tgkill", parent, parent, 0),
        "a signal by a file": lambda: fcntl.fcntl(0, fcntl.F_SETOWN, parent),
        "outliving the worker": lambda: _called("prctl", 1, 0, 0, 0, 0),
        "a folder": lambda: Path("below").mkdir(),
        "a namespace": lambda: _called("unshare", 0x10000000),  # with fewer rights, so after all others
        "an environment": lambda: dict(os.environ) or None,
        "open files": lambda: opened() or None,
    }


def _called(name: str, *arguments: Any) -> None:
    if getattr(_libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def opened() -> list[int]:
    """Descriptors beyond the first three, but for a pipe that can be written to."""
    found = list[int]()
    for descriptor in range(3, 1024):
        try:
            os.fstat(descriptor)
        except OSError:
            continue
        found.append(descriptor)
    return found[1:]


def tried(others: str, parent: int, listener: int) -> bytes:
    """Try every way out. Say which are open, and whether what parsing needs is there."""
    begun = threading.Thread(target=lambda: Path("by-a-thread").write_text("x"))
    begun.start()
    begun.join()
    found = list[str]()
    for name, way in ways_out(others, parent, listener).items():
        try:
            way_out = way() is not None or name not in ("an environment", "open files")
        except OSError:
            way_out = False
        if way_out:
            found.append(name)
    with Path("own").open("w+b") as file:
        file.write(bytes(4096))
        file.flush()
        mmap.mmap(file.fileno(), 4096).close()
    Path("own").unlink()

    return json.dumps({"ways": found, "thread": Path("by-a-thread").exists()}).encode()


def within(folder: str, work: Callable[[], bytes], seconds: float = 60.0, largest: int = 2**30) -> bytes:
    """What some work tells that is done in there."""
    return confinement.confined(Path(folder), work, confinement.Bounds(seconds, largest), parsing.ROWS)


def try_all(folder: str, without: list[str], *about: Any) -> dict[str, Any]:
    """In a confined worker, without some of its fences: try every way out."""
    with (
        patch.object(
            confinement,
            "_landlock_version",
            confinement._landlock_version if "landlock" not in without else int,
        ),
        patch.object(
            confinement, "_libseccomp", confinement._libseccomp if "seccomp" not in without else lambda: None
        ),
        patch.object(confinement, "_lend", confinement._lend if "user" not in without else lambda _: None),
    ):
        return json.loads(within(folder, partial(tried, *about)))


def remembered(pattern: str) -> list[str]:
    """What matches a pattern in the memory of this process, its environment included."""
    found = set[str]()
    with Path("/proc/self/maps").open() as maps, Path("/proc/self/mem").open("rb", 0) as memory:
        for line in maps:
            places, rights = line.split()[:2]
            if not rights.startswith("rw"):
                continue
            begin, end = (int(place, 16) for place in places.split("-"))
            memory.seek(begin)
            try:
                found |= {match.decode() for match in re.findall(pattern.encode(), memory.read(end - begin))}
            except OSError:
                continue
    return sorted(found)


def loads(folder: str, form: Format, intake: ImportSpec) -> list[str]:
    """In a worker: list the modules that parsing an upload looks for, found or not."""

    def parsed() -> bytes:
        looked_for = list[str]()
        sys.addaudithook(lambda event, about: looked_for.append(about[0]) if event == "import" else None)
        parsing._told(form, intake, 2**30, True)
        return json.dumps(looked_for).encode()

    return json.loads(within(folder, parsed))


def says(folder: str, told: bytes) -> bytes:
    """In a worker: return what comes back of work that answers these bytes."""
    return within(folder, lambda: told)


def outlived(folder: str, tries_to: bool) -> int:
    """In a worker that is killed meanwhile: start a child that never ends, and may try to outlive it."""

    def stay() -> bytes:
        if tries_to:
            with suppress(OSError):
                _called("prctl", 1, 0, 0, 0, 0)
        Path("child").write_text(str(os.getpid()))
        threading.Event().wait()
        return b""

    within(folder, stay)
    return 0


def spins(folder: str) -> bytes:
    """In a worker: run without end."""

    def spin() -> bytes:
        while True:
            pass

    with patch.object(os, "sched_getaffinity", lambda _: {0}):
        return within(folder, spin, seconds=0.5)


def fills(folder: str, largest: int) -> tuple[int, str]:
    """In a worker: write a file that should exceed its limit. Return the length that it reached, and why."""

    def fill() -> bytes:
        try:
            with Path("large").open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1000))
        except OSError as error:
            return errno.errorcode[error.errno or 0].encode()

    why = within(folder, fill, largest=largest).decode()
    return (Path(folder) / "large").stat().st_size, why


def leaves(folder: str, files: int) -> list[str]:
    """In a worker: list files whose owner is changed, before and after work that leaves so many files."""

    def leave() -> bytes:
        for name in (*map(str, range(files)), parsing.ROWS):
            Path(name).touch()
        return b"1"

    with patch.object(os, "chown", wraps=os.chown) as chown:
        within(folder, leave)
    return [Path(call.args[0]).name for call in chown.call_args_list]


class _Rights(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("kept", ctypes.c_uint32))


def without_rights(folder: str, rights: list[int]) -> tuple[int, list[str]]:
    """In a worker that loses these capabilities: return the work's user and what is said to be missing."""
    header, held = (ctypes.c_uint32 * 2)(0x20080522, 0), (_Rights * 2)()
    _called("capget", header, held)
    for right in rights:
        held[0].effective &= ~(1 << right)
        held[0].permitted &= ~(1 << right)
    _called("capset", header, held)
    return int(within(folder, lambda: str(os.getuid()).encode())), confinement.missing(Path(folder))


def loaded() -> set[str]:
    """Names of the modules that this process has loaded, or had loaded when it was forked."""
    return set(sys.modules)
