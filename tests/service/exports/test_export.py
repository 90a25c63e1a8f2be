"""Exports of the ledger, read on another machine: what was done to one shows, and one key is trusted."""

import contextlib
import csv
import hashlib
import io
import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from sqlalchemy.orm import Session

from privest.privacy.accounting import PrivacyTarget
from privest.privacy.mechanisms import noisy_sum
from privest_service.acts.models import ActChain
from privest_service.database import Database, now
from privest_service.exports.export import as_jsonl, chains_of, ended, heads, lines
from privest_service.exports.keys import Trusted
from privest_service.exports.lines import (
    LINE,
    AccountLine,
    ActLine,
    EntryLine,
    Head,
    Heads,
    JobLine,
    Line,
    MechanismLine,
    ReceiptLine,
    read,
    to_sign,
)
from privest_service.exports.verify import verify
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job
from privest_service.ledger import charges, entries, receipts
from privest_service.ledger.mechanisms import mechanism
from privest_service.ledger.models import Account
from privest_service.ledger.receipts import Receipt, ReceiptEntry
from privest_service.ledger.units import Charge, Limits
from privest_service.signing import Signer
from testing import penguin_files
from testing.books import Books
from testing.claims import claim_next
from testing.commands import PRIVEST, run
from testing.server import SIGNER, SPD3, Caller, Server, npy, private_key_pem, problem, spd

Rows = list[dict[str, Any]]

of_one_database = pytest.mark.parametrize("backend", ["sqlite"])
"""Marks tests of lines that were read: both databases give the same, which other tests here see."""

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
        assert faults(rows, key, kept) == []
        _exported[server.url] = owner, dataset, key, rows, kept
    return _exported[server.url]


def faults(rows: Rows, key: str, *kept: dict[str, Any]) -> list[str]:
    told = (LINE.validate_python(row) for row in rows)
    return verify(told, [key], [Heads.model_validate(each) for each in kept]).faults


@pytest.mark.parametrize("backend", ["postgresql"])
def test_an_export_is_verified_offline(
    exported: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, dataset, key, rows, kept = exported
    kinds = [row["type"] for row in rows]
    assert (kinds.count("account"), kinds.count("entry"), kinds.count("receipt")) == (3, 13, 5)
    assert kinds.count("job") == 3
    assert kinds[-2:] == ["heads", "end"]
    scopes = {row["scope"]: row["datasets"] for row in rows if row["type"] == "account"}
    assert scopes == {"owner": [], "dataset": [dataset], "analyst": [dataset]}
    (tmp_path / "ledger.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (tmp_path / "heads.json").write_text(json.dumps(kept))
    command = [PRIVEST, "verify-ledger", "--export", "ledger.jsonl"]
    bare = {"PATH": "/usr/bin:/bin"}  # no settings of any service
    monkeypatch.chdir(tmp_path)

    def verified(*more: str) -> subprocess.CompletedProcess[str]:
        return run([*command, *more], bare)

    found = verified("--key", key, "--heads", "heads.json")
    assert (found.returncode, found.stdout) == (
        0,
        f"3 accounts, 13 entries, {kinds.count('act')} acts, 5 receipts: 0 faults\n",
    )
    assert "with --key" in verified().stderr
    found = verified("--key", SIGNER.public_key)
    assert found.returncode == 1
    assert "signed with a key that was not given" in found.stdout


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--export", "gone.jsonl", "--key", SIGNER.public_key], "No such file"),
        (["--export", "torn.jsonl", "--key", SIGNER.public_key], "Line 2 is not a line of a ledger"),
        (
            ["--export", "empty.jsonl", "--key", SIGNER.public_key, "--heads", "torn.jsonl"],
            "does not hold signed heads",
        ),
    ],
    ids=["gone", "torn", "heads"],
)
def test_files_that_are_none_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], said: str
) -> None:
    whole = '{"type":"mechanism","digest":"","content":""}\n'
    (tmp_path / "torn.jsonl").write_text(whole + whole[:20])
    (tmp_path / "empty.jsonl").write_text("")
    monkeypatch.chdir(tmp_path)
    found = run([PRIVEST, "verify-ledger", *more], os.environ)
    assert found.returncode == 2
    assert said in found.stderr
    assert "Traceback" not in found.stderr


