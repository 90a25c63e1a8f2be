"""What is looked at on this machine: versions, settings, secrets, disk, memory and the kernel."""

import os
import platform
import shutil
import stat
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from tempfile import gettempdir
from typing import get_args

from pydantic import ValidationError

from privest_service.datasets.confinement import missing
from privest_service.doctor.finding import Finding
from privest_service.settings import Settings
from privest_service.validation import rule_of
from privest_service.workers.service import Work

_DIRECTORY = "PRIVEST_SECRETS_DIR"
_IN_ENVIRONMENT = ("PRIVEST_ADMIN_KEY", "PRIVEST_HUB_KEY")
_SPARE = 2**29
"""Bytes that the service itself may take, beside its workers."""

_CGROUP = Path("/sys/fs/cgroup/memory.max")


def versions() -> Iterator[Finding]:
    """Tell what runs here."""
    python, kernel = platform.python_version(), f"{platform.system()} {platform.release()}"
    yield Finding("versions", "ok", f"privest {version('privest')}, Python {python}, {kernel}")


# Settings


def settings(environment: Mapping[str, str]) -> tuple[list[Finding], Settings | None]:
    """Read them; of those that cannot be read, say which rule each breaks, and not what it holds."""
    found = [*_unknown(environment), *_shown(environment)]
    try:
        read = Settings()  # pyright: ignore[reportCallIssue] - from the environment
    except ValidationError as error:
        for fault in error.errors(include_input=False, include_url=False):
            name = "_".join(map(str, fault["loc"])).upper()
            found.append(Finding("settings", "fix", f"PRIVEST_{name} {rule_of(fault)}".strip(), _SEE))
        return found, None
    told = sum(name.startswith("PRIVEST_") for name in environment)
    return [Finding("settings", "ok", f"can be read, {told} of them from the environment"), *found], read


_SEE = "docs/settings.md names all settings and what each may be."


