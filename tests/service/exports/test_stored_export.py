"""An export of November 2026 verifies with the present code, and no byte of it can change.

Digests and signatures are over names: of fields, mechanisms, acts and estimators. Renaming one of them in
code must not change what was hashed or signed before. Never replace the files in `data/`: if a test here
fails, the code is wrong.

`data/export-2026-11.jsonl.gz` is the ledger of a service with three owners, on budgets of both compositions:

- grants with caps, changed and revoked; caps on datasets; a query above its cap, which was refused.
- a window that was renewed, a budget that was raised, rules for windows.
- freezes by an owner and by the administrator, and their ends.
- queries of all estimators but matrix completion: by noisy sums, by random batches of both kinds, and by sums
  of which the run chooses one; one query on datasets of two owners.
- queries that were approved, denied, withdrawn, voided, and two that failed.
- queries by people with tokens, one through a service account; a person who left.
- a published answer, keys that were issued, revoked and rotated, a sign-in.
- a budget that was charged as lost after a restore, and a signing key that was replaced.

`data/export-2026-11.kept.json` has the public keys, an owner's heads from before its window was renewed, and
receipts that analysts and owners kept.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privest_service.exports.lines import Heads, read
from privest_service.exports.verify import Report, verify
from privest_service.ledger.receipts import Receipt

DATA = Path(__file__).with_name("data")
ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in gzip.decompress((DATA / "export-2026-11.jsonl.gz").read_bytes()).splitlines()
]
KEPT: dict[str, Any] = json.loads((DATA / "export-2026-11.kept.json").read_text())

BY_THE_END = "the lines are not those that the end was signed over"
"""Fault that the verifier reports after a change of any line."""


def verified(rows: list[dict[str, Any]], kept: dict[str, Any] = KEPT) -> Report:
    heads = [Heads.model_validate(each) for each in kept["heads"]]
    receipts = [Receipt.model_validate(each) for each in kept["receipts"]]
    return verify(read(map(json.dumps, rows)), KEPT["keys"], heads, receipts)


def copied() -> list[dict[str, Any]]:
    return json.loads(json.dumps(ROWS))


def with_another_byte(text: str) -> str:
    """Return a text whose middle letter or digit is another one."""
    places = [at for at, each in enumerate(text) if each.isalnum()]
    place = places[len(places) // 2]
    return f"{text[:place]}{'1' if text[place] == '0' else '0'}{text[place + 1 :]}"


def test_it_verifies() -> None:
    found = verified(ROWS)
    assert (found.faults, found.unsealed) == ([], [])
    assert (found.accounts, found.entries, found.acts, found.receipts) == (37, 120, 65, 37)


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], tuple[dict[str, Any], str]], str]] = {
    "account": (lambda row: (row, "head"), "does not end"),
    "mechanism": (lambda row: (row, "content"), "was changed"),
    "entry": (lambda row: (row, "job"), "was changed"),
    "act": (lambda row: (row, "details"), "was changed"),
    "name": (lambda row: (row, "name"), "is called"),
    "grant": (lambda row: (row, "analyst"), "is not there"),
    "job": (lambda row: (row, "plan"), "is not the one that its receipt was signed for"),
    "receipt": (lambda row: (row["receipt"]["statement"], "answer"), "has no true signature"),
    "heads": (lambda row: (row["heads"][0], "hash"), "the heads have no true signature"),
    "end": (lambda row: (row, "digest"), "the end has no true signature"),
}
"""For each type of line, a text in it, and what the verifier reports after a change of one byte."""


@pytest.mark.parametrize("kind", CHANGES)
def test_one_changed_byte_shows(kind: str) -> None:
    rows = copied()
    place, words = CHANGES[kind]
    lines = [place(row) for row in rows if row["type"] == kind]
    line, field = next((line, field) for line, field in lines if line[field])
    line[field] = with_another_byte(line[field])
    faults = verified(rows).faults
    assert BY_THE_END in faults
    assert any(words in fault for fault in faults if fault != BY_THE_END), faults


def test_all_types_of_lines_are_there_and_changed() -> None:
    assert {row["type"] for row in ROWS} == CHANGES.keys()


@pytest.mark.parametrize(
    ("kind", "field", "words"),
    [
        ("entry", "at", "was changed"),
        ("entry", "signature", "has no true signature"),
        ("act", "details", "was changed"),
        ("act", "signature", "has no true signature"),
        ("receipt", "signature", "has no true signature"),
    ],
)
def test_each_line_is_sealed_by_itself(kind: str, field: str, words: str) -> None:
    """Entries, acts and jobs of all kinds: one byte of each line is changed at once, and each is reported."""
    rows = copied()
    changed = [row for row in rows if row["type"] == kind and row.get(field, " ") != "{}"]
    for row in changed:
        line = row["receipt"] if kind == "receipt" else row
        line[field] = with_another_byte(line[field])
    assert sum(words in fault for fault in verified(rows).faults) == len(changed)


@pytest.mark.parametrize(("kept", "field"), [("heads", "at"), ("receipts", "signature")])
def test_one_changed_byte_of_what_was_kept_shows(kept: str, field: str) -> None:
    changed = json.loads(json.dumps(KEPT))
    for each in changed[kept]:
        each[field] = with_another_byte(each[field])
    assert sum("no true signature" in fault for fault in verified(ROWS, changed).faults) == len(changed[kept])