def test_a_mechanism_of_nonsense_is_no_crash() -> None:
    noiseless = replace(noisy_sum("gaussian", n=9, size=1, clip=1.0, loss=1.0), scale=0.0)
    told = mechanism("frechet-mean", "ds_x", PrivacyTarget(1.0, 1e-6), (noiseless,)).content
    for content in (told, "[]", "{}", "not json"):
        digest = hashlib.sha256(content.encode()).hexdigest()
        told = ended([MechanismLine(digest=digest, content=content), heads(SIGNER, [])], SIGNER)
        assert verify(told, [SIGNER.public_key]).faults == []  # of no entry


def entry(rows: Rows, place: int = 1) -> dict[str, Any]:
    return [row for row in rows if row["type"] == "entry" and row["kind"] == "debit"][place]


def changed(field: str, value: Any) -> Callable[[Rows], object]:
    return lambda rows: entry(rows).update({field: value})


def reordered(rows: Rows) -> None:
    one, two = (rows.index(entry(rows, place)) for place in (0, 1))
    rows[one], rows[two] = rows[two], rows[one]


def other_mechanism(rows: Rows) -> None:
    """Put a mechanism with another clip than was charged for."""
    mechanism = next(row for row in rows if row["type"] == "mechanism")
    mechanism["content"] = mechanism["content"].replace('"clip":', '"clip":1')


FORGED_FIELDS: dict[str, tuple[Any, str]] = {
    "account": (10**6, "which is not there"),
    "seq": (99, "entry 99 was changed"),
    "kind": ("void", "was changed"),
    "job": ("job_x", "was changed"),
    "mechanism": ("0" * 64, "was changed"),
    "epsilon": (1, "was changed"),
    "delta": (1, "was changed"),
    "mu_squared": (1, "was changed"),
    "slack": (1, "was changed"),
    "epsilon_spent": (1, "does not bear the sums"),
    "delta_spent": (1, "does not bear the sums"),
    "mu_squared_spent": (1, "does not bear the sums"),
    "slack_spent": (1, "does not bear the sums"),
    "queries": (9, "does not bear the sums"),
    "at": ("2020-01-01T00:00:00Z", "was changed"),
    "prev": ("0" * 64, "was changed"),
    "hash": ("0" * 64, "was changed"),
    "signer": (SIGNER.id, "a key that was not given"),
    "signature": ("A" * 86 + "==", "no true signature"),
}
"""A false value of each field of an entry, and what the verifier reports."""

FORGERIES: dict[str, tuple[Callable[[Rows], object], str]] = {
    field: (changed(field, value), words) for field, (value, words) in FORGED_FIELDS.items()
} | {
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
    "state": (lambda rows: of_kind(rows, "job").update(state="voided"), "is charged and voided"),
    "no state": (lambda rows: rows.remove(of_kind(rows, "job")), "is charged and is not there"),
    "no receipt": (lambda rows: rows.remove(of_kind(rows, "receipt")), "is committed and has no receipt"),
    "cut": (lambda rows: rows.pop(), "this ledger was cut"),
    "cut to its accounts": (lambda rows: cut_to(rows, rows[:2]), "this ledger was cut"),
    "cut and ended": (lambda rows: cut_to(rows, rows[:2] + rows[-1:]), "are not those that the end"),
    "cut before the heads": (lambda rows: rows.pop(-2), "are not those that the end"),
    "empty": (lambda rows: rows.clear(), "this ledger was cut"),
    "more after the end": (lambda rows: rows.append(rows[0]), "this ledger was cut"),
    "end": (lambda rows: rows[-1].update(lines=rows[-1]["lines"] - 1), "the end has no true signature"),
}


def of_kind(rows: Rows, kind: str) -> dict[str, Any]:
    return next(row for row in rows if row["type"] == kind)


