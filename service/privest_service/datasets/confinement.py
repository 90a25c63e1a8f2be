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
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

_LONGEST = 2**20
"""Bytes that the work may tell."""

_FIRST_USER, _USERS = 61_184, 4_336
"""Users that systemd lends to services and no machine gives to anybody: each worker has one of its own."""

_libc = ctypes.CDLL(None, use_errno=True)


def confined(folder: Path, work: Callable[[], bytes]) -> bytes:
    """What some work tells that is done in a child of this process, within `folder`.

    The child has no environment, no open file but the one to tell on, and ends with this process.

    Raises:
        ChildProcessError: the child told nothing, or too much.
    """
    user = _lend(folder)
    reader, writer = os.pipe()
    parent, child = os.getpid(), os.fork()
    if not child:
        _child(folder, user, parent, writer, work)
    os.close(writer)
    try:
        with open(reader, "rb") as pipe:  # noqa: PTH123 - of a descriptor
            told = pipe.read(_LONGEST + 1)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if user is not None:
        _take_back(folder)
    if not 0 < len(told) <= _LONGEST:
        raise ChildProcessError("the work came to no end")
    return told


def missing(folder: Path) -> list[str]:
    """What of the confinement this machine does not offer: `landlock`, `seccomp`, `user`.

    Args:
        folder: in which work will be done.
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


def _child(folder: Path, user: int | None, parent: int, writer: int, work: Callable[[], bytes]) -> NoReturn:
    try:
        _shut_in(folder, user, parent, writer)
        told = memoryview(work())
        while told:
            told = told[os.write(writer, told) :]
    finally:
        os._exit(0)


def _shut_in(folder: Path, user: int | None, parent: int, writer: int) -> None:
    """Give up, for ever, all that the work does not need."""
    os.chdir(folder)
    highest = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.closerange(3, writer)
    os.closerange(writer + 1, highest if highest > 0 else 2**20)
    os.environ.clear()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # which would hold the file
    _checked(_libc.prctl(38, 1, 0, 0, 0))  # PR_SET_NO_NEW_PRIVS
    if _landlock_version() > 0:
        _restrict_files(folder)
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    _checked(_libc.prctl(1, signal.SIGKILL, 0, 0, 0))  # PR_SET_PDEATHSIG, which another user's would undo
    if os.getppid() != parent:
        os._exit(0)  # it ended before
    if (seccomp := _libseccomp()) is not None:
        _restrict_calls(seccomp)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


# Another user


def _lend(folder: Path) -> int | None:
    """Give a folder to a user that nobody else has; None where this process may not."""
    user = _FIRST_USER + os.getpid() % _USERS
    try:
        for path in (folder, *folder.iterdir()):
            os.chown(path, user, user, follow_symlinks=False)
    except OSError:
        return None
    return user


def _take_back(folder: Path) -> None:
    for path in (folder, *folder.iterdir()):
        os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)


# Landlock (see landlock(7)): every file but those below a few folders, every TCP port, others' processes


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_FILE, _MAKE_FILE, _TRUNCATE = (
    1 << at for at in (1, 2, 3, 5, 8, 14)
)
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""How many rights to files a version of Landlock knows; later ones 16."""


@cache
def _landlock_version() -> int:
    """Of the kernel's interface; below 1 where there is none."""
    return _libc.syscall(444, None, ctypes.c_size_t(0), 1)


def _restrict_files(folder: Path) -> None:
    """Allow to read what Python is made of, and to write in the folder."""
    version = _landlock_version()
    rights = (1 << _FILE_RIGHTS.get(version, 16)) - 1
    # None of the rights to bind and connect is granted to anybody, nor to signal processes outside.
    rules = _Ruleset(rights, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    ruleset = _checked(_libc.syscall(444, ctypes.byref(rules), ctypes.c_size_t(ctypes.sizeof(rules)), 0))
    own = _READ_FILE | _READ_DIR | _WRITE_FILE | _REMOVE_FILE | _MAKE_FILE | _TRUNCATE
    for path, granted in [
        (str(folder), own),
        *((path, _READ_FILE | _READ_DIR) for path in _libraries(folder)),
    ]:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        beneath = _Beneath(granted & rights, place)
        _checked(_libc.syscall(445, ruleset, 1, ctypes.byref(beneath), 0))
        os.close(place)
    _checked(_libc.syscall(446, ruleset, 0))
    os.close(ruleset)


def _libraries(folder: Path) -> list[str]:
    """Folders with what may still be loaded, but none that holds the service's data as well."""
    places = {sys.prefix, sys.base_prefix, *sys.path, "/usr/lib", "/usr/share/zoneinfo", "/lib", "/lib64"}
    return [
        place for place in places if Path(place).is_dir() and not folder.is_relative_to(Path(place).resolve())
    ]


# seccomp, by libseccomp, which knows the numbers of each architecture

_DENIED = """
socket socketpair socketcall connect bind listen accept accept4
sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg
execve execveat fork vfork ptrace process_vm_readv process_vm_writev process_madvise kcmp
kill tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_getfd pidfd_send_signal
link linkat symlink symlinkat mknod mknodat open_by_handle_at name_to_handle_at
mount umount umount2 move_mount open_tree fsopen fsmount fsconfig fspick mount_setattr pivot_root chroot
unshare setns setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset
io_uring_setup io_uring_enter io_uring_register bpf perf_event_open userfaultfd
fanotify_init inotify_init inotify_init1 add_key request_key keyctl
init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff
acct quotactl syslog settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname personality
iopl ioperm modify_ldt memfd_secret msgget semget shmget mq_open
"""
"""Calls that lead out of a process, and none of which reading a file needs."""

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_MASKED_EQUAL, _THREAD = 7, 0x00010000


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


def _restrict_calls(library: Any) -> None:
    """Refuse what leads out of this process, with an error, so that what only tries goes on."""
    rules = ctypes.c_void_p(library.seccomp_init(_ALLOW))
    refused = _ERRNO | errno.EPERM
    for name in _DENIED.split():
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # else this architecture has none of this name
            _accepted(library.seccomp_rule_add_array(rules, refused, number, 0, None))
    # Threads may begin, processes not. What the newer call is for cannot be seen: then the older is tried.
    clone, clone3 = map(library.seccomp_syscall_resolve_name, (b"clone", b"clone3"))
    no_thread = _Argument(0, _MASKED_EQUAL, _THREAD, 0)
    _accepted(library.seccomp_rule_add_array(rules, refused, clone, 1, ctypes.byref(no_thread)))
    if clone3 >= 0:
        _accepted(library.seccomp_rule_add_array(rules, _ERRNO | errno.ENOSYS, clone3, 0, None))
    _accepted(library.seccomp_load(rules))


def _accepted(result: int) -> None:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