def _unknown(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Settings that are none: they would be passed over without a word."""
    known = {f"PRIVEST_{name.upper()}" for name in Settings.model_fields} | {_DIRECTORY}
    given = {name: name for name in environment}
    place = Path(environment.get(_DIRECTORY, ""))
    if _DIRECTORY in environment and place.is_dir():
        given |= {path.name.upper(): f"{path.name} in {_DIRECTORY}" for path in place.iterdir()}
    for name, told in sorted(given.items()):
        if name.startswith("PRIVEST_") and name not in known:
            near = get_close_matches(name, known, 1)
            do = f"Did you mean {near[0]}?" if near else "Take it out, or correct its name."
            yield Finding("settings", "look", f"{told} is no setting, and is passed over", do)


def _shown(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Secrets in the environment, where listings of processes and containers show them."""
    shown = [name for name in _IN_ENVIRONMENT if environment.get(name)]
    if ":" in environment.get("PRIVEST_DATABASE_URL", "").rpartition("@")[0].partition("://")[2]:
        shown.append("PRIVEST_DATABASE_URL")
    for name in shown:
        do = f"Put it into a file {name.lower()}, and its directory into {_DIRECTORY}."
        yield Finding("secrets", "look", f"{name} is in the environment, where others may see it", do)


# Secrets


def secrets(read: Settings, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Look at the files that hold secrets: they are there, whole, and nobody else's to read or change."""
    named = {"PRIVEST_SECRET_FILE": read.secret_file, "PRIVEST_SIGNING_KEY_FILE": read.signing_key_file}
    for name, path in named.items():
        yield from _key_file(read, name, path)
    files = {path for path in named.values() if path}
    if place := environment.get(_DIRECTORY):
        if not Path(place).is_dir():
            do = "Make it, or take the setting out."
            yield Finding("secrets", "fix", f"{_DIRECTORY} names no directory", do)
        else:
            files |= {path for path in Path(place).iterdir() if path.is_file()}
    own = (read.data_dir / name for name in ("secret", "signing_key", "privest.db"))
    exposed = [
        finding
        for path in sorted(files | {each for each in own if each.exists()})
        for finding in _modes(path)
    ]
    yield from exposed or [Finding("secrets", "ok", "are nobody else's to read or change")]


def _key_file(read: Settings, name: str, path: Path | None) -> Iterator[Finding]:
    """One of the two key files, without making it."""
    if path is None and not read.url.startswith("sqlite"):
        do = "Name the file. All replicas need the same."
        yield Finding("secrets", "fix", f"{name} is not set, and PostgreSQL needs it", do)
        return
    made = "secret" if name == "PRIVEST_SECRET_FILE" else "signing_key"
    if path is None and not (read.data_dir / made).exists():
        yield Finding("secrets", "ok", f"{made} will be made in the data directory at the first start")
        return
    try:
        _ = read.secret if made == "secret" else read.signer
    except (ValueError, OSError) as error:
        told = str(error) if isinstance(error, ValueError) and "PRIVEST_" in str(error) else ""
        what = told or f"{name} names a file that cannot be read as one"
        yield Finding("secrets", "fix", what, "Put the file there that this ledger was begun with.")
        return
    yield Finding("secrets", "ok", f"{made} can be read")


def _modes(path: Path) -> Iterator[Finding]:
    """Who else can read or change a file.

    What is mounted read-only, as secrets of containers are, has the modes that its host gave it.
    """
    try:
        mode = path.stat().st_mode
        mounted = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except FileNotFoundError:  # it is told of as a key file
        return
    except OSError:
        yield Finding("secrets", "fix", f"{path} cannot be looked at", "Let the service's user read it.")
        return
    if mounted:
        return
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield Finding("secrets", "fix", f"{path} can be changed by others", f"chmod go-w {path}")
    elif mode & stat.S_IROTH and _open_to_all(path):
        yield Finding("secrets", "fix", f"{path} can be read by everybody here", f"chmod o= {path}")


def _open_to_all(path: Path) -> bool:
    """Whether everybody may enter all directories on the way to a file."""
    return all(each.stat().st_mode & stat.S_IXOTH for each in path.resolve().parents)


# Disk


def disk(read: Settings) -> Iterator[Finding]:
    """Look whether rows can be written, and whether there is room for the largest upload."""
    place = next(
        each for each in (read.data_dir.resolve(), *read.data_dir.resolve().parents) if each.exists()
    )
    if not os.access(place, os.W_OK):
        do = "Let the service's user write there, or change PRIVEST_DATA_DIR."
        yield Finding("disk", "fix", "PRIVEST_DATA_DIR cannot be written", do)
    elif (free := shutil.disk_usage(place).free) < 2 * read.max_upload_bytes:
        do = "Make room. Uploads, exports and, on SQLite, charges are refused when it is full."
        yield Finding("disk", "fix", "PRIVEST_DATA_DIR has no room for two of the largest uploads", do)
    elif free < read.max_dataset_bytes:
        what = "PRIVEST_DATA_DIR has room for uploads, but not for the largest rows that may be stored"
        yield Finding("disk", "look", what, "Make room, or lower PRIVEST_MAX_DATASET_BYTES.")
    else:
        yield Finding("disk", "ok", "PRIVEST_DATA_DIR can be written, and has room")
    if not os.access(gettempdir(), os.W_OK):
        yield Finding("disk", "fix", f"{gettempdir()} cannot be written", "Mount a tmpfs there.")


# The machine


def machine(read: Settings) -> Iterator[Finding]:
    """Look at memory for all workers at their worst, and at what the kernel has to confine parsers with."""
    if read.engine == "local":
        worst = (read.workers + len(get_args(Work))) * read.worker_memory + _SPARE
        if (there := _memory()) < worst:
            what = f"workers may take {worst / 2**30:.1f} GiB together, and {there / 2**30:.1f} GiB are there"
            do = "Lower PRIVEST_WORKERS or PRIVEST_WORKER_MEMORY, or give it more."
            yield Finding("memory", "look", what, do)
        else:
            yield Finding("memory", "ok", "suffices for all workers at their worst")
    lacking = set(missing(Path(gettempdir()))) - ({"user"} if os.geteuid() else set())
    if lacking:
        what = f"uploads are parsed without {' and '.join(sorted(lacking))}"
        yield Finding("kernel", "look", what, "docs/limits.md, Uploads are hostile, says what brings it.")
    else:
        yield Finding("kernel", "ok", "has all that uploads are confined with")


def _memory() -> int:
    """Bytes of memory that this machine, or this container, may take."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        bounded = _CGROUP.read_text().strip()
    except OSError:
        return there
    return min(there, int(bounded)) if bounded.isdecimal() else there