def cut_to(rows: Rows, kept: Rows) -> None:
    rows[:] = kept


def test_every_field_of_an_entry_is_forged_below() -> None:
    assert FORGED_FIELDS.keys() == EntryLine.model_fields.keys() - {"type"}


@of_one_database
@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_was_done_to_an_export_shows(exported: Any, forgery: str) -> None:
    _, _, key, rows, _ = exported
    forged = json.loads(json.dumps(rows))
    change, words = FORGERIES[forgery]
    change(forged)
    assert forged != rows
    assert any(words in fault for fault in faults(forged, key)), faults(forged, key)


def test_a_plan_on_a_table_is_the_one_that_was_signed_for_or_it_shows(server: Server) -> None:
    """Its recipe says what the noise of each column was for: other bounds are another promise."""
    owner, analyst = server.owner(epsilon=50.0, delta=1e-4), server.analyst()
    dataset = owner.upload(penguin_files.CSV, penguin_files.SCHEMA, "penguins.csv").json()["id"]
    owner.grant(dataset, analyst)
    mean = owner.estimate(dataset, columns=["year", "sex"]).json()
    kinds = analyst.estimate(dataset, kind="logistic-regression", label="species", features=["year"]).json()
    key = owner.get("/v1/ledger/keys").json()["keys"][0]["public_key"]

    def told() -> Rows:
        answer = owner.get(f"/v1/owners/{owner.id}/ledger/export")
        return [json.loads(line) for line in answer.text.splitlines()]

    of_before = told()
    assert faults(of_before, key) == []
    said = {row["job"]: row["plan"] for row in of_before if row["type"] == "job"}
    assert said == {job["id"]: job["receipt"]["statement"]["plan"] for job in (mean, kinds)}
    database = Database(server.database_url)

    def stored(job: str, plan: str) -> None:
        database.run(lambda session: setattr(session.get_one(Job, job), "plan", plan))

    for job in (mean["id"], kinds["id"]):
        with database.read() as session:
            plan = session.get_one(Job, job).plan
        (year,) = [each for each in json.loads(plan)["shape"]["recipe"]["columns"] if each["name"] == "year"]
        forged = json.loads(plan)
        place = forged["shape"]["recipe"]["columns"].index(year)
        forged["shape"]["recipe"]["columns"][place] |= {"low": year["low"] - 1}
        stored(job, json.dumps(forged))
        words = f"the plan of job {job} is not the one that its receipt was signed for"
        assert faults(told(), key) == [words]
        stored(job, plan)
    database.close()
    assert faults(told(), key) == []
    for row in of_before:  # an export of before: nothing is said of plans
        if row["type"] == "job":
            del row["plan"]
    assert faults(of_before, key) == ["the lines are not those that the end was signed over"]


def ends_of(told: Iterable[Line]) -> Heads:
    """Signed heads of the accounts of a ledger, as these say themselves, and of its acts."""
    accounts = [row for row in told if isinstance(row, AccountLine)]
    acts = {row.chain: row for row in told if isinstance(row, ActLine)}
    return heads(
        SIGNER,
        [Account(id=row.account, seq=row.seq, head=row.head) for row in accounts],
        [ActChain(id=row.chain, seq=row.seq, head=row.hash) for row in acts.values()],
    )


def receipts_of(told: list[Line], *, owners: bool) -> list[Receipt]:
    """All receipts of one of the two kinds."""
    found = [line.receipt for line in told if isinstance(line, ReceiptLine)]
    return [receipt for receipt in found if bool(receipt.statement.entries) == owners]


def naming(told: list[Line], chosen: Callable[[Receipt, Receipt], list[ReceiptEntry]]) -> list[Line]:
    """The second job's receipts, made anew with entries chosen from the first one's and from its own."""
    one, two = receipts_of(told, owners=True)
    forged = receipts._signed(SIGNER, two.statement.model_copy(update={"entries": chosen(one, two)}))
    anew = {two.statement.job: {True: forged, False: receipts.for_analyst(SIGNER, forged)}}
    return [
        ReceiptLine(receipt=anew[line.receipt.statement.job][bool(line.receipt.statement.entries)])
        if isinstance(line, ReceiptLine) and line.receipt.statement.job in anew
        else line
        for line in told
    ]


