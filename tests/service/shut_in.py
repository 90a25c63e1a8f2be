"""What a hostile file might have its parser do, done in the worker that parses; and what parsing needs."""

import ctypes
import json
import mmap
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from privest_service.datasets import confinement, parsing
from privest_service.datasets.intake import Intake
from privest_service.datasets.readers import Format

_libc = ctypes.CDLL(None, use_errno=True)


def ways_out(others: str, parent: int, listener: int) -> dict[str, Callable[[], Any]]:
    """By name, each of which ends in an error or a None where it is not possible.

    Args:
        others: a file of another owner.
        parent: a process that must not be reached.
        listener: a port of this machine on which somebody listens.
    """
    beside = os.path.relpath(others)
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
        "a namespace": lambda: _called("unshare", 0x10000000),
        "an environment": lambda: dict(os.environ) or None,
        "open files": lambda: opened() or None,
    }


def _called(name: str, *arguments: int) -> None:
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
    """Which ways out there are, and whether what parsing needs is there."""
    found = list[str]()
    for name, way in ways_out(others, parent, listener).items():
        try:
            way_out = way() is not None or name not in ("an environment", "open files")
        except OSError:
            way_out = False
        if way_out:
            found.append(name)
    begun = threading.Thread(target=lambda: Path("by-a-thread").write_text("x"))
    begun.start()
    begun.join()
    with Path("own").open("w+b") as file:
        file.write(bytes(4096))
        file.flush()
        mmap.mmap(file.fileno(), 4096).close()
    Path("own").unlink()

    return json.dumps({"ways": found, "thread": Path("by-a-thread").exists()}).encode()


def try_all(folder: str, without: list[str], *about: Any) -> dict[str, Any]:
    """In a worker: without some of what shuts a parser in."""
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
        return json.loads(confinement.confined(Path(folder), partial(tried, *about)))


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


def loads(folder: str, form: Format, intake: Intake) -> list[str]:
    """In a worker: which modules the parsing of an upload looks for, whether or not it finds them."""

    def parsed() -> bytes:
        looked_for = list[str]()
        sys.addaudithook(lambda event, about: looked_for.append(about[0]) if event == "import" else None)
        parsing._told(form, intake, 2**30, True)
        return json.dumps(looked_for).encode()

    return json.loads(confinement.confined(Path(folder), parsed))


def says(folder: str, told: bytes) -> bytes:
    """In a worker: what comes back of such words."""
    return confinement.confined(Path(folder), lambda: told)


def outlived(folder: str) -> int:
    """In a worker that is killed meanwhile: a child that never ends."""

    def stay() -> bytes:
        Path("child").write_text(str(os.getpid()))
        threading.Event().wait()
        return b""

    confinement.confined(Path(folder), stay)
    return 0
