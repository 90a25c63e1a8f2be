"""Hubs and sites that lie to a site: what it gives is what its ledger was charged for, whatever it gets."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from audit.estimates import CASES
from audit.lines import Finding, Line, Section
from privest.arrays import Array
from privest.data.records import Records
from privest.estimators import federation
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from privest_service.database import Database, now
from privest_service.database.migrate import migrate
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job
from privest_service.ledger import service as ledger
from privest_service.ledger.units import Charge, Limits
from privest_service.sites import connector, pooling
from privest_service.sites import taking as site
from privest_service.sites.taking import RefusedError, Taking
from testing.claims import claim_next
from testing.hubs import LIES, planned, question, taking_in
from testing.server import SIGNER, until
from testing.stepped_sites import LEASE, Together, Wire
from testing.world import World

_TARGETS = (PrivacyTarget(0.5, 1e-6), PrivacyTarget(1.0, 1e-7))
_SEED = 3


@contextmanager
def _at_a_site() -> Iterator[tuple[Database, World, Taking]]:
    """A site with a dataset that is offered."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'site.db'}"
        database = Database(url, signer=SIGNER)
        migrate(database)
        world = World.make(database)
        yield database, world, taking_in(database, world)
        database.close()


def _spent(database: Database, world: World) -> int:
    with database.read() as session:
        return ledger.owner_account(session, world.owner).mu_squared_spent


# Questions


def _taken_lies() -> int:
    """How many questions of lying hubs a site takes."""
    with _at_a_site() as (_, world, taking):
        numbers, taken = count(), 0
        for lie in LIES.values():
            with suppress(RefusedError):
                taking.take(lie(question(world, job=f"job_{next(numbers)}")))
                taken += 1
        return taken


def _lies(long: bool) -> Finding:  # noqa: ARG001 - all of them are told
    taken = _taken_lies()
    with patch.object(site, "hashlib", SimpleNamespace(sha256=_Agreeable)):
        credulous = _taken_lies()
    return Finding(
        holds=taken == 0 < credulous,
        claimed="a question is taken as the site plans it by itself, or not at all",
        found=f"{taken} of {len(LIES)} lies about plan, place, records, ε, options and versions were taken",
        power=f"where plans are not held against the hub's: {credulous}",
    )


class _Agreeable(bytes):
    """A digest that is equal to whatever it is held against."""

    def hexdigest(self) -> Any:
        """See hashlib."""
        return _Equal()


class _Equal(str):
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, _: object) -> bool:
        return True

    def __ne__(self, _: object) -> bool:
        return False


# Sessions


def _sessions() -> tuple[int, int]:
    """Most runs of a hub at a time on an owner's rows, and charges for four questions sent thrice."""
    with _at_a_site() as (database, world, taking):
        names = [f"job_{number}" for number in range(4)]
        for name in names * 3:
            taking.take(question(world, job=name))
        charged = _spent(database, world)
        price = planned().parts[0]
        known = [job for name in names if (job := taking.job_of(name)) is not None]
        for job in known * 3:
            taking.begin(job)
        running = 0
        with database.write() as session:
            while (job := jobs.next_waiting(session)) is not None:
                jobs.move(session, Job.id == job.id, "reserved", "claimed")
                running += 1
        for job in known:  # a hub that asks on, and one that takes back what has begun
            taking.begin(job)
            taking.give_back(job)
        with database.write() as session:
            running += jobs.next_waiting(session) is not None
        single = Charge.of(price.target, price.cost).mu_squared
        if _spent(database, world) != running * single:  # what was begun stays charged, all else came back
            return running, -1
        return running, charged // single


def _at_a_time(long: bool) -> Finding:  # noqa: ARG001 - nothing here is random
    running, charges = _sessions()
    with patch.object(site, "_in_session", lambda *_: False):
        interleaved, _ = _sessions()
    return Finding(
        holds=(running, charges) == (1, 4) and interleaved > 1,
        claimed="one run of a hub at a time on an owner's rows; a question that is sent again is the same",
        found=f"4 questions, each sent and begun three times: {charges} charges, {running} run at a time",
        power=f"where a site looks at no other run: {interleaved}",
    )