def twice(told: list[Line], *, owners: bool) -> list[Line]:
    chosen = receipts_of(told, owners=owners)
    return [*told[:-1], *(ReceiptLine(receipt=receipt) for receipt in chosen), told[-1]]


def without(told: list[Line], kind: type, *, owners: bool = False) -> list[Line]:
    """No heads, or no receipts of analysts."""
    return [
        line
        for line in told
        if not isinstance(line, kind)
        or (isinstance(line, ReceiptLine) and bool(line.receipt.statement.entries) != owners)
    ]


def other_heads(told: list[Line], change: Callable[[list[Head]], list[Head]]) -> list[Line]:
    last = told[-1]
    assert isinstance(last, Heads)
    forged = last.model_copy(update={"heads": change(last.heads)})
    forged.signature = SIGNER.sign(to_sign(forged))
    return [*told[:-1], forged]


SIGNED_FORGERIES: dict[str, tuple[Callable[[list[Line]], list[Line]], str]] = {
    "another job's": (lambda told: naming(told, lambda one, _: one.statement.entries), "does not name"),
    "one of its debits": (
        lambda told: naming(told, lambda _, two: two.statement.entries[:1]),
        "does not name",
    ),
    "a debit twice": (
        lambda told: naming(told, lambda _, two: [*two.statement.entries, two.statement.entries[0]]),
        "does not name",
    ),
    "another's beside its own": (
        lambda told: naming(told, lambda one, two: [*two.statement.entries, *one.statement.entries]),
        "does not name",
    ),
    "every receipt twice": (lambda told: twice(told, owners=True), "two receipts for its owner"),
    "every analyst's twice": (lambda told: twice(told, owners=False), "two receipts for an analyst"),
    "no analysts' receipts": (lambda told: without(told, ReceiptLine), "has no analyst's receipt"),
    "a job told twice": (
        lambda told: [*(line for line in told if isinstance(line, JobLine)), *told],
        "is told twice",
    ),
    "no heads": (lambda told: without(told, Heads), "there are no heads"),
    "heads twice": (lambda told: [*told, told[-1]], "there are 2 heads"),
    "heads of some": (lambda told: other_heads(told, lambda all_: all_[1:]), "not the ends of all chains"),
    "earlier heads": (
        lambda told: other_heads(told, lambda all_: [first_of(told, head.account) for head in all_]),
        "not the ends of all chains",
    ),
}
"""Forgeries by somebody who has the signing key and signs an end anew, by name."""


def first_of(told: list[Line], account: int) -> Head:
    """Where the chain of an account began."""
    found = next(line for line in told if isinstance(line, EntryLine) and line.account == account)
    return Head(account=account, seq=found.seq, hash=found.hash)


def two_jobs(database: Database) -> list[Line]:
    """All but the end of a ledger with two jobs of three debits, both committed."""
    books = Books(database)
    accounts = [books.open(Limits("basic", 10**9, 10**9, 0, 0)) for _ in range(3)]
    for _ in range(2):
        job = books.reserve(dict.fromkeys(accounts, Charge(1, 1, 1, 1)))
        with database.write() as session:
            assert claim_next(session, timedelta(hours=1)) is not None
            assert charges.commit(session, job, "{}")
    with database.read(snapshot=True) as session:
        return list(lines(session))[:-1]


def signed_faults(told: Iterable[Line], *shown: Receipt) -> list[str]:
    """Faults found in a ledger whose end is signed anew; the mechanisms are made up here."""
    found = verify(ended(told, SIGNER), [SIGNER.public_key], shown=shown).faults
    return [fault for fault in found if "mechanism" not in fault]


