"""Pages of the dashboard on ledgers of a thousand and a hundred thousand entries: by HTTP and in Chromium."""

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

import httpx
import numpy as np
from playwright.sync_api import Browser
from sqlalchemy import insert, select, text, update
from sqlalchemy.orm import Session

from benchmarks.ledger_load import percentile, postgres
from benchmarks.report import publish, spread, table
from privest.privacy.accounting import PrivacyTarget
from privest_service.acts.chain import act_hash
from privest_service.acts.chain import to_sign as act_to_sign
from privest_service.acts.models import Act, ActChain
from privest_service.database import Database
from privest_service.database.migrate import migrate
from privest_service.database.tables import new_id
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset
from privest_service.datasets.schemas import SCHEMA
from privest_service.estimates import worker
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.plans import run_plan
from privest_service.jobs.models import IdempotencyKey, Job, Transition
from privest_service.ledger import entries, receipts
from privest_service.ledger import service as ledger
from privest_service.ledger.chain import entry_hash, to_sign
from privest_service.ledger.mechanisms import mechanism
from privest_service.ledger.models import Account, Entry, Tally
from privest_service.ledger.receipts import ReceiptEntry, receipt_of
from privest_service.ledger.service import create_owner
from privest_service.ledger.units import Charge, Limits, moved
from privest_service.security.models import Owner
from privest_service.security.service import create_analyst
from privest_service.signing import Signer, new_signing_key
from testing.browser import chromium, find_chromium
from testing.server import LABELLED, Server

SIZES = (1, 1_000, 100_000)
"""Entries of the owner's account; the pages of the first are as good as empty."""
PAGES = (
    "/dashboard",
    "/dashboard/ledger",
    "/dashboard/learned",
    "/dashboard/ledger?state=failed",
    "/dashboard/ledger/1",
    "/dashboard/datasets",
    "/dashboard/analysts",
    "/dashboard/budget",
    "/dashboard/acts",
    "/dashboard/acts?kind=budget.frozen",
    "/dashboard/notices",
    "/dashboard/questions",
    "/dashboard/answers",
    "/dashboard/keys",
)
ANALYSTS_PAGES = ("/dashboard/granted", "/dashboard/answers")
REQUESTS, LOADS = 20, 5
_ANALYSTS, _BATCH, _DAYS = 3, 2_000, 365
_BUDGET = Limits.of(3.0, 1e-5, "gdp")
_EPSILONS, _DELTA = (0.004, 0.01), 1e-9  # a hundred thousand of these are half of the budget
_RARE = 1000
"""One act of so many is a freeze, which a search has to look far back for."""
_ENDS = {"committed": 0.95, "failed": 0.03, "voided": 0.02}
_ASKED: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("frechet-mean", {"kind": "points", "manifold": {"name": "spd", "dim": 2}, "radius": 1.0}, {}),
    ("frechet-mean", {"kind": "points", "manifold": {"name": "spd", "dim": 8}, "radius": 1.0}, {}),
    ("robust-pca", {"kind": "vectors", "dim": 6}, {"rank": 2}),
    ("logistic-regression", LABELLED, {}),
)
"""What is asked of each dataset: the kind of estimate, the schema and the choices."""


# The ledger


class Chain:
    """The entries of one account, written in memory."""

    def __init__(self, account: Account, signer: Signer) -> None:
        self.id, self.seq, self.head = account.id, account.seq, account.head
        self.sums = {name: getattr(account, name) for name in entries.SUMS_AFTER}
        """The sums as they are stored, after the last entry."""
        self._signer = signer

    def append(self, kind: str, job: str, why: str | None, amounts: Charge, at: datetime) -> Entry:
        """Write the next entry."""
        self.seq += 1
        self.sums["queries"] += entries.QUERIES[kind]
        for name, amount in vars(amounts).items():
            self.sums[f"{name}_spent"] = moved(self.sums[f"{name}_spent"], amount)
        entry = Entry(
            account_id=self.id,
            seq=self.seq,
            kind=kind,
            job_id=job,
            mechanism=why,
            **vars(amounts),
            **self.sums,
            at=at,
            prev=self.head,
            signer=self._signer.id,
        )
        entry.hash = self.head = entry_hash(entry)
        entry.signature = self._signer.sign(to_sign(entry.hash))
        return entry


@dataclass(frozen=True, eq=False)
class Question:
    """What one of the askers asks of one dataset, again and again."""

    values: dict[str, Any]
    """Column values that all jobs of the question share."""
    result: str
    why: str
    charge: Charge
    lineage: str
    chains: tuple[Chain, ...]


