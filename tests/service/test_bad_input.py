"""Bad input: the right problem document, nothing of what was sent in it, nothing charged and nothing lost."""

import io
import json
import pickle
import select
import socket
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from testing.server import SPD3, Caller, Server, npy, problem, spd, until

MARK = "987654.321"
MARKED = 987654.321
PATHS = ("/v1/estimates/frechet-mean", "/v1/estimates/frechet-mean/plan")
PATHS_OF_OTHERS = ("/v1/estimates/robust-pca", "/v1/estimates/robust-pca/plan")


@contextmanager
def unchanged(owner: Caller) -> Iterator[None]:
    """Budget, ledger and datasets are afterwards what they were."""

    def state() -> Any:
        return owner.budget(), owner.ledger(), owner.get("/v1/datasets").json()

    before = state()
    yield
    assert state() == before
    folders = [owner.server.data_dir / "incoming", owner.server.data_dir / "rows" / owner.id]
    assert not [file for file in folders[0].iterdir() if not file.name.startswith("pymp-")]
    if folders[1].exists():
        assert len(list(folders[1].iterdir())) == len(before[2]["datasets"])


def silent(response: httpx.Response, *, marks: tuple[str, ...] = (MARK, "MARKER", "987654")) -> None:
    """Nothing that was sent comes back, in whatever spelling."""
    everything = response.text + str(response.headers)
    assert not [mark for mark in marks if mark in everything], everything


_owners: dict[str, tuple[Caller, str]] = {}


@pytest.fixture
def owner(server: Server) -> Caller:
    """An owner with one dataset; nothing here changes either, so each server needs but one."""
    if server.url not in _owners:
        owner = server.owner()
        _owners[server.url] = owner, owner.dataset()
    return _owners[server.url][0]


@pytest.fixture
def dataset(server: Server, owner: Caller) -> str:
    """The dataset of that owner."""
    return _owners[server.url][1]


only_on_sqlite = pytest.mark.parametrize("backend", ["sqlite"])
"""Marks tests of requests that are refused before any database is asked."""


# Estimates

_GOOD = {"dataset": {"id": "DATASET"}, "privacy": {"epsilon": 0.1, "delta": 1e-6}}


def _with(**changed: Any) -> str:
    return json.dumps(_GOOD | changed)


def _raw(privacy: str) -> str:
    return f'{{"dataset": {{"id": "DATASET"}}, "privacy": {privacy}}}'


def _start(value: Any) -> str:
    return _with(start=value)


_EYE = np.eye(3).tolist()
_DEEP = "[" * 900 + "1" + "]" * 900