@pytest.mark.few(4)
@of_one_database
@pytest.mark.parametrize("forgery", SIGNED_FORGERIES)
def test_what_was_done_and_signed_anew_shows(database: Database, forgery: str) -> None:
    told = two_jobs(database)
    assert signed_faults(told) == []
    change, words = SIGNED_FORGERIES[forgery]
    found = signed_faults(change(told))
    assert any(words in fault for fault in found), found


def test_a_kept_receipt_shows_that_a_job_was_committed(database: Database) -> None:
    """Told as failed by somebody with the key, nothing else in the ledger is against it."""
    told = two_jobs(database)
    kept = receipts_of(told, owners=True)[1], receipts_of(told, owners=False)[1]
    job = kept[0].statement.job
    forged = [
        line.model_copy(update={"state": "failed"}) if isinstance(line, JobLine) and line.job == job else line
        for line in told
        if not (isinstance(line, ReceiptLine) and line.receipt.statement.job == job)
    ]
    for receipt in kept:
        assert signed_faults(told, receipt) == []
        assert signed_faults(forged) == []
        assert len(signed_faults(forged, receipt)) == 1


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-(2**70), 2**70, 1e300, [], {}, "\ud800", "A" * 44, "é", "debit", "void", "limit"]),
    st.sampled_from(
        ["2026-01-31T12:00:00", "2026-01-31", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
    ),
    st.text(max_size=5),
)


def places_of(value: Any, *way: Any) -> Iterator[tuple[Any, ...]]:
    """The ways to all that is in a line."""
    if way:
        yield way
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places_of(part, *way, key)


def mutated(rows: Rows, draw: Callable[[st.SearchStrategy[Any]], Any]) -> list[str]:
    """The text of an export, with one or two values changed or gone."""
    rows = json.loads(json.dumps(rows))
    for _ in range(draw(st.integers(1, 2))):
        row = draw(st.sampled_from(rows))
        *way, last = draw(st.sampled_from(list(places_of(row))))
        for key in way:
            row = row[key]
        if draw(st.booleans()):
            row[last] = draw(JUNK)
        else:
            del row[last]
    for row in rows:
        if row.get("type") == "mechanism" and isinstance(row.get("content"), str):
            row["digest"] = hashlib.sha256(row["content"].encode(errors="replace")).hexdigest()
    return [json.dumps(row) for row in rows]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_no_text_makes_the_verifier_crash(database: Database) -> None:
    rows = [json.loads(line) for line in as_jsonl(ended(two_jobs(database), SIGNER))]

    @settings(max_examples=150, deadline=None)
    @given(st.data())
    def fuzz(data: st.DataObject) -> None:
        with contextlib.suppress(ValueError):  # says in words that this is no ledger
            verify(read(mutated(rows, data.draw)), [SIGNER.public_key])

    fuzz()


@pytest.mark.parametrize("kind", ["entry", "account", "heads", "end", "receipt"])
@pytest.mark.parametrize("backend", ["sqlite"])
def test_moments_without_a_zone_and_sums_untold_are_no_crash(database: Database, kind: str) -> None:
    rows = [json.loads(line) for line in as_jsonl(ended(two_jobs(database), SIGNER))]
    row = of_kind(rows, kind)
    if kind == "account":
        row["spent"] = row["limit"] = {}
    else:
        (row["receipt"]["statement"] if kind == "receipt" else row)["at"] = "2026-01-31T12:00:00"
    keys = [f"{SIGNER.public_key}=2100-01-01"]
    if kind == "entry":
        with pytest.raises(ValueError, match="is not a line of a ledger"):
            verify(read(map(json.dumps, rows)), keys)
    else:
        assert verify(read(map(json.dumps, rows)), keys).faults
    assert not Trusted.read(keys[0]).holds("2026-01-31T12:00:00")