@contextmanager
def _clock(begun: datetime) -> Iterator[list[datetime]]:
    """While the ledger takes the one moment in this list for the present one."""
    moment = [begun]
    with ExitStack() as stack:
        for module in (entries, receipts):
            stack.enter_context(patch.object(module, "now", lambda: moment[0]))
        yield moment


def build(database: Database, signer: Signer, entries: int) -> tuple[str, str]:
    """Write the ledger of a new owner, whose own account has so many entries; its datasets have no rows.

    Returns:
        the owner's key, and that of an analyst who asked.
    """
    since = datetime.now(UTC) - timedelta(days=_DAYS)
    rng = np.random.default_rng(0)
    with _clock(since) as clock:
        with database.write() as session:
            keys, questions, chains = _owner(session, signer, since)
        step = timedelta(days=_DAYS) / entries
        charged = Counter[Question]()
        while chains[0].seq < entries:
            jobs: list[dict[str, Any]] = []
            written: list[Entry] = []
            while chains[0].seq < entries and len(jobs) < _BATCH:
                clock[0] = since + (chains[0].seq + 0.5 * rng.random()) * step
                asked = questions[rng.integers(len(questions))]
                charged[asked] += _ask(asked, clock[0], signer, rng, jobs, written)
            with database.write() as session:
                _store(session, jobs, written, chains)
        with database.write() as session:
            _write_acts(session, signer, entries, since)
            _count(session, chains[0].id, charged, since, clock[0])
    return keys


def _count(
    session: Session, account: int, charged: Counter[Question], first: datetime, last: datetime
) -> None:
    """Write the tallies of an owner's account."""
    found = dict[tuple[str, str, str], Tally]()
    for question, times in charged.items():
        key = (question.values["submitter_id"], question.lineage, question.values["kind"])
        tally = found.setdefault(
            key,
            Tally(
                **dict(zip(("submitter_id", "lineage", "kind"), key, strict=True)),
                **dict.fromkeys(("queries", *entries.AMOUNTS), 0),
                account_id=account,
                first_at=first,
                last_at=last,
            ),
        )
        tally.queries += times
        for name in entries.AMOUNTS:
            setattr(tally, name, getattr(tally, name) + times * getattr(question.charge, name))
    session.add_all(found.values())


def _write_acts(session: Session, signer: Signer, number: int, since: datetime) -> None:
    """Have so many acts in the chain of the latest owner: sign-ins, and now and then a freeze."""
    owner = session.scalars(select(Owner.id).order_by(Owner.created_at.desc()).limit(1)).one()
    chain = session.get_one(ActChain, owner)
    columns = [column.key for column in Act.__table__.columns]
    step, written = timedelta(days=_DAYS) / number, list[dict[str, Any]]()
    for place in range(chain.seq, number):
        chain.seq = place + 1
        act = Act(
            chain=owner,
            seq=chain.seq,
            kind="budget.frozen" if place % _RARE == 0 else "signed-in",
            role="owner",
            principal=owner,
            key="key_of_the_owner",
            details="{}",
            at=since + place * step,
            prev=chain.head,
            signer=signer.id,
        )
        act.hash = chain.head = act_hash(act)
        act.signature = signer.sign(act_to_sign(act.hash))
        written.append({name: getattr(act, name) for name in columns})
    if written:
        session.execute(insert(Act.__table__), written)  # pyright: ignore[reportArgumentType]


def _owner(
    session: Session, signer: Signer, since: datetime
) -> tuple[tuple[str, str], list[Question], list[Chain]]:
    """An owner, its datasets and grants.

    Returns:
        its key and an analyst's, what is asked, and all chains, that of the owner first.
    """
    owner, key = create_owner(session, "A busy owner", _BUDGET)
    owner.created_at = since
    made = [create_analyst(session, f"Analyst {number}") for number in range(_ANALYSTS)]
    analysts = [analyst.id for analyst, _ in made]
    session.flush()
    questions: list[Question] = []
    chains: dict[int, Chain] = {}
    for kind_name, schema, options in _ASKED:
        declared = SCHEMA.validate_python(schema)
        dataset = Dataset(
            id=new_id("ds"),
            owner_id=owner.id,
            kind=declared.kind,
            dataset_schema=declared.model_dump_json(),
            n=2000,
            fingerprint=new_id("rows"),
            created_at=since,
        )
        session.add(dataset)
        session.flush()
        ledger.ensure_account(session, owner.id, "dataset", dataset.lineage)
        for analyst in analysts:
            datasets.put_grant(session, dataset, analyst, Limits.none("gdp")).created_at = since
        kind = KINDS[kind_name]
        for epsilon in _EPSILONS:
            target = PrivacyTarget(epsilon, _DELTA)
            body = {"dataset": {"id": dataset.id}, "privacy": {"epsilon": epsilon, "delta": _DELTA}} | options
            plan = kind.plan_for(
                kind.options(kind.request.model_validate(body)), [(declared.shape(2000), target)]
            )
            why = mechanism(kind_name, dataset.id, target, plan.releases)
            session.add(why)
            session.flush()
            result = json.dumps(run_plan(kind.estimator, plan, worker.gates([], plan)))
            for asker in (owner.id, *analysts):
                subjects: dict[ledger.Scope, str] = {"dataset": dataset.lineage}
                if asker != owner.id:
                    subjects["analyst"] = datasets.grant_subject(dataset.id, asker)
                values = {
                    "kind": kind_name,
                    "submitter_id": asker,
                    "owner_id": owner.id,
                    "dataset_id": dataset.id,
                    "spec_digest": new_id("spec"),
                    "plan": kind.plans.dump_json(plan).decode(),
                }
                concerned = ledger.accounts_in_force(session, owner, subjects)  # by id, which is random
                concerned.sort(key=lambda each: each.scope != "owner")
                theirs = tuple(chains.setdefault(each.id, Chain(each, signer)) for each in concerned)
                charge = Charge.of(target, plan.cost)
                questions.append(Question(values, result, why.digest, charge, dataset.lineage, theirs))
    return (key, made[0][1]), questions, list(chains.values())


