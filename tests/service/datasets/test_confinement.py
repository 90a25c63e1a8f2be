"""The process that parses an upload: what a hostile file could have it do leads nowhere."""

import errno
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import TimeoutError as WorkerTimeoutError
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

from privest_service.datasets import confinement, parsing
from privest_service.datasets.parsing import ROWS, UPLOAD, parse
from privest_service.datasets.schemas import SCHEMA
from privest_service.formats import Format
from privest_service.upload_errors import RefusedUploadError
from privest_service.workers.pool import Processes
from testing import ROOT, confined
from testing.server import npy, until
from testing.uploads import FORMATS, rows_as, table_as

INTAKE = SCHEMA.validate_python({"kind": "vectors", "dim": 2}).intake()
ALL = ["landlock", "seccomp", "user"]


@pytest.fixture(scope="module")
def worker() -> Iterator[Processes]:
    """A worker process that parses."""
    processes = Processes(1, 2**31, parsing.prepare)
    yield processes
    processes.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of an upload."""
    own = tmp_path / "incoming" / "ds_own"
    own.parent.mkdir(mode=0o700)
    own.mkdir(mode=0o700)
    return own


@pytest.fixture
def ways(worker: Processes, folder: Path, tmp_path: Path) -> Any:
    """Ways out of confinement that remain without some of the fences."""
    others = tmp_path / "incoming" / "ds_other"
    others.mkdir(mode=0o700)
    rows = others / ROWS
    rows.write_bytes(b"secret")
    rows.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def tried(*without: str) -> set[str]:
            found = worker.call(
                60.0, confined.try_all, str(folder), list(without), str(rows), os.getpid(), port
            )
            answer = found.result()
            assert answer["thread"]
            return set(answer["ways"])

        yield tried


def offered(*fences: str) -> Any:
    """Where this machine has them."""
    lacking = set(fences) & set(confinement.missing(Path(gettempdir())))
    return pytest.mark.skipif(bool(lacking), reason=f"this machine offers no {', '.join(lacking)}")


@offered(*ALL)
def test_a_parser_has_no_way_out(ways: Any) -> None:
    assert ways() == set()


@offered(*ALL)
def test_each_fence_stands_for_itself(ways: Any) -> None:
    """What one would let pass another stops; without any of them nearly all is open."""
    assert ways("landlock") == set()
    assert ways("user") == set()
    without_calls = ways("seccomp")
    assert without_calls.isdisjoint({"another owner's rows", "the service's environment", "a socket", "root"})
    assert ways("landlock", "user") >= {"another owner's rows", "the service's environment"}
    open_ways = ways(*ALL)
    assert {
        "a socket",
        "a process",
        "a signal",
        "another owner's rows",
        "a secret of the machine",
        "rights of a file",
        "rights of a file by a young call",
        "rights of its own rows",
        "an owner of a file",
        "times of a file",
        "limits of a process",
        "its own limits",
        "a priority",
        "a schedule",
        "processors",
        "a signal to a thread",
        "a signal by a file",
        "outliving the worker",
        "a folder",
    } <= open_ways
    assert {"an environment", "open files"}.isdisjoint(open_ways)  # of every kernel


@pytest.mark.costly
def test_workers_know_nothing_of_the_services_environment() -> None:
    """Their memory does not hold it either, where a process keeps what it was started with."""
    key, other = (f"the-name-{secrets.token_hex(8)}" for _ in range(2))
    script = """
import sys
from privest_service.datasets import parsing
from privest_service.workers.pool import Processes
from testing import confined
if __name__ == "__main__":
    for given in ({}, {"environment": {"SOME": "thing"}}):
        worker = Processes(1, 2**31, parsing.prepare, **given)
        print(worker.call(60.0, confined.remembered, "the-n[a]me-[0-9a-f]{16}").result())
        worker.stop()
    import os
    print(os.environ["PRIVEST_ADMIN_KEY"] in confined.remembered("the-n[a]me-[0-9a-f]{16}"))