def test_a_chain_cut_and_made_whole_again_shows_in_heads_kept_elsewhere(database: Database) -> None:
    """A forger with the key can write another history, but what was published of the first one stays."""
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
    kept = before[-2]
    assert isinstance(kept, Heads)
    gone = next(row.job for row in before if row.type == "entry" and (row.account, row.seq) == (account, 4))
    short = [row for row in short if not (row.type == "job" and row.job == gone)]

    def found(*kept: Heads) -> list[str]:
        told = verify(ended([*short[:-2], ends_of(short)], SIGNER), [SIGNER.public_key], kept).faults
        return [fault for fault in told if "mechanism" not in fault]

    assert found() == []
    assert any("does not go through its head at 4" in fault for fault in found(kept))


def told_by(database: Database, forged: Callable[[Session], object]) -> list[str]:
    """What the verifier finds after somebody with the key and the database in hand wrote to it."""
    books = Books(database)
    account = books.open(Limits("basic", 10**9, 10**9, 0, 0))
    reserved = [books.reserve({account: Charge(1, 1, 1, 1)}) for _ in range(2)]
    with database.write() as session:
        assert [claim_next(session, timedelta(hours=1)) is not None for _ in reserved] == [True] * 2
        assert charges.commit(session, reserved[0], "{}")
        assert jobs.fail(session, reserved[1])
    assert books.faults() == []
    with database.write() as session:
        forged(session)
    return books.faults()


def given_back(state: str) -> Callable[[Session], object]:
    """A void of a job that is over, signed by the service's own key."""

    def forge(session: Session) -> None:
        job = session.scalars(select(Job).where(Job.state == state)).one()
        (debit,) = entries.debits_of(session, job.id)
        held = entries.locked(session, debit.account_id)
        back = -Charge(debit.epsilon, debit.delta, debit.mu_squared, debit.slack)
        entries.move_by(held, back)
        entries.append(session, [held], "void", job.id, None, [back])

    return forge


@pytest.mark.parametrize("state", ["committed", "failed"])
def test_a_signed_void_of_a_job_that_is_over_shows(database: Database, state: str) -> None:
    (fault,) = told_by(database, given_back(state))
    assert f"cost was given back, and it is {state}" in fault


def test_a_void_of_a_job_with_a_receipt_shows_whatever_its_state_is_told_to_be(database: Database) -> None:
    def told(line: Line) -> Line:
        return line.model_copy(update={"state": "voided"}) if isinstance(line, JobLine) else line

    told_by(database, given_back("committed"))
    with database.read(snapshot=True) as session:
        forged = ended([told(line) for line in lines(session)][:-1], SIGNER)
        faults = verify(forged, [SIGNER.public_key]).faults
    assert sum("was given back" in fault for fault in faults) == 1
    assert sum("is voided and has a receipt" in fault for fault in faults) == 1


class Rotated:
    """A ledger that was signed with one key, and goes on under another."""

    def __init__(self, url: str) -> None:
        self.url, self.retired, self.present = url, SIGNER, Signer(private_key_pem())
        self.books = Books(Database(url, signer=self.retired))
        self.busy, self.quiet = (self.books.open(Limits("basic", 10**9, 10**9, 0, 0)) for _ in range(2))
        for account in (self.busy, self.quiet):
            self.books.reserve({account: Charge(1, 1, 1, 1)})
        self.end = now()
        self.goes_on(self.busy)
        with self.books.database.read() as session:
            accounts = list(session.scalars(select(Account).order_by(Account.id)))
            self.heads = heads(self.present, accounts, list(session.scalars(chains_of(None))))

    def goes_on(self, account: int) -> None:
        """A charge under the present key."""
        self._by(self.present)
        self.books.reserve({account: Charge(1, 1, 1, 1)})

    def forged(self, account: int, monkeypatch: pytest.MonkeyPatch, at: datetime) -> None:
        """A charge that is signed with the retired key, and bears a moment of somebody's choice."""
        self._by(self.retired)
        with monkeypatch.context() as patch:
            patch.setattr(entries, "now", lambda: at)
            self.books.reserve({account: Charge(1, 1, 1, 1)})

    def faults(self, *kept: Heads, until: str | None = None) -> list[str]:
        """Faults found in a ledger that is signed with the present key."""
        self._by(self.present)
        keys = [self.present.public_key, f"{self.retired.public_key}={until or self.end.isoformat()}"]
        with self.books.database.read(snapshot=True) as session:
            found = verify(lines(session), keys, kept).faults
        self.books.database.close()
        return [fault for fault in found if "mechanism" not in fault]

    def _by(self, signer: Signer) -> None:
        self.books.database.close()
        self.books.database = Database(self.url, signer=signer)