def _slow_runs() -> tuple[int, int, int]:
    """Runs, at a time and in all, of a hub that lets each hang till its lease ends; and charges that stay."""
    with _at_a_site() as (database, world, taking):
        names, later = [f"job_{number}" for number in range(3)], now()
        for name in names:
            taking.take(question(world, job=name))
        most, runs = 0, 0
        for _ in range(2 * len(names)):
            for job in [taking.job_of(name) for name in names]:
                if job is not None and job.state == "reserved":
                    taking.begin(job)
            while database.run(lambda session: claim_next(session, LEASE)) is not None:
                runs += 1
            with database.read() as session:
                most = max(most, jobs.in_states(session, "claimed")["claimed"])
            later += 2 * LEASE
            database.run(lambda session, at=later: jobs.fail_overdue(session, at))
        price = planned().parts[0]
        return most, runs, _spent(database, world) // Charge.of(price.target, price.cost).mu_squared


def _slowly(long: bool) -> Finding:  # noqa: ARG001 - nothing here is random
    most, runs, charges = _slow_runs()
    with patch.object(site, "_in_session", lambda *_: False):
        interleaved, _, _ = _slow_runs()
    return Finding(
        holds=(most, runs, charges) == (1, 3, 3) and interleaved > 1,
        claimed="a hub that lets runs hang has one at a time, and each is over with its lease, charged",
        found=f"3 questions, each left hanging: {most} run at a time, {runs} in all, {charges} charges stand",
        power=f"where a site looks at no other run: {interleaved} at a time",
    )


# Answers


@dataclass(frozen=True)
class _Lie:
    """What a hub gives back for an answer, by the answers that it has had."""

    name: str
    told: Callable[[list[Array], np.random.Generator], Array]


_POOLED = (
    _Lie("the site's own", lambda had, _: had[-1]),
    _Lie("nothing", lambda had, _: np.zeros_like(had[-1])),
    _Lie("its first answer again", lambda had, _: np.resize(had[0], had[-1].shape)),
    _Lie("noise", lambda had, rng: rng.standard_normal(had[-1].shape)),
    _Lie("large", lambda had, _: np.full_like(had[-1], 1e99)),
    _Lie("too large", lambda had, _: np.full_like(had[-1], 1e101)),
    _Lie("infinite", lambda had, _: np.full_like(had[-1], np.inf)),
    _Lie("no number", lambda had, _: np.full_like(had[-1], np.nan)),
    _Lie("longer", lambda had, _: np.append(had[-1], 0.0)),
    _Lie("empty", lambda *_: np.empty(0)),
)


class _Counting(Gate):
    """Counts its answers."""

    given = 0

    def mean(self, point: Any, statistic: str = "gradient") -> Array:
        """See `Gate`."""
        answer = super().mean(point, statistic)
        self.given += 1
        return answer


class _Generous(_Counting):
    """The mutant that makes its releases as often as it is asked."""

    def __init__(self, records: Records, statistics: Any, releases: Any) -> None:
        super().__init__(records, statistics, releases)
        self._owed = {name: cycle(owed) for name, owed in self._owed.items()}


def _answers(kind: type[_Counting], again: int) -> tuple[int, int, int]:
    """Runs of a site over all lies, those in which more was answered than planned, and those that broke off.

    Args:
        kind: of the gate.
        again: how often a solver that is led astray runs over the same gate.
    """
    runs, over, broken = 0, 0, 0
    for case in CASES:
        shapes = [replace(case.shape, n=n) for n in (case.shape.n, 2 * case.shape.n)]
        try:
            plan = federation.plan(partial(case.estimator.plan, case.spec), shapes, _TARGETS)
        except ValueError:
            continue  # this one takes one dataset
        allowed = sum(release.count for release in plan.parts[0].releases)
        rows = case.shape.dummy(shapes[0].n, np.random.default_rng(_SEED))
        for lie in _POOLED:
            gate = kind(Records(rows, threads=1), plan.statistics, plan.parts[0].releases)
            had, rng = list[Array](), np.random.default_rng(_SEED)

            def exchange(_: str, own: Array, lie: Any = lie, had: Any = had, rng: Any = rng) -> Array:
                had.append(own.copy())
                return lie.told(had, rng)

            ended = False
            with suppress(ValueError, ArithmeticError, np.linalg.LinAlgError, RuntimeError, IndexError):
                for _ in range(again):
                    federation.run_joined(plan, case.estimator.run, gate, 0, exchange, _SEED)
                    ended = True
            runs, over, broken = runs + 1, over + (gate.given > allowed), broken + (not ended)
    return runs, over, broken