BODIES: dict[str, str | bytes] = {
    "epsilon zero": _raw('{"epsilon": 0}'),
    "epsilon negative": _raw(f'{{"epsilon": -{MARK}}}'),
    "epsilon NaN": _raw('{"epsilon": NaN}'),
    "epsilon infinite": _raw('{"epsilon": Infinity}'),
    "epsilon minus infinity": _raw('{"epsilon": -Infinity}'),
    "epsilon overflows": _raw('{"epsilon": 1e999}'),
    "epsilon a huge integer": _raw('{"epsilon": %s}' % ("9" * 400)),
    "epsilon of more digits than are parsed": _raw('{"epsilon": %s}' % ("9" * 5000)),
    "epsilon a string": _raw(f'{{"epsilon": "{MARK}"}}'),
    "epsilon a number in a string": _raw('{"epsilon": "0.1"}'),
    "epsilon a truth value": _raw('{"epsilon": true}'),
    "epsilon a list": _raw(f'{{"epsilon": [{MARK}]}}'),
    "epsilon null": _raw('{"epsilon": null}'),
    "epsilon missing": _raw('{"delta": 0.1}'),
    "epsilon beyond float64 sums": _raw('{"epsilon": 1e300, "delta": 1e-6}'),
    "delta negative": _raw(f'{{"epsilon": 0.1, "delta": -{MARK}}}'),
    "delta one": _raw('{"epsilon": 0.1, "delta": 1}'),
    "delta above one": _raw(f'{{"epsilon": 0.1, "delta": {MARK}}}'),
    "delta NaN": _raw('{"epsilon": 0.1, "delta": NaN}'),
    "delta infinite": _raw('{"epsilon": 0.1, "delta": Infinity}'),
    "delta a string": _raw('{"epsilon": 0.1, "delta": "MARKER"}'),
    "delta a number in a string": _raw('{"epsilon": 0.1, "delta": "1e-6"}'),
    "privacy missing": '{"dataset": {"id": "DATASET"}}',
    "privacy a list": _raw(f"[{MARK}]"),
    "dataset missing": '{"privacy": {"epsilon": 0.1}}',
    "dataset a string": _with(dataset="MARKER"),
    "dataset a number": _with(dataset={"id": MARKED}),
    "dataset of too long a name": _with(dataset={"id": "MARKER" * 100}),
    "unknown field": _with(MARKER=MARKED),
    "unknown field of privacy": _raw(f'{{"epsilon": 0.1, "MARKER": {MARK}}}'),
    "field of another kind": _with(rank=MARKED),
    "reuse a word": _with(reuse="MARKER"),
    "reuse a word that could be a truth value": _with(reuse="yes"),
    "start off the manifold": _start((np.diag([-MARKED, 1, 1])).tolist()),
    "start not symmetric": _start([[1, MARKED, 0], [0, 1, 0], [0, 0, 1]]),
    "start of another shape": _start([1.0, MARKED]),
    "start ragged": _start([[1, MARKED], [1]]),
    "start of words": _start([["MARKER"] * 3] * 3),
    "start of words that are numbers": _start([["1", "0", "0"], ["0", "1", "0"], ["0", "0", "1"]]),
    "start of nothing": _start([]),
    "start null inside": _start([[None] * 3] * 3),
    "start NaN": _start([[float("nan")] * 3] * 3),
    "start infinite": _start([[float("inf"), 0, 0], [0, 1, 0], [0, 0, 1]]),
    "start overflows": _start(_EYE).replace("1.0", "1e999"),
    "start of huge integers": _start(_EYE).replace("1.0", "9" * 400),
    "start an object": _start({"MARKER": 1}),
    "start deep": _with(start=["DEEP"]).replace('"DEEP"', _DEEP),
    "start of objects": _start([[{"MARKER": 1}] * 3] * 3),
    "steps zero": _with(steps=0),
    "steps negative": _with(steps=-987654),
    "steps too many": _with(steps=987654),
    "steps beyond what JSON holds exactly": _with(steps=2**53),
    "steps a fraction": _with(steps=1.5),
    "steps a word": _with(steps="3"),
    "clip negative": _with(clip=-MARKED),
    "clip zero": _with(clip=0),
    "clip too large": _with(clip=MARKED * 1e6),
    "clip too small": _with(clip=1e-200),
    "clip NaN": _with(clip=float("nan")),
    "step_size negative": _with(step_size=-MARKED),
    "step_size too large": _with(step_size=MARKED),
    "step_size a word": _with(step_size="MARKER"),
    "no JSON": '{"MARKER": ',
    "single quotes": "{'MARKER': 1}",
    "trailing comma": '{"MARKER": 1,}',
    "nothing": "",
    "null": "null",
    "a list": f"[{MARK}]",
    "a string": '"MARKER"',
    "not UTF-8": b'{"dataset": "\xff\xfeMARKER"}',
    "nested too deeply": "[" * 100_000,
    "objects nested too deeply": '{"a":' * 100_000,
}


@only_on_sqlite
@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body(owner: Caller, dataset: str, name: str) -> None:
    body = BODIES[name]
    body = body if isinstance(body, bytes) else body.replace("DATASET", dataset).encode()
    with unchanged(owner):
        for path in PATHS + PATHS_OF_OTHERS:
            headers = {"Content-Type": "application/json", "Idempotency-Key": "bad"}
            answer = owner.post(path, headers=headers, content=body)
            problem(answer, 422, "invalid")
            silent(answer)