@pytest.fixture
def rotated(database_url: str) -> Iterator[Rotated]:
    made = Rotated(database_url)
    yield made
    made.books.database.close()


def test_a_retired_key_counts_for_what_it_signed_before_its_end(rotated: Rotated) -> None:
    assert rotated.faults() == []
    assert rotated.faults(rotated.heads) == []
    early = (rotated.end - timedelta(days=1)).isoformat()
    assert sum("was retired" in fault for fault in rotated.faults(until=early)) == 8  # acts, too


@pytest.mark.parametrize(
    ("account", "back", "seen"),
    [
        ("busy", 0.0, "an entry"),
        ("busy", 3600.0, "an entry"),
        ("quiet", 0.0, "an entry"),
        ("quiet", 3600.0, "heads"),
    ],
)
def test_a_retired_key_signs_nothing_new(
    rotated: Rotated, monkeypatch: pytest.MonkeyPatch, account: str, back: float, seen: str
) -> None:
    """Whatever moment it writes: later entries of the account tell, or heads that were kept since."""
    number = rotated.busy if account == "busy" else rotated.quiet
    rotated.forged(number, monkeypatch, (rotated.end if back else now()) - timedelta(seconds=back))
    entry = f"entry {4 if account == 'busy' else 3} is signed with a key that was retired"

    def told(faults: list[str]) -> bool:
        return any(fault.startswith(f"account {number}, ") and entry in fault for fault in faults)

    assert told(rotated.faults(rotated.heads))
    assert told(rotated.faults()) == (seen == "an entry")


@pytest.mark.parametrize("what", ["receipt", "heads", "end"])
def test_a_retired_key_signs_no_receipt_no_heads_and_no_end(rotated: Rotated, what: str) -> None:
    rotated._by(rotated.retired)
    books, keys = (
        rotated.books,
        [rotated.present.public_key, f"{SIGNER.public_key}={rotated.end.isoformat()}"],
    )
    with books.database.write() as session:
        job = claim_next(session, timedelta(hours=1))
        assert job is not None
        charges.commit(session, job.id, "{}")
    rotated._by(rotated.present)
    with books.database.read(snapshot=True) as session:
        told = list(lines(session))[:-1]
        if what == "heads":
            accounts = list(session.scalars(select(Account).order_by(Account.id)))
            told[-1] = heads(rotated.retired, accounts, list(session.scalars(chains_of(None))))
    if what != "receipt":
        told = [line for line in told if not isinstance(line, ReceiptLine)]
    faults = verify(ended(told, rotated.retired if what == "end" else rotated.present), keys).faults
    assert any(fault.startswith(f"the {what}") and "no true signature" in fault for fault in faults), faults


def test_keys_are_read_or_refused_in_words() -> None:
    key = SIGNER.public_key
    assert Trusted.read(f"{key}=2026-01-31T12:00Z").until == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert Trusted.read(f"{key}=2026-01-31").until == datetime(2026, 1, 31, tzinfo=UTC)
    for told, words in (
        ("nonsense", "base64"),
        (f"{key}=", "base64"),
        (f"{key}=yesterday", "must be a moment"),
    ):
        with pytest.raises(ValueError, match=words):
            verify([], [told])
    with pytest.raises(ValueError, match="Give the end of each other one"):
        verify([], [key, Signer(private_key_pem()).public_key])


def test_keys_rotate_and_both_are_named(database_url: str) -> None:
    second = Signer(private_key_pem())
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

    assert found(f"{SIGNER.public_key}={now().isoformat()}", second.public_key) == []
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
