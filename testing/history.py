"""A believable past for an owner: weeks of questions, charged, answered and signed, written in seconds."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from sqlalchemy import event, select, text, update
from sqlalchemy.orm import Session

from privest.estimators.federation import Plan
from privest.privacy.accounting import mu_for
from privest_service.database import Database
from privest_service.database.tables import new_id
from privest_service.datasets.models import Dataset, Grant
from privest_service.estimates import worker
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.charging import PlannedQuery, Rules, charge
from privest_service.estimates.plans import run_plan
from privest_service.estimates.service import Planner, Query, resolve_query
from privest_service.jobs import service as jobs
from privest_service.jobs.models import IdempotencyKey, Job, Transition
from privest_service.ledger import charges, entries, receipts
from privest_service.ledger import service as ledger
from privest_service.ledger.chain import entry_hash, to_sign
from privest_service.ledger.models import Account, Entry
from privest_service.problems import BudgetExceeded
from privest_service.security.models import Analyst, Owner
from privest_service.security.principals import Principal
from privest_service.signing import signer_of
from testing.claims import claim_next
from testing.server import Caller
from testing.world import submissions_on

_ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "points": ("frechet-mean", {}),
    "vectors": ("robust-pca", {"rank": 2}),
    "labelled": ("logistic-regression", {}),
}
"""What is asked of datasets of a kind."""

_STEPS = (0.5, 0.75, 1.0, 1.5, 2.0)
"""Sizes of ε with which somebody asks, in a unit chosen so that the past costs the planned amount."""

_DELTA = 1e-6


@dataclass(frozen=True)
class _Habit:
    """When somebody asks, and how large the ε is."""

    share: float
    days: tuple[float, ...]
    """Weights of the days, from Monday on."""
    weeks: tuple[float, ...]
    """Weights of the weeks, which repeat."""
    hours: tuple[float, float]
    sizes: tuple[float, ...]
    """Weights of `_STEPS`."""


_ANALYSTS = (
    _Habit(0.5, (1, 1, 0.8, 1, 0.5, 0.03, 0.0), (1, 0.7, 1.2, 0.3), (8.5, 12.5), (3, 3, 2, 0, 0)),
    _Habit(0.35, (0, 1.5, 0.3, 1.5, 0, 0.1, 0.2), (0.05, 1, 1.5, 0.05, 0.4), (14, 21), (0, 0, 2, 2, 1)),
)
_OWNER = _Habit(0.15, (1, 0.1, 0.1, 0.1, 1, 0, 0), (1,), (10, 17), (0, 1, 2, 1, 0))


def signing_key(directory: Path) -> Path:
    """A file with the key of `harness.SIGNER`: a server with this `signing_key_file` signs as tests do."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    path = directory / "signing-key-of-tests.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return path