@pytest.mark.parametrize("name", ["start NaN", "start of huge integers", "start overflows", "start deep"])
def test_a_bad_body_under_a_used_key(owner: Caller, dataset: str, name: str) -> None:
    """Bodies are compared before they are planned: what has no canonical form must not stop that."""
    owner.estimate(dataset, key="k")
    with unchanged(owner):
        headers = {"Content-Type": "application/json", "Idempotency-Key": "k"}
        body = str(BODIES[name]).replace("DATASET", dataset)
        answer = owner.post(PATHS[0], headers=headers, content=body)
        assert answer.status_code == 422, answer.text
        silent(answer)


def test_integers_beyond_float64_in_a_point_are_a_point(server: Server) -> None:
    owner = server.owner()
    schema = {"kind": "points", "manifold": {"name": "euclidean", "dim": 1}, "radius": 1.0}
    dataset = owner.dataset(np.zeros((50, 1)), schema)
    for value in (2**53 + 1, 2**64):
        assert owner.estimate(dataset, start=[value], steps=1).status_code in (200, 422)


def test_a_body_that_is_too_large(owner: Caller, dataset: str) -> None:
    with unchanged(owner):
        for path in PATHS:
            body = _with(start=["MARKER" * 400_000]).replace("DATASET", dataset)
            headers = {"Content-Type": "application/json", "Idempotency-Key": "k"}
            answer = owner.post(path, headers=headers, content=body)
            problem(answer, 413, "too-large")
            silent(answer)

            def chunks(body: str = body) -> Iterator[bytes]:
                yield from (body[i : i + 65536].encode() for i in range(0, len(body), 65536))

            problem(owner.post(path, headers=headers, content=chunks()), 413, "too-large")


@pytest.mark.parametrize(
    ("key", "status", "slug"),
    [
        (None, 400, "idempotency-key-missing"),
        ("", 400, "idempotency-key-missing"),
        ("k" * 201, 422, "invalid"),
        ("a\tb", 422, "invalid"),
    ],
)
def test_a_bad_idempotency_key(owner: Caller, dataset: str, key: str | None, status: int, slug: str) -> None:
    with unchanged(owner):
        body = json.loads(_with().replace("DATASET", dataset))
        headers = {} if key is None else {"Idempotency-Key": key}
        problem(owner.post(PATHS[0], json=body, headers=headers), status, slug)


def test_datasets_that_are_not_the_callers(server: Server, owner: Caller, dataset: str) -> None:
    other, analyst = server.owner(), server.analyst()
    foreign, own = other.dataset(), dataset
    with unchanged(owner), unchanged(other):
        answers = [
            ask(name) for name in ("ds_MARKER", "", "../x", foreign) for ask in (owner.estimate, owner.plan)
        ] + [analyst.estimate(foreign), analyst.plan(own)]
        for answer in answers:
            problem(answer, 404, "not-found")
            silent(answer)
        # Foreign and unknown cannot be told apart.
        assert owner.plan(foreign).content == owner.plan("ds_unknown").content


def test_names_that_hold_nul_are_no_names(server: Server, owner: Caller, dataset: str) -> None:
    """PostgreSQL cannot store NUL: it must be refused, not tried."""
    analyst = server.analyst()
    answers = [
        owner.estimate("ds_\0"),
        owner.plan("ds_\0"),
        owner.get("/v1/datasets/%00"),
        owner.delete("/v1/datasets/%00"),
        owner.get("/v1/datasets/%00/dummy"),
        owner.get("/v1/jobs/%00"),
        owner.get("/v1/jobs/%00/events"),
        owner.get("/v1/jobs/%00/receipt"),
        owner.put(f"/v1/datasets/%00/grants/{analyst.id}", json={}),
        owner.put(f"/v1/datasets/{dataset}/grants/%00", json={}),
        server.admin.get("/v1/owners/%00/budget"),
        server.admin.get("/v1/owners/%00/ledger"),
        server.admin.patch("/v1/owners/%00/budget", json={"frozen": True}),
        server.admin.post("/v1/owners/%00/keys"),
        server.admin.post("/v1/analysts/%00/keys"),
        server.admin.delete("/v1/owners/%00/keys/%00"),
        server.admin.delete(f"/v1/analysts/{analyst.id}/keys/%00"),
        server.admin.post("/v1/analysts", json={"name": "a\0b"}),
        server.admin.post("/v1/owners", json={"name": "a\0", "budget": {"epsilon": 1, "delta": 1e-5}}),
    ]
    assert [answer.status_code for answer in answers if answer.status_code not in (404, 422)] == []


