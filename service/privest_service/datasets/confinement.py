"""Runs work on a hostile file in a process of its own that is shut in: one folder, no network, no programs.

The kernel does it: Landlock (files, TCP), seccomp (system calls), another user where the service is root, and
no new privileges. What it does not offer is left out, and `missing` names it. Landlock's three system calls
and libseccomp are called directly: Python's wheels for them are young, or only find the same library.
"""

import ctypes
import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

_LONGEST = 2**20
"""Most bytes that the confined work may answer."""

_FIRST_USER, _USERS = 61_184, 4_336
"""First user id and number of user ids for workers, one each. systemd lends them; no machine assigns them."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Bounds:
    """Limits of some confined work. They hold even if nobody waits for it any more.

    Attributes:
        seconds: of computing, on each processor.
        largest: bytes of each file that it writes.
    """

    seconds: float
    largest: int


def confined(folder: Path, work: Callable[[], bytes], bounds: Bounds, leaves: str) -> bytes:
    """Do some work in a child of this process, within `folder`, and return what it tells.

    The child has no environment and ends with this process. It has one open file, to tell on, beside the
    standard streams, which lead nowhere in a worker.

    Args:
        folder: the only one in which it may write.
        work: to be done.
        bounds: of what it may take.
        leaves: the name of the file that this process wants of it. What else the child left, however much, is
            not looked at.

    Raises:
        ChildProcessError: the child told nothing, or too much.
    """
    user = _lend(folder)
    reader, writer = os.pipe()
    parent, child = os.getpid(), os.fork()
    if not child:
        _child(folder, user, parent, writer, work, bounds)
    os.close(writer)
    try:
        with open(reader, "rb") as pipe:  # noqa: PTH123 - of a descriptor
            told = pipe.read(_LONGEST + 1)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if user is not None:
        _take_back(folder, folder / leaves)
    if not 0 < len(told) <= _LONGEST:
        raise ChildProcessError("the work came to no end")
    return told


def missing(folder: Path) -> list[str]:
    """Name the parts of the confinement that this machine lacks: `landlock`, `seccomp`, `user`.

    Work would be done in this folder.
    """
    with TemporaryDirectory(dir=folder) as tried:
        found = {
            "landlock": _landlock_version() > 0,
            "seccomp": _libseccomp() is not None,
            "user": _lend(Path(tried)) is not None,
        }
    return [name for name, there in found.items() if not there]


def prepare() -> None:
    """Load what a child needs and could not load any more."""
    _libseccomp()


def _child(
    folder: Path, user: int | None, parent: int, writer: int, work: Callable[[], bytes], bounds: Bounds
) -> NoReturn:
    try:
        _shut_in(folder, user, parent, writer, bounds)
        told = memoryview(work())
        while told:
            told = told[os.write(writer, told) :]
    finally:
        os._exit(0)


def _shut_in(folder: Path, user: int | None, parent: int, writer: int, bounds: Bounds) -> None:
    """Give up, for ever, all that the work does not need."""
    os.chdir(folder)
    highest = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.closerange(3, writer)
    os.closerange(writer + 1, highest if highest > 0 else 2**20)
    os.environ.clear()
    _limit(resource.RLIMIT_CORE, 0)  # which would hold the file
    _limit(resource.RLIMIT_FSIZE, bounds.largest)
    # Threads compute at the same time: what whoever waits counts is the clock's seconds.
    _limit(resource.RLIMIT_CPU, ceil(bounds.seconds) * len(os.sched_getaffinity(0)))
    _checked(_libc.prctl(38, 1, 0, 0, 0))  # PR_SET_NO_NEW_PRIVS
    if _landlock_version() > 0:
        own = _READ_FILE | _READ_DIR | _WRITE_FILE | _REMOVE_FILE | _MAKE_FILE | _TRUNCATE
        _restrict_files([(str(folder), own), *_libraries(folder)])
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    _checked(_libc.prctl(1, signal.SIGKILL, 0, 0, 0))  # PR_SET_PDEATHSIG, which another user's would undo
    if os.getppid() != parent:
        os._exit(0)  # it ended before
    if (seccomp := _libseccomp()) is not None:
        _restrict_calls(seccomp)


def restrict_to_port(port: int) -> None:
    """Give up, for ever, programs, all files but libraries, and connections to all TCP ports but one.

    The process must have one thread only: the kernel restricts the calling thread and those that it starts
    later. Name resolution still works. What the kernel does not offer is left out, as above.
    """
    _limit(resource.RLIMIT_CORE, 0)
    _checked(_libc.prctl(38, 1, 0, 0, 0))  # PR_SET_NO_NEW_PRIVS
    if _landlock_version() > 0:
        names = [(path, _READ_FILE) for path in _NAME_RESOLUTION if Path(path).is_file()]
        _restrict_files([*names, *_libraries()], port)
    if (seccomp := _libseccomp()) is not None:
        _restrict_calls(seccomp, network=True)


def _limit(which: int, most: int) -> None:
    """Allow so much, or less where less is allowed already."""
    allowed = resource.getrlimit(which)[1]
    most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
    resource.setrlimit(which, (most, most))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


# Another user


def _lend(folder: Path) -> int | None:
    """Give a folder to a user that nobody else has; None where this process may not, or only by halves."""
    user = _FIRST_USER + os.getpid() % _USERS
    if not _may_lend(user):
        return None
    paths = [*folder.iterdir(), folder]
    try:
        for path in paths:
            os.chown(path, user, user, follow_symlinks=False)
        # The child goes there before it is that user.
        lent = os.access(folder, os.X_OK, effective_ids=True)
    except OSError:
        lent = False
    if not lent:
        _take_back(*reversed(paths))
    return user if lent else None


@cache
def _may_lend(user: int) -> bool:
    """Whether this process can begin one of another user, and end it: each takes a right of its own.

    It is one that waits for input. An image without a shell has no `cat`, and everybody may run its Python.
    """
    try:
        waits = next(each for each in ("/bin/cat", sys.executable) if Path(each).exists())
        with subprocess.Popen(  # noqa: S603 - our own
            [waits], stdin=subprocess.PIPE, cwd="/", env={}, user=user, group=user, extra_groups=[]
        ) as tried:
            tried.kill()
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _take_back(*paths: Path) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)


# Landlock (see landlock(7)): every file but those below a few folders, every TCP port, others' processes


_NAME_RESOLUTION = tuple(
    f"/etc/{name}" for name in ("hosts", "resolv.conf", "nsswitch.conf", "host.conf", "gai.conf")
)
"""Files that the C library reads to find the address of a host."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