def _ask(
    question: Question,
    moment: datetime,
    signer: Signer,
    rng: np.random.Generator,
    jobs: list[dict[str, Any]],
    written: list[Entry],
) -> int:
    """Write one job with its entries, as it is when it is over; return how many questions stay charged."""
    state = str(rng.choice(list(_ENDS), p=list(_ENDS.values())))
    values = question.values | {"id": new_id("job"), "state": state, "created_at": moment}
    values |= {"lease_until": None, "result": None, "receipt": None}
    debits = [
        chain.append("debit", values["id"], question.why, question.charge, moment)
        for chain in question.chains
    ]
    written += debits
    if state == "voided":
        written += [
            chain.append("void", values["id"], None, -question.charge, moment + timedelta(seconds=1))
            for chain in question.chains
        ]
    else:
        values["lease_until"] = moment + timedelta(minutes=10)
    if state == "committed":
        entries = list(map(ReceiptEntry.of, debits))
        receipt = receipt_of(signer, Job(**values), [values["dataset_id"]], entries, question.result)
        values |= {"result": question.result, "receipt": receipt.model_dump_json()}
    jobs.append(values)
    return int(state != "voided")


def _store(
    session: Session, jobs: Sequence[dict[str, Any]], written: Sequence[Entry], chains: Sequence[Chain]
) -> None:
    """Insert jobs with their keys, transitions and entries, and move the accounts."""
    columns = [column.key for column in Entry.__table__.columns]
    ways = {state: ("reserved", "claimed", state) for state in _ENDS} | {"voided": ("reserved", "voided")}
    session.execute(insert(Job.__table__), list(jobs))  # pyright: ignore[reportArgumentType]
    session.execute(
        insert(IdempotencyKey.__table__),  # pyright: ignore[reportArgumentType]
        [
            {
                "principal_id": job["submitter_id"],
                "key": job["id"],
                "body_digest": "0" * 64,
                "job_id": job["id"],
                "created_at": job["created_at"],
            }
            for job in jobs
        ],
    )
    session.execute(
        insert(Transition.__table__),  # pyright: ignore[reportArgumentType]
        [
            {"job_id": job["id"], "state": state, "at": job["created_at"] + timedelta(seconds=number)}
            for job in jobs
            for number, state in enumerate(ways[job["state"]])
        ],
    )
    session.execute(
        insert(Entry.__table__),  # pyright: ignore[reportArgumentType]
        [{name: getattr(entry, name) for name in columns} for entry in written],
    )
    for chain in chains:
        moved = chain.sums | {"seq": chain.seq, "head": chain.head}
        session.execute(update(Account).where(Account.id == chain.id).values(**moved))


# The pages