# Uploads


class _Planted:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_a_pickled_npy_is_refused_and_never_loaded(owner: Caller, tmp_path: Path) -> None:
    trap = tmp_path / "MARKER"
    array = np.array([_Planted(trap)] * 3, dtype=object)
    with unchanged(owner):
        for content in (npy(array, allow_pickle=True), pickle.dumps(array), pickle.dumps(_Planted(trap))):
            document = problem(owner.upload(content, SPD3), 422, "dataset-invalid")
            assert "npy" in document["faults"][0]["rule"]
    assert not trap.exists()
    pickle.loads(pickle.dumps(_Planted(trap)))  # noqa: S301 - the trap is one
    assert trap.exists()


def _header(text: str, body: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(text) + 1)
    return b"\x93NUMPY" + version + size + text.encode("latin1") + b"\n" + body


def _zip(truncated: bool) -> bytes:
    file = io.BytesIO()
    np.savez(file, spd(5))
    content = file.getvalue()
    return content[: len(content) // 2] if truncated else content


def _changed(index: tuple[int, ...], value: float) -> np.ndarray:
    rows = spd(5000)
    rows[index] = value
    return rows


def _asymmetric() -> np.ndarray:
    rows = spd(20)
    rows[7, 0, 1] += MARKED
    return rows


def _indefinite() -> np.ndarray:
    rows = spd(20)
    rows[11] = np.diag([1, -MARKED, 1])
    return rows


def _described(shape: str, descr: str = "'<f8'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


def _zip_of_text() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("MARKER.txt", MARK)
    return file.getvalue()


FILES: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "text": lambda: b"MARKER 987654.321",
    "truncated": lambda: npy(spd(20))[:-1],
    "truncated in its header": lambda: npy(spd(20))[:40],
    "only its magic": lambda: npy(spd(20))[:6],
    "npz under another name": lambda: _zip(False),
    "truncated npz": lambda: _zip(True),
    "zip of text": _zip_of_text,
    "huge shape": lambda: _header(_described("(987654321987654321, 3, 3)"), b"\0" * 72),
    "overflowing shape": lambda: _header(_described(f"({2**62}, 3, 3)"), b"\0" * 72),
    "shape beyond int64": lambda: _header(_described(f"({2**70}, 3, 3)"), b"\0" * 72),
    "negative shape": lambda: _header(_described("(-1, 3, 3)"), b"\0" * 720),
    "shape of words": lambda: _header(_described("('MARKER', 3, 3)"), b"\0" * 720),
    "header not closed": lambda: _header("{'MARKER': ((((", b"\0" * 720),
    "header with bad indentation": lambda: _header("{\n   'a': 1\n  MARKER\n 2", b"\0" * 720),
    "header deep": lambda: _header("(" * 5000, b"\0" * 720),
    "header of signs": lambda: _header("-" * 9000 + "1", b"\0" * 720),
    "header long": lambda: _header(_described("(2, 3, 3)") + " " * 50_000, b"\0" * 144),
    "header no dictionary": lambda: _header("[987654.321]", b"\0" * 720),
    "header a call": lambda: _header("__import__('os').abort()", b"\0" * 720),
    "header of version 9": lambda: _header(_described("(2, 3, 3)"), b"\0" * 144, b"\x09\x00"),
    "type an empty tuple": lambda: _header(_described("(2, 3, 3)", "()"), b"\0" * 144),
    "type an empty list": lambda: _header(_described("(2, 3, 3)", "[]"), b"\0" * 144),
    "type of fields": lambda: _header(_described("(2, 3, 3)", "[('a',)]"), b"\0" * 144),
    "type unknown": lambda: _header(_described("(2, 3, 3)", "'MARKER'"), b"\0" * 144),
    "type a number": lambda: _header(_described("(2, 3, 3)", "987654"), b"\0" * 144),
    "one record": lambda: npy(spd(1)),
    "no record": lambda: npy(spd(1)[:0]),
    "a single number": lambda: npy(np.array(MARKED)),
    "other shape": lambda: npy(spd(20, dim=4)),
    "flat": lambda: npy(spd(20).reshape(20, 9)),
    "one dimension too many": lambda: npy(spd(20)[None]),
    "complex": lambda: npy(spd(20).astype(complex)),
    "strings": lambda: npy(np.full((20, 3, 3), MARK)),
    "truth values": lambda: npy(np.ones((20, 3, 3), dtype=bool)),
    "dates": lambda: npy(np.zeros((20, 3, 3), dtype="M8[s]")),
    "fields": lambda: npy(np.zeros(20, dtype=[("MARKER", "f8")])),
    "void": lambda: npy(np.zeros((20, 3, 3), dtype="V8")),
}


@only_on_sqlite
@pytest.mark.parametrize("name", FILES)
def test_a_bad_npy(owner: Caller, name: str) -> None:
    with unchanged(owner):
        answer = owner.upload(FILES[name](), SPD3)
        document = problem(answer, 422, "dataset-invalid")
        assert document["faults"]
        silent(answer)


SPHERE3 = {"kind": "points", "manifold": {"name": "sphere", "dim": 3}}
PLANE = {"kind": "points", "manifold": {"name": "euclidean", "dim": 2}}


def _sphere() -> np.ndarray:
    rows = np.random.default_rng(0).standard_normal((20, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[3] *= 987.654
    return rows


RECORDS: dict[str, tuple[Callable[[], np.ndarray], dict[str, Any], int, str | None, str]] = {
    "NaN": (lambda: _changed((17, 1, 1), np.nan), SPD3, 17, "[1][1]", "finite"),
    "infinite": (lambda: _changed((18, 0, 2), np.inf), SPD3, 18, "[0][2]", "finite"),
    "minus infinity, in the second chunk": (
        lambda: _changed((4999, 2, 2), -np.inf),
        SPD3,
        4999,
        "[2][2]",
        "finite",
    ),
    "asymmetric": (_asymmetric, SPD3, 7, None, "symmetric"),
    "indefinite": (_indefinite, SPD3, 11, None, "positive definite"),
    "off the sphere": (_sphere, SPHERE3, 3, None, "unit"),
    "beyond float64": (
        lambda: np.array([[1, 2], [np.longdouble("1e4000"), 1]], dtype=np.longdouble),
        PLANE,
        1,
        "[0]",
        "finite",
    ),
}


@only_on_sqlite
@pytest.mark.parametrize("name", RECORDS)
def test_a_bad_record_is_named_by_index_field_and_rule(owner: Caller, name: str) -> None:
    rows, schema, record, field, rule = RECORDS[name]
    with unchanged(owner):
        answer = owner.upload(npy(rows()), schema)
        (fault,) = problem(answer, 422, "dataset-invalid")["faults"]
        assert fault["record"] == record
        assert fault.get("field") == field
        assert rule in fault["rule"]
        silent(answer)


def test_at_most_so_many_bad_records_are_named(owner: Caller) -> None:
    answer = owner.upload(npy(np.full((10_000, 3, 3), np.nan)), SPD3)
    faults = problem(answer, 422, "dataset-invalid")["faults"]
    assert [fault["record"] for fault in faults] == list(range(20))


TABLES: dict[str, tuple[bytes, int | None, str | None, str]] = {
    "bad cell": (b"1,2\n3,MARKER\n5,6\n", 1, "[1]", "number"),
    "bad cell under names": (b"a,b\n1,2\n3,MARKER\n5,6\n", 1, "[1]", "number"),
    "empty cell": (b"1,2\n,4\n", 1, "[0]", "number"),
    "NaN": (b"1,2\nnan,4\n", 1, "[0]", "finite"),
    "infinite": (b"1,2\n3,4\n5,-Infinity\n", 2, "[1]", "finite"),
    "overflow": (b"1,2\n3,1e999\n", 1, "[1]", "finite"),
    "ragged": (b"1,2\n3,4,987654.321\n", 1, None, "columns"),
    "too few columns": (b"1,2\n987654.321\n", 1, None, "columns"),
    "colons": (b"1:2\n3:987654.321\n", None, None, ""),
    "empty": (b"", None, None, "at least 2"),
    "only names": (b"a,b\n", None, None, "at least 2"),
    "one record": (b"1,987654.321\n", None, None, "at least 2"),
    "not UTF-8": (b"1,2\n\xff\xfe,MARKER\n", 1, "[0]", "number"),
    "no encoding": (b"1,2\n\x81,MARKER\n", None, None, "encoding"),
    "NUL": (b"1,2\n3,\0MARKER\n", None, None, ""),
    "binary garbage": (bytes(range(256)) * 50, None, None, ""),
    "npy under another name": (npy(np.zeros((5, 2))), None, None, ""),
    "quote not closed": (b'1,2\n"3,MARKER\n', 1, None, "2 columns"),
    "huge cell": (b"1,2\n3," + b"9" * 500_000 + b"\n", None, None, ""),
}


@only_on_sqlite
@pytest.mark.parametrize("name", TABLES)
def test_a_bad_csv(owner: Caller, name: str) -> None:
    content, record, field, rule = TABLES[name]
    with unchanged(owner):
        answer = owner.upload(content, PLANE, name="rows.csv", header=content.startswith(b"a,b\n"))
        (fault, *_) = problem(answer, 422, "dataset-invalid")["faults"]
        if record is not None:
            assert fault["record"] == record
            assert fault.get("field") == field
        assert rule in fault["rule"]
        silent(answer)


SCHEMAS: dict[str, str | dict[str, Any]] = {
    "no JSON": '{"MARKER"',
    "empty": "",
    "null": "null",
    "a list": "[987654.321]",
    "nested too deeply": "[" * 100_000,
    "unknown kind": {"kind": "MARKER"},
    "unknown manifold": SPD3 | {"manifold": {"name": "MARKER", "dim": 3}},
    "no manifold": {"kind": "points"},
    "no dim": SPD3 | {"manifold": {"name": "spd"}},
    "dim zero": SPD3 | {"manifold": {"name": "spd", "dim": 0}},
    "dim negative": SPD3 | {"manifold": {"name": "spd", "dim": -987654}},
    "dim too large": SPD3 | {"manifold": {"name": "spd", "dim": 987654}},
    "dim a fraction": SPD3 | {"manifold": {"name": "spd", "dim": 2.5}},
    "dim a string": SPD3 | {"manifold": {"name": "spd", "dim": "3"}},
    "sphere of dim one": SPD3 | {"manifold": {"name": "sphere", "dim": 1}},
    "unknown metric": SPD3 | {"manifold": {"name": "spd", "dim": 3, "metric": "MARKER"}},
    "unknown field": SPD3 | {"MARKER": MARKED},
    "unknown field of the manifold": SPD3 | {"manifold": {"name": "spd", "dim": 3, "MARKER": MARKED}},
    "radius zero": SPD3 | {"radius": 0},
    "radius negative": SPD3 | {"radius": -MARKED},
    "radius NaN": SPD3 | {"radius": float("nan")},
    "radius infinite": SPD3 | {"radius": float("inf")},
    "radius a string": SPD3 | {"radius": MARK},
    "center off the manifold": SPD3 | {"center": np.diag([1, -MARKED, 1]).tolist()},
    "center of another shape": SPD3 | {"center": [MARKED]},
    "center NaN": SPD3 | {"center": [[float("nan")] * 3] * 3},
    "center of words": SPD3 | {"center": [["MARKER"] * 3] * 3},
    "vectors of no dim": {"kind": "vectors"},
    "vectors with an unknown field": {"kind": "vectors", "dim": 3, "MARKER": MARKED},
    "vectors with a bound that is none": {"kind": "vectors", "dim": 3, "norm_bound": -MARKED},
}


@only_on_sqlite
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_bad_schema(owner: Caller, name: str) -> None:
    with unchanged(owner):
        answer = owner.upload(npy(spd(5)), SCHEMAS[name])
        problem(answer, 422, "invalid")
        silent(answer)


def test_parts_of_an_upload_that_are_missing(owner: Caller) -> None:
    file, schema = {"file": ("rows.npy", npy(spd(5)))}, {"schema": json.dumps(SPD3)}
    form = {"Content-Type": "multipart/form-data; boundary=MARKER"}
    with unchanged(owner):
        for answer in (
            owner.post("/v1/datasets", files=file),
            owner.post("/v1/datasets", data=schema),
            owner.post("/v1/datasets", files={"file": (None, "MARKER")}, data=schema),
            owner.post("/v1/datasets", files=file | {"schema": ("a.json", b"{}")}),
            owner.post("/v1/datasets", json={"MARKER": MARKED}),
            owner.post("/v1/datasets", content=b"MARKER", headers=form),
            owner.post("/v1/datasets", content=b"MARKER", headers={"Content-Type": "multipart/form-data"}),
            owner.post("/v1/datasets"),
        ):
            problem(answer, 422, "invalid")
            silent(answer)


@only_on_sqlite
@pytest.mark.parametrize("name", ["rows", "rows.pickle", "rows.csv.exe", ".npyx"])
def test_a_format_that_is_not_read(owner: Caller, name: str) -> None:
    with unchanged(owner):
        problem(owner.upload(npy(spd(5)), SPD3, name=name), 415, "unsupported-media-type")


# Owners, analysts, budgets

OTHERS: dict[str, tuple[str, str, Any]] = {
    "owner without budget": ("POST", "/v1/owners", {"name": "MARKER"}),
    "owner without name": ("POST", "/v1/owners", {"budget": {"epsilon": 1, "delta": 1e-5}}),
    "owner of blank name": ("POST", "/v1/owners", {"name": "  ", "budget": {"epsilon": 1, "delta": 1e-5}}),
    "owner of long name": (
        "POST",
        "/v1/owners",
        {"name": "MARKER" * 50, "budget": {"epsilon": 1, "delta": 1e-5}},
    ),
    "budget negative": ("POST", "/v1/owners", {"name": "x", "budget": {"epsilon": -MARKED, "delta": 1e-5}}),
    "budget of strings": ("POST", "/v1/owners", {"name": "x", "budget": {"epsilon": MARK, "delta": 1e-5}}),
    "budget too large": ("POST", "/v1/owners", {"name": "x", "budget": {"epsilon": 987654e9, "delta": 1e-5}}),
    "budget delta one": ("POST", "/v1/owners", {"name": "x", "budget": {"epsilon": 1, "delta": 1}}),
    "budget too small": ("POST", "/v1/owners", {"name": "x", "budget": {"epsilon": 1e-12, "delta": 1e-17}}),
    "budget of unknown composition": (
        "POST",
        "/v1/owners",
        {"name": "x", "budget": {"epsilon": 1, "delta": 1e-5, "composition": "MARKER"}},
    ),
    "basic budget too small": (
        "POST",
        "/v1/owners",
        {"name": "x", "budget": {"epsilon": 1e-10, "delta": 0, "composition": "basic"}},
    ),
    "analyst without name": ("POST", "/v1/analysts", {}),
    "analyst with more": ("POST", "/v1/analysts", {"name": "x", "MARKER": MARKED}),
    "change of unknown field": ("PATCH", "/v1/owners/OWNER/budget", {"MARKER": MARKED}),
    "change to a string": ("PATCH", "/v1/owners/OWNER/budget", {"frozen": "MARKER"}),
    "change to nothing at all": ("PATCH", "/v1/owners/OWNER/budget", {"epsilon": 0}),
    "change that lowers": ("PATCH", "/v1/owners/OWNER/budget", {"epsilon": 0.987654}),
    "change of delta that lowers": ("PATCH", "/v1/owners/OWNER/budget", {"delta": 0}),
    "page of none": ("GET", "/v1/owners/OWNER/ledger?limit=0", None),
    "page too large": ("GET", "/v1/owners/OWNER/ledger?limit=987654", None),
    "cursor of letters": ("GET", "/v1/owners/OWNER/ledger?cursor=MARKER", None),
    "cursor negative": ("GET", "/v1/owners/OWNER/ledger?cursor=-987654", None),
    "cursor beyond int64": ("GET", f"/v1/owners/OWNER/ledger?cursor={987654 * 10**20}", None),
    "cursor beyond int64 by one": ("GET", f"/v1/owners/OWNER/ledger?cursor={2**63}", None),
}


@pytest.mark.parametrize("name", OTHERS)
def test_bad_requests_about_principals(server: Server, owner: Caller, name: str) -> None:
    method, path, body = OTHERS[name]
    with unchanged(owner):
        answer = server.admin.request(method, path.replace("OWNER", owner.id), json=body)
        problem(answer, 422, "invalid")
        silent(answer)


@pytest.mark.parametrize(
    "cap",
    [
        {"epsilon": 1.0},
        {"delta": 0.1},
        {"epsilon": -MARKED, "delta": 0},
        {"epsilon": 1, "delta": 0},
        {"x": 1},
    ],
)
def test_a_bad_cap(server: Server, owner: Caller, dataset: str, cap: dict[str, float]) -> None:
    analyst = server.analyst()
    with unchanged(owner):
        answer = owner.grant(dataset, analyst, **cap)
        problem(answer, 422, "invalid")
        silent(answer)
        problem(analyst.plan(dataset), 404, "not-found")


# Keys and routes


def test_keys_that_open_nothing(server: Server, owner: Caller) -> None:
    path = f"/v1/owners/{owner.id}/budget"
    revoked = server.owner()
    (key_id,) = [revoked.post(f"/v1/owners/{revoked.id}/keys").json()["id"]]
    assert revoked.delete(f"/v1/owners/{revoked.id}/keys/{key_id}").status_code == 204
    last = owner.key[-1]
    for header in (
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {owner.key}"},
        {"Authorization": owner.key},
        {"Authorization": f"Bearer {owner.key[:-1]}{'0' if last != '0' else '1'}"},
        {"Authorization": f"Bearer {owner.key[:-1]}"},
        {"Authorization": f"Bearer {owner.key.swapcase()}"},
        {"Authorization": "Bearer MARKER.00000000"},
        {"Authorization": "Bearer \u00fc\u00e9"},
        {"Authorization": f"Bearer {'MARKER' * 1000}"},
    ):
        raw = {name: value.encode("latin1") for name, value in header.items()}
        answer = httpx.get(server.url + path, headers=raw)
        problem(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"
        silent(answer)
    problem(httpx.get(server.url + path), 401, "unauthenticated")


def test_who_calls_is_asked_before_what_is_sent(server: Server) -> None:
    for path in ("/v1/owners", "/v1/analysts", *PATHS):
        problem(httpx.post(server.url + path, json={"name": "x"}), 401, "unauthenticated")
    with_file = {"files": {"file": ("a.npy", b"x")}, "data": {"schema": "{}"}}
    problem(httpx.post(f"{server.url}/v1/datasets", **with_file), 401, "unauthenticated")


def test_uploads_of_one_owner_that_arrive_at_a_time_are_few(server: Server) -> None:
    owner, other = server.owner(), server.owner()
    host, _, port = server.url.removeprefix("http://").partition(":")
    head = (
        f"POST /v1/datasets HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {owner.key}\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 100\r\n\r\n--x\r\n"
    )
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.create_connection((host, int(port)), 10)) for _ in range(9)]
        for connection in opened:
            connection.sendall(head.encode())
        (refused, *_), _, _ = select.select(opened, [], [], 10)
        assert refused.recv(12) == b"HTTP/1.1 429"
        assert other.post("/v1/datasets", json={}).status_code == 422
    until(lambda: owner.post("/v1/datasets", json={}).status_code == 422)