class _Port(ctypes.Structure):
    _fields_ = (("allowed", ctypes.c_uint64), ("port", ctypes.c_uint64))


_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_FILE, _MAKE_FILE, _TRUNCATE = (
    1 << at for at in (1, 2, 3, 5, 8, 14)
)
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Number of file rights that each version of Landlock knows. Later versions know 16."""


@cache
def _landlock_version() -> int:
    """The version of the kernel's Landlock interface; below 1 where there is none."""
    return _libc.syscall(444, None, ctypes.c_size_t(0), 1)


def _restrict_files(granted: list[tuple[str, int]], port: int | None = None) -> None:
    """Allow some rights on files and folders, all others on none, and to connect to one TCP port at most."""
    version = _landlock_version()
    rights = (1 << _FILE_RIGHTS.get(version, 16)) - 1
    # None of the rights to bind and connect is granted to anybody, nor to signal processes outside.
    rules = _Ruleset(rights, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    ruleset = _checked(_libc.syscall(444, ctypes.byref(rules), ctypes.c_size_t(ctypes.sizeof(rules)), 0))
    for path, allowed in granted:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        beneath = _Beneath(allowed & rights, place)
        _checked(_libc.syscall(445, ruleset, 1, ctypes.byref(beneath), 0))
        os.close(place)
    if port is not None and version >= 4:
        _checked(_libc.syscall(445, ruleset, 2, ctypes.byref(_Port(2, port)), 0))
    _checked(_libc.syscall(446, ruleset, 0))
    os.close(ruleset)


def _libraries(folder: Path | None = None) -> list[tuple[str, int]]:
    """Folders with what may still be loaded, to be read; none that holds a given folder as well."""
    places = {sys.prefix, sys.base_prefix, *sys.path, "/usr/lib", "/usr/share/zoneinfo", "/lib", "/lib64"}
    return [
        (place, _READ_FILE | _READ_DIR)
        for place in places
        if Path(place).is_dir() and not (folder and folder.is_relative_to(Path(place).resolve()))
    ]


# seccomp, by libseccomp, which knows the numbers of each architecture

_NETWORK = """
socket socketpair socketcall connect bind listen accept accept4
sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg
"""
"""Calls that lead to other machines."""

_DENIED = """
execve execveat fork vfork ptrace process_vm_readv process_vm_writev process_madvise kcmp
kill tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_getfd pidfd_send_signal
link linkat symlink symlinkat mknod mknodat open_by_handle_at name_to_handle_at
mount umount umount2 move_mount open_tree fsopen fsmount fsconfig fspick mount_setattr pivot_root chroot
unshare setns setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset
io_uring_setup io_uring_enter io_uring_register bpf perf_event_open userfaultfd
fanotify_init inotify_init inotify_init1 add_key request_key keyctl
init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff
acct quotactl syslog settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname personality
iopl ioperm modify_ldt memfd_secret mq_open mq_unlink
msgget msgsnd msgrcv msgctl semget semop semtimedop semctl shmget shmat shmctl
mkdir mkdirat chmod fchmod fchmodat chown fchown lchown fchownat utime utimes futimesat utimensat
setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr
setrlimit setpriority ioprio_set sched_setaffinity sched_setscheduler sched_setparam sched_setattr
migrate_pages move_pages
"""
"""Calls that lead out of a process, or to its user's files and processes where Landlock does not look.

Reading a file needs none of them.
"""

_YOUNG = {
    "fchmodat2": 452,
    "setxattrat": 463,
    "removexattrat": 466,
    "open_tree_attr": 467,
    "file_setattr": 469,
}
"""Further forbidden calls, which libseccomp may not know yet. Each has one number on all architectures."""

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NOT_EQUAL, _MASKED_EQUAL, _THREAD = 1, 7, 0x00010000
_WORD = 0xFFFFFFFF
"""Mask for the bits of an argument that the kernel reads as an int."""


class _Argument(ctypes.Structure):
    _fields_ = (("at", ctypes.c_uint), ("how", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


@cache
def _libseccomp() -> Any:
    """The library, if it and the kernel's part are there."""
    try:
        library = ctypes.CDLL("libseccomp.so.2")
        library.seccomp_init.restype = ctypes.c_void_p
        return library if _libc.prctl(21, 0, 0, 0, 0) >= 0 else None  # PR_GET_SECCOMP
    except OSError:
        return None


def _restrict_calls(library: Any, *, network: bool = False) -> None:
    """Refuse what leads out of this process, with an error, so that what only tries goes on."""
    rules = ctypes.c_void_p(library.seccomp_init(_ALLOW))
    refused = _ERRNO | errno.EPERM
    for name in (_DENIED if network else _NETWORK + _DENIED).split():
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # else this architecture has none of this name
            _accepted(library.seccomp_rule_add_array(rules, refused, number, 0, None))
    for number in _YOUNG.values():
        _accepted(library.seccomp_rule_add_array(rules, refused, number, 0, None))
    for name, at, how, *about in (
        ("clone", 0, _MASKED_EQUAL, _THREAD, 0),  # threads may begin, processes not
        ("tgkill", 0, _NOT_EQUAL, os.getpid()),  # abort() sends a signal to itself
        ("fcntl", 1, _MASKED_EQUAL, _WORD, 8),  # F_SETOWN, and F_SETOWN_EX: signals once a file is ready
        ("fcntl", 1, _MASKED_EQUAL, _WORD, 15),
        ("prlimit64", 0, _NOT_EQUAL, 0),  # another process, or anything but a look
        ("prlimit64", 2, _NOT_EQUAL, 0),
        ("prctl", 0, _NOT_EQUAL, 15),  # PR_SET_NAME, of threads: all else might undo what was set
    ):
        number = library.seccomp_syscall_resolve_name(name.encode())
        if_so = _Argument(at, how, *about)
        _accepted(library.seccomp_rule_add_array(rules, refused, number, 1, ctypes.byref(if_so)))
    # What the newer call is for cannot be seen: then the older is tried.
    clone3 = library.seccomp_syscall_resolve_name(b"clone3")
    if clone3 >= 0:
        _accepted(library.seccomp_rule_add_array(rules, _ERRNO | errno.ENOSYS, clone3, 0, None))
    _accepted(library.seccomp_load(rules))


def _accepted(result: int) -> None:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