@contextmanager
def signed_in(server: Server, key: str) -> Iterator[httpx.Client]:
    """A client that holds the cookie of a session; it follows no redirect, so that 200 means the page."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        answer = client.post("/dashboard/sign-in", data={"key": key})
        assert answer.status_code == 303, (answer.status_code, answer.text[:500])
        assert client.cookies, "no session came with it"
        yield client


def times(clients: Sequence[httpx.Client], page: str) -> list[list[float]]:
    """Seconds that each of some requests of each client took.

    They take turns, so that whatever else the machine does slows all of them down.
    """
    taken = [list[float]() for _ in clients]
    for _ in range(REQUESTS):
        for client, theirs in zip(clients, taken, strict=True):
            begun = perf_counter()
            answer = client.get(page)
            theirs.append(perf_counter() - begun)
            assert answer.status_code == 200, (page, answer.status_code, answer.text[:500])
    return taken


def loads(browser: Browser, server: Server, client: httpx.Client) -> list[float]:
    """Milliseconds from navigation to the load event of the first page, each in a fresh profile."""
    taken: list[float] = []
    for _ in range(LOADS):
        with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
            context.add_cookies(
                [
                    {"name": cookie.name, "value": cookie.value or "", "url": server.url}
                    for cookie in client.cookies.jar
                ]
            )
            page = context.new_page()
            page.goto(server.url + PAGES[0], wait_until="load")
            assert page.url == server.url + PAGES[0]
            taken.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventStart"))
    return taken


def measure(directory: Path, url: str, browser: Browser | None) -> tuple[list[list[str]], list[str]]:
    """Rows of pages and one of first loads for one database, in columns of every size."""
    name = "SQLite" if url.startswith("sqlite") else "PostgreSQL"
    pem = directory / "signing.pem"
    pem.write_bytes(new_signing_key())
    signer = Signer(pem.read_bytes())
    database = Database(url, signer=signer)
    migrate(database)
    keys = list[tuple[str, str]]()
    for size in SIZES:
        begun = perf_counter()
        keys.append(build(database, signer, size))
        print(f"{name}: {size} entries in {perf_counter() - begun:.0f} s", flush=True)
    if not database.is_sqlite:  # as autovacuum does before long
        with database.write() as session:
            session.execute(text("ANALYZE"))
    database.close()
    server = Server(directory, url, signing_key_file=pem)
    rows = list[list[str]]()
    try:
        with ExitStack() as stack:
            owners = [stack.enter_context(signed_in(server, key)) for key, _ in keys]
            analysts = [stack.enter_context(signed_in(server, key)) for _, key in keys]
            first = [spread(loads(browser, server, owner)) if browser else "" for owner in owners]
            for page, clients, whose in [(page, owners, "") for page in PAGES] + [
                (page, analysts, " of an analyst") for page in ANALYSTS_PAGES
            ]:
                taken = times(clients, page)
                ratio = percentile(taken[-1], 0.5) / percentile(taken[0], 0.5)
                parts = [f"{percentile(each, part):.0f}" for each in taken for part in (0.5, 0.95)]
                called = page.removeprefix("/dashboard") or "first page"
                rows.append([f"{name}, {called}{whose}", *parts, f"{ratio:.1f}"])
                print(*rows[-1], sep=" | ", flush=True)
    finally:
        server.stop()
    return rows, [name, *first]


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    directory = Path(tempfile.mkdtemp(prefix="privest-dashboard-"))
    directory.chmod(0o755)  # PostgreSQL runs as a user of its own
    path = find_chromium()
    try:
        with ExitStack() as stack:
            browser = stack.enter_context(chromium(path)) if path else None
            (directory / "on-postgres").mkdir()
            (directory / "on-sqlite").mkdir()
            url, _ = stack.enter_context(postgres(directory / "cluster"))
            pages, first = measure(directory / "on-postgres", url, browser)
            more, second = measure(directory / "on-sqlite", f"sqlite:///{directory}/privest.db", browser)
    finally:
        shutil.rmtree(directory)
    load = os.getloadavg()[1]
    sizes = ["1 entry", *(f"{size:,} entries" for size in SIZES[1:])]
    columns = [f"{size}: {part} ms" for size in sizes for part in ("p50", "p95")] + ["ratio"]
    body = f"""
One database holds an owner of each size. Its own account has so many entries, over a year, and its record
as many acts; the accounts of its {len(_ASKED)} datasets and of {_ANALYSTS} analysts' grants on each have as
many entries again, twice. All is as the service writes it: chained and signed, with jobs, their transitions,
answers and receipts, some failed and some voided. It is written by bulk, so that nothing of it was in the
service's memory. Server, database and client share the cores. The load of the machine was {load:.0f}
meanwhile: what is above 2 is of others.

{REQUESTS} requests of every page for each size, in turns, by HTTP without a browser. The ratio is that of the
medians with {SIZES[-1]:,} entries and with one, where a page is as good as empty. The goals are 300 ms and 3.

{table(["", *columns], [*pages, *more])}

The first page in Chromium, headless, from navigation to the load event: medians of {LOADS} fresh profiles,
with the least and the most, in ms. The goal is 300 ms at {SIZES[-1]:,} entries.

{table(["", *sizes], [first, second])}
"""
    publish("dashboard", "The dashboard", body)


if __name__ == "__main__":
    main()
