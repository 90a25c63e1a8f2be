"""What goes over the wire between sites and their hub: noisy answers, each once, and nothing of any row."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import httpx
import numpy as np
import pytest

from testing.server import LABELLED, npy, told_apart, until
from testing.sites import Sites, sites
from testing.wire import Wire, wired

COUNTS = (400, 700)
COLUMNS = ("marker-a9", "marker-b7")
TABLE = {
    "kind": "table",
    "columns": [
        {"name": COLUMNS[0], "type": "number", "low": 0.0, "high": 9.0},
        {"name": COLUMNS[1], "type": "number", "low": 0.0, "high": 9.0},
    ],
}


@pytest.fixture(scope="module")
def over_wires(
    tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[str], str]
) -> Iterator[tuple[Sites, list[Wire]]]:
    """A hub and two sites, each with a wire of its own to the hub."""
    wires = list[Wire]()
    with ExitStack() as stack:

        def through(url: str) -> str:
            wires.append(stack.enter_context(wired(url)))
            return wires[-1].url

        directory = tmp_path_factory.mktemp("wires")
        yield stack.enter_context(sites(directory, lambda: new_database("sqlite"), through=through)), wires


def marks_of(rows: np.ndarray) -> set[bytes]:
    """What would tell of a row: its numbers as bytes and text, and hashes of numbers, rows and files."""
    numbers = {float(number) for number in rows.ravel()}
    kept = {number for number in numbers if len(repr(number)) > 10}  # a label is no mark: 0 is everywhere
    assert len(kept) >= len(rows)
    pieces = {np.float64(number).tobytes() for number in kept} | {repr(number).encode() for number in kept}
    pieces |= {row.tobytes() for row in rows} | {rows.tobytes(), npy(rows)}
    hashes = {hashlib.sha256(piece) for piece in pieces}
    return pieces | {each.digest() for each in hashes} | {each.hexdigest().encode() for each in hashes}


def found(marks: set[bytes], everything: bytes) -> list[bytes]:
    """The marks that are somewhere in it."""
    starts = {everything[at : at + 8] for at in range(len(everything) - 7)}  # one by one takes minutes
    return [mark for mark in marks if mark[:8] in starts and mark in everything]


def planted(rows: np.ndarray) -> np.ndarray:
    """Rows whose every number that is no label has digits to be told by."""
    rng = np.random.default_rng(len(rows))
    return np.where(rows == np.round(rows), rows, rows + 1e-9 * rng.random(rows.shape))


CASES: list[tuple[str, dict[str, Any], Callable[[int], np.ndarray], dict[str, Any]]] = [
    (
        "robust-pca",
        {"kind": "vectors", "dim": 5},
        lambda n: np.random.default_rng(n).standard_normal((n, 5)),
        {"rank": 2},
    ),
    ("logistic-regression", LABELLED, lambda n: told_apart(n, apart=3.0), {}),
    ("frechet-mean", TABLE, lambda n: np.random.default_rng(n).uniform(0, 9, (n, 2)), {"columns": COLUMNS}),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "schema", "rows", "options"), CASES, ids=[case[0] for case in CASES])
def test_no_row_goes_over_it_and_each_answer_is_one_request(
    over_wires: tuple[Sites, list[Wire]],
    kind: str,
    schema: dict[str, Any],
    rows: Callable[[int], np.ndarray],
    options: dict[str, Any],
) -> None:
    them, wires = over_wires
    tables = [planted(rows(n)) for n in COUNTS]
    here = them.offering(tables, schema)
    before = [(len(wire.requests(b"/questions/")), len(wire.answers())) for wire in wires]
    job = here.ask(kind, **options).json()
    assert job["state"] == "committed", job
    assert [told["state"] for told in job["sites"]] == ["ended"] * len(wires)
    exchanged = set[int]()
    for wire, table, (requests, answers) in zip(wires, tables, before, strict=True):
        everything = wire.all
        assert b"content-encoding" not in everything.lower()
        assert not found(marks_of(table), everything)
        # One request a release, and two beside them: the decision and the end. Looks for questions name none.
        sent = {path: len(times) for path, times in wire.answers().items()}
        assert set(sent.values()) == {1}
        releases = len(sent) - answers
        assert len(wire.requests(b"/questions/")) - requests == releases + 2
        exchanged.add(releases)
    assert len(exchanged) == 1
    assert 0 not in exchanged


def test_a_row_on_the_wire_would_be_seen(over_wires: tuple[Sites, list[Wire]]) -> None:
    """As bytes, as text and hashed: the recorder is no blind one."""
    wire = over_wires[1][0]
    table = np.random.default_rng(5).standard_normal((3, 2))

    def seen(mark: bytes) -> bool:
        return mark in found(marks_of(table), wire.all)

    for mark in (
        table[0, :1].tobytes(),
        json.dumps(table[1, 0]).encode(),
        hashlib.sha256(npy(table)).digest(),
    ):
        assert not seen(mark)
        httpx.post(f"{wire.url}/v1/nowhere", content=mark)  # which may be answered before all of it was sent
        until(partial(seen, mark))