"""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PRIVEST_ADMIN_KEY": key,
        "AWS_SECRET_ACCESS_KEY": other,
    }
    told = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines() == ["[]", "[]", "True"]


def test_rows_are_parsed_there_and_belong_to_the_service(worker: Processes, folder: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((50, 2))
    (folder / UPLOAD).write_bytes(npy(rows))
    found = worker.call(60.0, parse, str(folder), "npy", INTAKE, 2**20, 60.0).result()
    assert found.n == 50
    np.testing.assert_array_equal(np.load(folder / ROWS), rows)
    about = (folder / ROWS).stat()
    assert (about.st_uid, about.st_mode & 0o777) == (os.geteuid(), 0o600)
    assert {path.name for path in folder.iterdir()} == {UPLOAD, ROWS}


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow", "json", "npz", "npy"])
def test_what_is_no_file_is_refused_in_the_words_of_the_parser(
    worker: Processes, folder: Path, form: Any
) -> None:
    (folder / UPLOAD).write_bytes(b"\xff\x00no file")
    with pytest.raises(RefusedUploadError) as refused:
        worker.call(60.0, parse, str(folder), form, INTAKE, 2**20, 60.0).result()
    assert len(refused.value.faults) == 1


@pytest.mark.parametrize("form", FORMATS)
def test_nothing_is_loaded_while_an_upload_is_parsed(worker: Processes, folder: Path, form: Format) -> None:
    """The parser's user need not be able to read Python's own files; of good and bad files, of any kind."""
    who = {"column": "who", "rows": 2}
    rows = np.arange(12.0).reshape(6, 2)
    table = pa.table({"who": ["a", "b", "a", "\u00e9", "c", "a"], "x": rows[:, 0], "ill": ["no", "yes"] * 3})
    schemas: list[tuple[dict[str, Any], bytes]] = [({"kind": "vectors", "dim": 2}, rows_as(rows, form))]
    if form not in ("npy", "npz"):
        told = {"kind": "labelled", "features": ["x"], "label": "ill", "classes": ["no", "yes"]}
        schemas += [(told | {"unit": who}, table_as(table, form)), (told, table_as(table, form))]
        schemas += [(told | {"classes": ["0", "1"]}, table_as(table, form))]
        schemas += [(told, table_as(table.drop_columns(["ill"]), form))]
    for schema, content in schemas:
        for sent in (content, content[:-9], b"", b"\xff\x00" * 9, b"x,y\n1_0,2\n"):
            (folder / UPLOAD).write_bytes(sent)
            found = worker.call(
                60.0, confined.loads, str(folder), form, SCHEMA.validate_python(schema).intake()
            )
            assert set(found.result()) <= {"pandas"}  # which is not there for it
            (folder / ROWS).unlink(missing_ok=True)


def test_what_this_machine_could_not_do_is_told_apart(worker: Processes, folder: Path) -> None:
    with pytest.raises(FileNotFoundError):  # the upload was withdrawn
        worker.call(60.0, parse, str(folder), "csv", INTAKE, 2**20, 60.0).result()


@pytest.mark.parametrize("told", [b"", b"x" * (2**20 + 1)])
def test_a_parser_that_tells_nothing_or_too_much_is_lost(
    worker: Processes, folder: Path, told: bytes
) -> None:
    with pytest.raises(ChildProcessError):
        worker.call(60.0, confined.says, str(folder), told).result()


def rows_file(n: int) -> bytes:
    return npy(np.zeros((n, 2)))


LIES: dict[str, Any] = {
    "no JSON": (b"cos\nsystem\n", None),
    "no object": (b"[1]", None),
    "rows that are not there": (b'{"n": 2, "digest": "x"}', None),
    "fewer rows": (b'{"n": 3, "digest": "x"}', rows_file(2)),
    "objects": (b'{"n": 2, "digest": "x"}', b"\x93NUMPY\x01\x00" + bytes(200)),
    "more than rows": (b'{"n": 2, "digest": "x"}', rows_file(2) + b"x"),
    "no rows": (b'{"n": 0, "digest": "x"}', rows_file(0)),
    "counts of columns that are not there": (b'{"n": 2, "digest": "x", "outside": [1]}', rows_file(2)),
    "a count below 0": (b'{"n": 2, "digest": "x", "outside": [-1]}', rows_file(2)),
    "a link": (b'{"n": 2, "digest": "x"}', "symbolic"),
    "another's file": (b'{"n": 2, "digest": "x"}', "hard"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_a_parser_tells_is_not_believed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    told, left = LIES[lie]
    (tmp_path / "others").write_bytes(rows_file(2))
    if left == "symbolic":
        (folder / ROWS).symlink_to(tmp_path / "others")
    elif left == "hard":
        (folder / ROWS).hardlink_to(tmp_path / "others")
    elif left is not None:
        (folder / ROWS).write_bytes(left)
    monkeypatch.setattr(confinement, "confined", lambda *_: told)
    with pytest.raises(OSError, check=lambda error: error.errno in (None, errno.ENOENT, errno.ELOOP)):
        parse(str(folder), "npy", INTAKE, 2**20, 60.0)
    (folder / ROWS).unlink(missing_ok=True)
    (folder / ROWS).write_bytes(rows_file(2))
    (folder / ROWS).chmod(0o666)
    monkeypatch.setattr(confinement, "confined", lambda *_: b'{"n": 2, "digest": "x"}')
    assert parse(str(folder), "npy", INTAKE, 2**20, 60.0).n == 2
    assert (folder / ROWS).stat().st_mode & 0o777 == 0o600


@pytest.mark.few(1)
@pytest.mark.parametrize("tries_to", [False, pytest.param(True, marks=offered("seccomp"))])
def test_a_parser_ends_with_its_worker(folder: Path, tries_to: bool) -> None:
    """However that ended: here it took too long."""
    processes = Processes(1, 2**31, parsing.prepare)
    call = processes.call(1.0, confined.outlived, str(folder), tries_to)
    with pytest.raises(WorkerTimeoutError):
        call.result()
    child = int((folder / "child").read_text())
    until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)
    processes.stop()


def test_a_parser_computes_no_longer_than_it_may(worker: Processes, folder: Path) -> None:
    """Time is limited even if nobody waits any more; otherwise this would take as long as a call may."""
    with pytest.raises(ChildProcessError):
        worker.call(120.0, confined.spins, str(folder)).result()


def test_a_parser_writes_no_file_longer_than_it_may(worker: Processes, folder: Path) -> None:
    assert worker.call(60.0, confined.fills, str(folder), 12_345).result() == (12_345, "EFBIG")


@offered("user")
def test_what_a_parser_left_beside_its_rows_is_not_looked_at(worker: Processes, folder: Path) -> None:
    (folder / UPLOAD).touch()
    owned = worker.call(60.0, confined.leaves, str(folder), 100).result()
    assert owned == [UPLOAD, folder.name, folder.name, ROWS]
    assert (folder / "99").stat().st_uid != os.geteuid() == (folder / ROWS).stat().st_uid


@offered("user")
@pytest.mark.parametrize(
    "rights", [[0], [5], [6], [7], [1, 2]], ids=["chown", "kill", "setgid", "setuid", "dac"]
)
def test_no_user_is_lent_by_halves(folder: Path, rights: list[int]) -> None:
    """A container may have some of the rights that it takes: then no other user is lent."""
    (folder / UPLOAD).touch()
    processes = Processes(1, 2**31, parsing.prepare)
    user, missing = processes.call(60.0, confined.without_rights, str(folder), rights).result()
    processes.stop()
    assert (user, "user" in missing) == (os.geteuid(), True)
    assert {path.stat().st_uid for path in (folder, folder / UPLOAD)} == {os.geteuid()}


@pytest.mark.parametrize("lacks", ALL)
def test_what_a_machine_does_not_offer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    there = {"_landlock_version": 3, "_libseccomp": object(), "_lend": 1}
    names = dict(zip(ALL, there, strict=True))
    for name, found in (there | {names[lacks]: 0 if lacks == "landlock" else None}).items():
        monkeypatch.setattr(confinement, name, lambda *_, found=found: found)
    assert confinement.missing(tmp_path) == [lacks]
    assert not list(tmp_path.iterdir())


def test_numbers_of_calls_are_those_of_this_machine() -> None:
    """Every name is one that libseccomp knows, whatever the architecture."""
    library = confinement._libseccomp()
    if library is None:
        pytest.skip("no libseccomp")
    unknown = -1
    assert all(
        library.seccomp_syscall_resolve_name(name.encode()) != unknown
        for name in (confinement._NETWORK + confinement._DENIED).split()
    )
    assert json.dumps((confinement._NETWORK + confinement._DENIED).split()).count("socket") >= 3
