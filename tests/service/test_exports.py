"""Exports of the ledger, read on another machine: what was done to one shows, and one key is trusted."""

import csv
import hashlib
import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from directly import Books

from harness import SIGNER, SPD3, Caller, Server, npy, problem, spd
from privest.privacy.certificates import noisy_sum
from privest.privacy.cost import PrivacyTarget
from privest_service.database import Database
from privest_service.ledger.export import LINE, Heads, MechanismLine, as_jsonl, lines
from privest_service.ledger.mechanisms import mechanism
from privest_service.ledger.receipts import Signer
from privest_service.ledger.units import Charge, Limits
from privest_service.ledger.verify import verify

Rows = list[dict[str, Any]]

_exported: dict[str, tuple[Caller, str, str, Rows, dict[str, Any]]] = {}


@pytest.fixture
def exported(server: Server) -> tuple[Caller, str, str, Rows, dict[str, Any]]:
    """An owner with a history, a dataset, the service's key, the export and its heads of a moment before."""
    if server.url not in _exported:
        owner, analyst = server.owner(epsilon=5.0, delta=1e-4), server.analyst()
        dataset = owner.dataset()
        owner.grant(dataset, analyst, epsilon=2.0, delta=1e-5)
        for caller in (owner, analyst, analyst):
            assert caller.estimate(dataset, epsilon=0.2, delta=1e-7, reuse=False).status_code == 200
        kept = owner.get(f"/v1/owners/{owner.id}/ledger/heads").json()
        owner.patch(f"/v1/owners/{owner.id}/budget", json={"epsilon": 6.0})
        key = owner.get("/v1/ledger/keys").json()["keys"][0]["public_key"]
        answer = owner.get(f"/v1/owners/{owner.id}/ledger/export")
        assert answer.headers["content-type"].startswith("application/jsonl")
        rows = [json.loads(line) for line in answer.text.splitlines()]
        _exported[server.url] = owner, dataset, key, rows, kept
    return _exported[server.url]


def faults(rows: Rows, key: str, *kept: dict[str, Any]) -> list[str]:
    told = (LINE.validate_python(row) for row in rows)
    return verify(told, [key], [Heads.model_validate(each) for each in kept]).faults


@pytest.mark.parametrize("backend", ["postgresql"])
def test_an_export_is_verified_offline(exported: Any, tmp_path: Path) -> None:
    _, dataset, key, rows, kept = exported
    kinds = [row["type"] for row in rows]
    assert (kinds.count("account"), kinds.count("entry"), kinds.count("receipt")) == (3, 13, 3)
    assert kinds[-1] == "heads"
    scopes = {row["scope"]: row["datasets"] for row in rows if row["type"] == "account"}
    assert scopes == {"owner": [], "dataset": [dataset], "analyst": [dataset]}
    (tmp_path / "ledger.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (tmp_path / "heads.json").write_text(json.dumps(kept))
    command = [sys.executable, "-m", "privest_service", "verify-ledger", "--export", "ledger.jsonl"]
    bare = {"PATH": "/usr/bin:/bin"}  # no settings of any service

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *more], cwd=tmp_path, env=bare, capture_output=True, text=True, check=False
        )

    found = run("--key", key, "--heads", "heads.json")
    assert (found.returncode, found.stdout) == (0, "3 accounts, 13 entries, 3 receipts: 0 faults\n")
    assert "with --key" in run().stderr
    assert run("--key", SIGNER.public_key).returncode == 1
    assert "signed with a key that was not given" in run("--key", SIGNER.public_key).stdout


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--export", "gone.jsonl", "--key", SIGNER.public_key], "No such file"),
        (["--export", "torn.jsonl", "--key", SIGNER.public_key], "line 2 is no line of a ledger"),
        (["--export", "empty.jsonl", "--key", SIGNER.public_key, "--heads", "torn.jsonl"], "no signed heads"),
    ],
    ids=["gone", "torn", "heads"],
)
def test_files_that_are_none_are_named(tmp_path: Path, more: list[str], said: str) -> None:
    whole = '{"type":"mechanism","digest":"","content":""}\n'
    (tmp_path / "torn.jsonl").write_text(whole + whole[:20])
    (tmp_path / "empty.jsonl").write_text("")
    command = [sys.executable, "-m", "privest_service", "verify-ledger", *more]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert said in found.stderr
    assert "Traceback" not in found.stderr


def test_a_mechanism_of_nonsense_is_no_crash() -> None:
    noiseless = replace(noisy_sum("gaussian", n=9, size=1, clip=1.0, loss=1.0), scale=0.0)
    told = mechanism("frechet-mean", "ds_x", PrivacyTarget(1.0, 1e-6), (noiseless,)).content
    for content in (told, "[]", "{}", "not json"):
        digest = hashlib.sha256(content.encode()).hexdigest()
        assert verify([MechanismLine(digest=digest, content=content)], []).faults == []  # of no entry


def entry(rows: Rows, place: int = 1) -> dict[str, Any]:
    return [row for row in rows if row["type"] == "entry" and row["kind"] == "debit"][place]


def changed(field: str, value: Any) -> Callable[[Rows], object]:
    return lambda rows: entry(rows).update({field: value})


def reordered(rows: Rows) -> None:
    one, two = (rows.index(entry(rows, place)) for place in (0, 1))
    rows[one], rows[two] = rows[two], rows[one]


def other_mechanism(rows: Rows) -> None:
    """Of another clip than was charged for."""
    mechanism = next(row for row in rows if row["type"] == "mechanism")
    mechanism["content"] = mechanism["content"].replace('"clip":', '"clip":1')