def _points(long: bool) -> Finding:  # noqa: ARG001 - all lies are told to all estimators
    with np.errstate(all="ignore"):
        runs, over, broken = _answers(_Counting, 2)
        _, mutant, _ = _answers(_Generous, 2)
    return Finding(
        holds=over == 0 < mutant,
        claimed="a site answers what the plan has, however a hub lies about the sums, and if it asks twice",
        found=f"{runs} runs, twice over one gate: {over} answered more; {broken} were ended by the lie",
        power=f"where a gate does not count: {mutant}",
    )


# Sites that lie


@dataclass
class _LyingWire(Wire):
    """Sends a lie in place of the site's answers."""

    lie: Callable[[bytes], bytes] = bytes

    def call(self, method: str, path: str, **content: Any) -> Any:
        """See `Wire`."""
        if "/answers/" in path:
            content = content | {"content": self.lie(content["content"])}
        return super().call(method, path, **content)


@dataclass
class _ListeningWire(Wire):
    """Notes the sums that come back which are none of such answers."""

    false: int = 0

    def call(self, method: str, path: str, **content: Any) -> Any:
        """See `Wire`."""
        answer = super().call(method, path, **content)
        if "/answers/" in path and answer.status_code == 200:
            numbers = np.frombuffer(answer.content, "<f8")
            right = numbers.nbytes == len(content["content"]) and (np.abs(numbers) <= 1e100).all()
            self.false += not right
        return answer


_GIVEN: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda _: b"",
    "bytes that are no numbers": lambda own: own[:-1],
    "longer": lambda own: own + own,
    "no number": lambda own: np.full(len(own) // 8, np.nan).tobytes(),
    "too large": lambda own: np.full(len(own) // 8, 1e101).tobytes(),
    "large": lambda own: np.full(len(own) // 8, 1e99).tobytes(),
    "other noise each time": lambda own: np.random.default_rng().standard_normal(len(own) // 8).tobytes(),
}
"""What a lying site gives for its answers."""


def _beside_a_liar(lie: Callable[[bytes], bytes]) -> tuple[bool, int]:
    """Whether an honest site gave or was charged more beside a liar, and false sums that it was sent."""
    with TemporaryDirectory() as folder, patch.object(connector, "_PATIENCE", 0.0):
        them = Together(Path(folder), Limits.of(1.0, 1e-5, "gdp"))
        honest, liar = them.sites
        honest.wire = _ListeningWire(**vars(honest.wire))
        spent, given = list[int](), honest.wire.sent
        for number in range(2):
            job = them.ask(number)
            until(lambda job=job: them.turn() or them.state(job) not in ("reserved", "claimed"))
            until(lambda: not them.working())
            spent.append(honest.spent())
            if not number:
                liar.wire = _LyingWire(**vars(liar.wire), lie=lie)
        honestly, *others = Counter(part for part, _ in given).values()
        again = any(len(noises) > 1 for noises in given.values())
        more = spent[1] > 2 * spent[0] or any(each > honestly for each in others) or again
        for database in (them.database, honest.database, liar.database):
            database.close()
        return more, honest.wire.false


def _liars(long: bool) -> Finding:  # noqa: ARG001 - all of them are told
    found = [_beside_a_liar(lie) for lie in _GIVEN.values()]
    with patch.object(pooling, "is_answer", lambda _: True), np.errstate(all="ignore"):
        _, credulous = _beside_a_liar(_GIVEN["no number"])
    more, false = sum(each for each, _ in found), sum(each for _, each in found)
    return Finding(
        holds=more == false == 0 < credulous,
        claimed="whatever another site gives, an owner gives what its own site was charged for, once",
        found=f"{len(found)} lies of a site: beside {more} the other gave more; it got {false} false sums",
        power=f"where a hub takes any numbers: {credulous}",
    )


SECTION = Section(
    "Hubs and sites that lie",
    """\
A hub is an analyst at a site, and chooses what it sends: questions with a plan of its own, several at a
time, the same again, none for a long time, sums that are none. A site gives others what it likes. Sites that
answer in the name of others are in `access`.""",
    (
        Line("hub-questions", "questions of hubs that lie about plan, records, privacy and versions", _lies),
        Line("hub-sessions", "several runs at a time, and questions sent again", _at_a_time),
        Line("hub-slow", "runs that a hub lets hang, one after the other", _slowly),
        Line("hub-sums", "sums that a hub gives back for a site's answers", _points),
        Line("site-sums", "answers of a site that lies, to the other owners of a run", _liars),
    ),
)
