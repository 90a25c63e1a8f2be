"""Hubs that lie to a site: what it gives is what its own ledger was charged for, whatever it is sent."""

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
from privest.estimators import federated_runs, federation
from privest.privacy.cost import PrivacyTarget
from privest.privacy.gate import Gate
from privest.records import Records
from privest_service.database import Database
from privest_service.database.migrate import migrate
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job
from privest_service.ledger import service as ledger
from privest_service.ledger.units import Charge
from privest_service.sites import taking as site
from privest_service.sites.taking import RefusedError, Taking
from testing.hubs import LIES, planned, question, taking_in
from testing.server import SIGNER
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
                    federated_runs.run_joined(plan, case.estimator.run, gate, 0, exchange, _SEED)
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


SECTION = Section(
    "Hubs that lie to a site",
    """\
A hub is an analyst at a site, and chooses what it sends: questions with a plan of its own, several at a
time, the same again, sums that are none. Sites that answer for others are in `access`. A hub that is slow or
stays away gets nothing: what is begun is over at its time.""",
    (
        Line("hub-questions", "questions of hubs that lie about plan, records, privacy and versions", _lies),
        Line("hub-sessions", "several runs at a time, and questions sent again", _at_a_time),
        Line("hub-sums", "sums that a hub gives back for a site's answers", _points),
    ),
)