def past(
    database: Database,
    owner: Caller,
    datasets: Sequence[str],
    analysts: Sequence[Caller],
    *,
    since: datetime,
    queries: int = 80,
    spent: float = 0.65,
    seed: int = 0,
) -> None:
    """Write a past up to this moment, in which some questions failed and some were voided.

    Each question is a transaction of its own, from its reservation to its end: a service on the same database
    never sees one that waits. Those that a cap does not cover are left out, as if they had been refused.

    Args:
        database: whose signer is the service's, as with `signing_key`.
        owner: whose budget is spent; all that was made of it over HTTP is moved to `since`.
        datasets: that are asked about.
        analysts: who ask about those that they were granted, the first two each in a way of its own.
        since: when it begins.
        queries: how many questions.
        spent: share of the budget's ε that is spent in the end.
        seed: of the moments and sizes.
    """
    rng = np.random.default_rng(seed)
    _move_to(database, owner, analysts, since)
    askers = _askers(database, owner, datasets, analysts)
    asked = _questions(askers, since, queries, rng)
    ends = np.full(queries, "committed", dtype=object)
    odd = rng.permutation(queries)[: max(2, queries // 10)]
    ends[odd[::2]], ends[odd[1::2]] = "voided", "failed"
    cost, goal = _costs(database, owner, spent)
    unit = _unit(
        cost, [size for (_, _, _, size), end in zip(asked, ends, strict=True) if end != "voided"], goal
    )
    made: dict[str, tuple[Plan, str]] = {}
    end = since
    with _then() as set_clock:
        for (moment, asker, dataset, size), how in zip(asked, ends, strict=True):
            epsilon = round(unit * size, 3)
            end = _lived(database, asker, dataset, epsilon, max(moment, end), how, made, set_clock, rng)


# Who asks what, and when


def _askers(
    database: Database, owner: Caller, datasets: Sequence[str], analysts: Sequence[Caller]
) -> list[tuple[Principal, _Habit, list[str]]]:
    """Everybody who asks, with habits and what they may ask about."""
    found = [(Principal("owner", owner.id), _OWNER, list(datasets))]
    with database.read() as session:
        for number, analyst in enumerate(analysts):
            granted = set(
                session.scalars(
                    select(Grant.dataset_id).where(Grant.analyst_id == analyst.id, Grant.revoked_at.is_(None))
                )
            )
            theirs = [dataset for dataset in datasets if dataset in granted]
            if theirs:
                found.append((Principal("analyst", analyst.id), _ANALYSTS[number % len(_ANALYSTS)], theirs))
    return found


_Asked = tuple[datetime, Principal, str, float]
"""A question: when, whose, about which dataset, and the size of its ε."""


def _questions(
    askers: Sequence[tuple[Principal, _Habit, list[str]]],
    since: datetime,
    queries: int,
    rng: np.random.Generator,
) -> list[_Asked]:
    """Questions in the order of time."""
    until = datetime.now(UTC) - timedelta(hours=1)
    days = [since + timedelta(days=day) for day in range(1, (until - since).days)]
    shares = np.array([habit.share for _, habit, _ in askers])
    asked: list[_Asked] = []
    for _ in range(queries):
        asker, habit, datasets = askers[rng.choice(len(askers), p=shares / shares.sum())]
        weights = np.array(
            [
                habit.days[day.weekday()] * habit.weeks[number // 7 % len(habit.weeks)]
                for number, day in enumerate(days)
            ]
        )
        day = days[rng.choice(len(days), p=weights / weights.sum())]
        midnight = day.replace(hour=0, minute=0, second=0, microsecond=0)
        moment = midnight + timedelta(hours=rng.uniform(*habit.hours))
        sizes = np.array(habit.sizes)
        size = _STEPS[rng.choice(len(_STEPS), p=sizes / sizes.sum())]
        asked.append((moment, asker, datasets[rng.integers(len(datasets))], size))
    return sorted(asked, key=lambda question: question[0])


def _costs(database: Database, owner: Caller, spent: float) -> tuple[Callable[[float], float], float]:
    """What a question of this ε costs in the currency that the budget counts, and what all may cost."""
    with database.read() as session:
        account = ledger.owner_account(session, owner.id)
        limits = ledger.limits_of(account)
    if limits.composition == "basic":
        return lambda epsilon: epsilon, (spent * limits.epsilon - account.epsilon_spent) / 1e9
    room = limits.room
    goal = mu_for(spent * room.epsilon, room.delta) ** 2
    return lambda epsilon: mu_for(epsilon, _DELTA) ** 2, goal - account.mu_squared_spent / 1e12


def _unit(cost: Callable[[float], float], sizes: Sequence[float], goal: float) -> float:
    """The unit of ε in which questions of these sizes cost as much as they shall, by bisection."""
    counts = {size: sizes.count(size) for size in _STEPS}
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        total = sum(count * cost(middle * size) for size, count in counts.items() if count)
        low, high = (middle, high) if total < goal else (low, middle)
    return low


# Backdated


@contextmanager
def _then() -> Iterator[Callable[[datetime], None]]:
    """While whatever the ledger writes bears the moment that was set last."""
    clock = [datetime.now(UTC)]

    def enter(row: Any, _: Any, given: dict[str, Any]) -> None:
        given["at" if isinstance(row, Transition) else "created_at"] = clock[0]

    with ExitStack() as stack:
        for module in (entries, jobs, receipts):
            stack.enter_context(patch.object(module, "now", lambda: clock[0]))
        for table in (Job, Transition, IdempotencyKey):
            event.listen(table, "init", enter)
            stack.callback(event.remove, table, "init", enter)
        yield lambda moment: clock.__setitem__(0, moment)


def _lived(
    database: Database,
    asker: Principal,
    dataset_id: str,
    epsilon: float,
    moment: datetime,
    how: str,
    made: dict[str, tuple[Plan, str]],
    set_clock: Callable[[datetime], None],
    rng: np.random.Generator,
) -> datetime:
    """One question from its reservation to its end, and a moment after that.

    Whoever asks the same of the same rows is told the same, as runs take longer than all else here: `made`
    holds the plan and the answer of each question by its digest.
    """
    nothing: Any = None
    with database.read() as session:
        kind_name, options = _ASKED[session.get_one(Dataset, dataset_id).kind]
        kind = KINDS[kind_name]
        body = {
            "dataset": {"id": dataset_id},
            "privacy": {"epsilon": epsilon, "delta": _DELTA},
            "reuse": False,
        }
        request = kind.request.model_validate(body | options)
        question = resolve_query(session, asker, kind, request)
    if question.digest not in made:
        plan = Planner(nothing).make_plan(question)
        made[question.digest] = plan, json.dumps(run_plan(kind.estimator, plan, worker.gates([], plan)))
    plan, result = made[question.digest]
    (command,) = submissions_on(nothing).commands(asker, Query(kind, request), new_id("past"))
    waited, ran = rng.uniform(0.05, 4.0), rng.lognormal(1.0, 0.8)

    def live(session: Session) -> None:
        set_clock(moment)
        planned = PlannedQuery.of(command, question, plan)
        (charged,) = charge(session, [planned], Rules(10**6, decide_within=1))
        job = charged.job_id
        if how == "voided":
            set_clock(moment + timedelta(seconds=waited))
            assert charges.void(session, job)
            return
        set_clock(moment + timedelta(seconds=waited))
        claimed = claim_next(session, timedelta(minutes=10))
        assert claimed is not None
        assert claimed.id == job, "something older waits"
        set_clock(moment + timedelta(seconds=waited + ran))
        assert charges.commit(session, job, result) if how == "committed" else jobs.fail(session, job)

    try:
        database.run(live)
    except BudgetExceeded as refused:
        assert refused.scope != "owner", "the budget is too small for this past"  # noqa: PT017
    return moment + timedelta(seconds=waited + ran + 1)


def _move_to(database: Database, owner: Caller, analysts: Sequence[Caller], since: datetime) -> None:
    """Let an owner and what belongs to it have begun at a moment, the limits in its ledger signed anew.

    The database refuses to change entries, rightly: its guards are off for this transaction.
    """

    def move(session: Session) -> None:
        session.execute(update(Owner).where(Owner.id == owner.id).values(created_at=since))
        session.execute(
            update(Analyst).where(Analyst.id.in_([each.id for each in analysts])).values(created_at=since)
        )
        theirs = select(Dataset.id).where(Dataset.owner_id == owner.id)
        session.execute(update(Grant).where(Grant.dataset_id.in_(theirs)).values(created_at=since))
        session.execute(update(Dataset).where(Dataset.owner_id == owner.id).values(created_at=since))
        with _unguarded(session):
            for account in session.scalars(select(Account).where(Account.owner_id == owner.id)).all():
                _sign_anew(session, account, since)

    database.run(move)


def _sign_anew(session: Session, account: Account, since: datetime) -> None:
    signer, head = signer_of(session), ""
    found = select(Entry).where(Entry.account_id == account.id).order_by(Entry.seq)
    for entry in session.scalars(found).all():
        assert entry.kind == "limit", "a past comes first"
        entry.at, entry.prev, entry.signer = since + timedelta(minutes=entry.seq), head, signer.id
        entry.hash = head = entry_hash(entry)
        entry.signature = signer.sign(to_sign(head))
    account.head = head
    session.flush()


@contextmanager
def _unguarded(session: Session) -> Iterator[None]:
    """Without the triggers of entries."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SET LOCAL session_replication_role = replica"))
        yield
        session.execute(text("SET LOCAL session_replication_role = origin"))
        return
    guard = session.scalars(text("SELECT sql FROM sqlite_master WHERE name = 'entries_no_update'")).one()
    session.execute(text("DROP TRIGGER entries_no_update"))
    yield
    session.execute(text(guard))