FORGERIES: dict[str, tuple[Callable[[Rows], object], str]] = {
    "amount": (changed("mu_squared", 1), "was changed"),
    "moment": (changed("at", "2020-01-01T00:00:00Z"), "was changed"),
    "job": (changed("job", "job_x"), "was changed"),
    "signature": (changed("signature", "A" * 86 + "=="), "no true signature"),
    "signer": (changed("signer", SIGNER.id), "a key that was not given"),
    "removed": (lambda rows: rows.remove(entry(rows)), "does not follow"),
    "inserted": (lambda rows: rows.insert(rows.index(entry(rows)), dict(entry(rows))), "does not follow"),
    "reordered": (reordered, "does not follow"),
    "mechanism": (other_mechanism, "the mechanism of entry 2 was changed"),
    "no mechanism": (
        lambda rows: rows.remove(next(row for row in rows if row["type"] == "mechanism")),
        "is not there",
    ),
    "spent": (lambda rows: rows[0]["spent"].update(mu_squared=0), "is not the sum"),
    "limit": (lambda rows: rows[0]["limit"].update(mu_squared=2**60), "not the one last entered"),
    "receipt": (
        lambda rows: next(row for row in rows if row["type"] == "receipt")["receipt"]["statement"].update(
            answer="0" * 64
        ),
        "no true signature",
    ),
    "account": (
        lambda rows: rows.remove(next(row for row in rows if row["type"] == "account")),
        "is not there",
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_was_done_to_an_export_shows(exported: Any, forgery: str) -> None:
    _, _, key, rows, kept = exported
    assert faults(rows, key, kept) == []
    forged = json.loads(json.dumps(rows))
    change, words = FORGERIES[forgery]
    change(forged)
    assert forged != rows
    assert any(words in fault for fault in faults(forged, key)), faults(forged, key)


def test_a_chain_cut_and_made_whole_again_shows_in_heads_kept_elsewhere(database: Database) -> None:
    """With the key in hand one can write another history; what was published of the first one stays."""
    books = Books(database)
    account = books.open(Limits("basic", 10**9, 10**9, 0, 0))
    for _ in range(3):
        books.reserve({account: Charge(1, 1, 1, 1)})
    with database.read(snapshot=True) as session:
        before = list(lines(session))
    short = [row for row in before if not (row.type == "entry" and row.seq == 4)]
    for row in short:
        if row.type == "account" and row.account == account:
            last = next(e for e in short if e.type == "entry" and (e.account, e.seq) == (account, 3))
            row.seq, row.head = 3, last.hash
            row.spent, row.queries = dict.fromkeys(row.spent, 2), 2
    kept = before[-1]
    assert isinstance(kept, Heads)

    def found(*heads: Heads) -> list[str]:
        told = verify(short[:-1], [SIGNER.public_key], heads).faults
        return [fault for fault in told if "mechanism" not in fault]

    assert found() == []
    assert any("does not go through its head at 4" in fault for fault in found(kept))


def test_keys_rotate_and_both_are_named(database_url: str) -> None:
    second = Signer(
        Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    first = Database(database_url, signer=SIGNER)
    books = Books(first)
    account = books.open(Limits("basic", 10**9, 10**9, 0, 0))
    books.reserve({account: Charge(1, 1, 1, 1)})
    first.close()
    books.database = Database(database_url, signer=second)
    books.reserve({account: Charge(1, 1, 1, 1)})
    with books.database.read(snapshot=True) as session:
        told = [LINE.validate_json(line) for line in as_jsonl(lines(session))]
    books.database.close()

    def found(*keys: str) -> list[str]:
        return [fault for fault in verify(told, keys).faults if "mechanism" not in fault]

    assert found(SIGNER.public_key, second.public_key) == []
    assert any(f"not given, {second.id}" in fault for fault in found(SIGNER.public_key))
    assert any(f"not given, {SIGNER.id}" in fault for fault in found(second.public_key))


def test_the_table_has_every_entry_and_no_export_a_fingerprint(exported: Any) -> None:
    owner, dataset, _, rows, _ = exported
    path = f"/v1/owners/{owner.id}/ledger/export"
    answer = owner.get(path, params={"format": "csv"})
    table = list(csv.DictReader(io.StringIO(answer.text)))
    entries = [row for row in rows if row["type"] == "entry"]
    assert [(int(row["account"]), int(row["seq"]), row["hash"]) for row in table] == [
        (row["account"], row["seq"], row["hash"]) for row in entries
    ]
    fingerprint = owner.get(f"/v1/datasets/{dataset}").json()["fingerprint"]
    assert fingerprint
    assert fingerprint not in answer.text + json.dumps(rows)


def test_exports_and_heads_are_the_owner_s(server: Server, exported: Any) -> None:
    owner = exported[0]
    other, analyst = server.owner(), server.analyst()
    for name in ("export", "heads"):
        path = f"/v1/owners/{owner.id}/ledger/{name}"
        problem(other.get(path), 404, "not-found")
        problem(analyst.get(path), 403, "forbidden")
        assert server.admin.get(path).status_code == 200
    problem(owner.get(f"/v1/owners/{owner.id}/ledger/export", params={"format": "pdf"}), 422, "invalid")


def test_datasets_declared_to_hold_the_same_rows_have_one_account(server: Server) -> None:
    owner = server.owner()
    one = owner.upload(npy(spd(60)), SPD3).json()["id"]
    two = owner.upload(npy(spd(60)), SPD3 | {"radius": 2.0}, rows_of=one).json()["id"]
    rows = [json.loads(x) for x in owner.get(f"/v1/owners/{owner.id}/ledger/export").text.splitlines()]
    assert [row["datasets"] for row in rows if row["type"] == "account"] == [[], [one, two]]
