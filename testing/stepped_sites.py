"""A hub and sites as functions of one process, which may break off where their processes would be killed.

What a killed process leaves is what it had committed. Each site may have a clock of its own.
"""

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import numpy as np
from pydantic import BaseModel
from sqlalchemy.orm import Session

from privest.data.records import Records
from privest.estimators.federation import Federated
from privest.privacy.gate import Gate
from privest_service.database import Database
from privest_service.database.migrate import migrate
from privest_service.datasets import service as datasets
from privest_service.estimates.plans import join_plan, stored_plan
from privest_service.estimates.service import Query
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job
from privest_service.ledger import charges
from privest_service.ledger import service as ledger
from privest_service.ledger.service import create_owner
from privest_service.ledger.units import Limits
from privest_service.problems import Problem
from privest_service.security.principals import Principal
from privest_service.security.service import create_analyst
from privest_service.sites import hub, pooling
from privest_service.sites.connector import Connector
from privest_service.sites.link import Exchange, Hub, OverError, UnreachableError
from privest_service.sites.schemas import OfferedDataset, SiteEnd
from testing.claims import claim_next
from testing.hubs import taking_in
from testing.server import SIGNER
from testing.world import KIND, SCHEMA_TEXT, World, submissions_on, submit

M = TypeVar("M", bound=BaseModel)

LEASE = timedelta(minutes=10)
TARGET = {"epsilon": 0.1, "delta": 1e-6}


class Clock(datetime):
    """Stands for `datetime` where moments are read: each thread has a clock that may be wrong."""

    here = threading.local()

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        """This moment, as the clock here has it."""
        return super().now(tz) + getattr(cls.here, "off", timedelta(0))

    @classmethod
    @contextmanager
    def off_by(cls, off: timedelta) -> Iterator[None]:
        """Have the clock of this thread off by so much."""
        before = getattr(cls.here, "off", timedelta(0))
        cls.here.off = off
        try:
            yield
        finally:
            cls.here.off = before


class KilledError(BaseException):
    """The process is gone: nothing may catch this but what starts it again."""


@dataclass
class Fate:
    """Strikes once, when so many steps were made."""

    struck: str = ""
    left: int = 0
    dead: set[str] = field(default_factory=set[str])
    cut: set[str] = field(default_factory=set[str])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def step(self, who: str) -> bool:
        """One step of a site; true if its connection breaks here.

        Raises:
            KilledError: the site is killed.
        """
        with self._lock:
            self.left -= 1
            if self.struck == who and self.left < 0:
                self.struck = ""
                self.dead.add(who)
            if who in self.dead:
                raise KilledError
            if self.struck in ("connection", "hub") and self.left < 0:
                self.cut = {who} if self.struck == "connection" else {"site 0", "site 1"}
                self.struck = ""
            broken = who in self.cut
            self.cut.discard(who)
            return broken


class Mortal(Database):
    """A site's database, before and after whose transactions the site may be killed."""

    def mortal(self, who: str, fate: Fate) -> "Mortal":
        self.who, self.fate = who, fate
        return self

    @contextmanager
    def _transaction(self) -> Iterator[Session]:
        with super()._transaction() as session:
            yield session
            self.fate.step(self.who)
        self.fate.step(self.who)


@dataclass
class Wire:
    """Calls of one site to the hub; notes all noisy answers that left the site, whoever got them."""

    who: str
    fate: Fate
    database: Database
    caller: Principal
    bell: threading.Condition
    sent: defaultdict[tuple[str, int], set[bytes]] = field(default_factory=lambda: defaultdict(set))

    def call(self, method: str, path: str, **content: Any) -> httpx.Response:
        if path.endswith("/datasets") or method == "PUT":
            return httpx.Response(200)
        if "/answers/" in path:
            _, part, _, number = path.rsplit("/", 3)
            self.sent[part, int(number)].add(content["content"])
        if self.fate.step(self.who):
            raise UnreachableError  # it never came there
        try:
            with Clock.off_by(timedelta(0)):
                answer = self._taken(path, content)
        except Problem as refused:
            raise OverError(refused.status) from None
        if self.fate.step(self.who):
            raise UnreachableError  # it was taken, and nobody knows
        return answer

    def asked(self, model: type[M], method: str, path: str, body: Any = None, **_: Any) -> M:
        return model.model_validate_json(self.call(method, path, json=body).content)

    def close(self) -> None: ...

    def _taken(self, path: str, content: dict[str, Any]) -> httpx.Response:
        run, caller = self.database.run, self.caller
        if path.endswith("/questions"):
            found = run(lambda session: hub.questions(session, caller.id))
            return httpx.Response(200, json=found.model_dump())
        if "/answers/" in path:
            _, part, _, number = path.rsplit("/", 3)
            label, numbers = content["params"]["label"], content["content"]
            taken = run(lambda session: hub.take_answer(session, caller, part, int(number), label, numbers))
            if taken.over:
                raise OverError(409)
            with self.bell:
                self.bell.notify_all()
                pooled = self._pooled(taken.whole, int(number))
                if pooled is None and self.bell.wait(0.2):
                    pooled = self._pooled(taken.whole, int(number))
            return httpx.Response(202) if pooled is None else httpx.Response(200, content=pooled)
        part, verb = path.rsplit("/", 2)[1:]
        if verb == "end":
            ended = SiteEnd.model_validate(content["json"])
            run(lambda session: hub.end(session, caller, part, ended))
            return httpx.Response(204)
        if content["json"]["decision"] == "refuse":
            run(lambda session: hub.refuse(session, caller, part, content["json"].get("reason")))
            return httpx.Response(200, json={"state": "over"})
        state = run(lambda session: hub.accept(session, caller, part, LEASE))
        return httpx.Response(200, json={"state": state})

    def _pooled(self, whole: str, number: int) -> bytes | None:
        with self.database.read() as session:
            return pooling.pooled(session, whole, number)


class Site:
    """A site: what of it survives, and what is made anew when it starts."""

    clock = timedelta(0)

    def __init__(self, file: Path, wire: Wire, cap: Limits) -> None:
        self.file, self.wire = file, wire
        self.database = self._opened(file)
        migrate(self.database)
        self.world = World.make(self.database, cap)
        self.rows = np.random.default_rng(len(file.name)).uniform(-0.5, 0.5, (50, 2))
        self.workers = list[threading.Thread]()
        self.start()

    def _opened(self, file: Path) -> Mortal:
        return Mortal(f"sqlite:///{file}", signer=SIGNER).mortal("nobody", self.wire.fate)

    def move(self, file: Path) -> None:
        """Start with another database."""
        self.database.close()
        self.file, self.database = file, self._opened(file)
        self.start()

    def start(self) -> None:
        """Start, after it was killed too: of what ran, nothing is left but what stands in the database."""
        for worker in self.workers:
            worker.join()
        self.workers.clear()
        self.database.who = self.wire.who
        self.wire.fate.dead.discard(self.wire.who)
        self.connector = Connector(Hub("http://hub", "key"), taking_in(self.database, self.world))

    def turn(self) -> None:
        """A look at the hub's questions, and a job for a worker, if one waits."""
        with Clock.off_by(self.clock):
            with suppress(UnreachableError, OverError, Problem):
                self.connector._answer(self.wire)  # pyright: ignore[reportArgumentType]
            job = self.database.run(lambda session: claim_next(session, LEASE))
        if job is not None:
            self.workers.append(threading.Thread(target=self._work, args=(job,)))
            self.workers[-1].start()

    def _work(self, job: Job) -> None:
        with self.database.read() as session:
            joint = jobs.joint_run(session, job.id)
            assert joint is not None
            terms = json.loads(joint.terms)
        plan: Any = stored_plan(job.kind, job.plan)
        assert isinstance(plan, Federated)
        part = plan.parts[terms["place"]]
        gate = Gate(Records(self.rows, threads=1), plan.statistics, part.releases)
        exchange = Exchange(self.wire, terms["hub_job"], lambda _: None)  # pyright: ignore
        with suppress(KilledError), Clock.off_by(self.clock):
            try:
                answer = join_plan(KIND.estimator, plan, gate, terms["place"], exchange, terms["seed"])
            except (OverError, ValueError):
                self.database.run(lambda session: jobs.fail(session, job.id))
            else:
                text = json.dumps(answer)
                self.database.run(lambda session: charges.commit(session, job.id, text))

    def spent(self) -> int:
        with self.database.read() as session:
            return ledger.owner_account(session, self.world.owner).mu_squared_spent


class Together:
    """A hub, two sites that offer a dataset each, and an analyst who asks about both."""

    def __init__(self, folder: Path, cap: Limits) -> None:
        self.fate, self.bell = Fate(), threading.Condition()
        self.database = Database(f"sqlite:///{folder / 'hub.db'}", signer=SIGNER)
        migrate(self.database)
        self.owners, self.datasets, self.sites = list[str](), list[str](), list[Site]()
        with self.database.write() as session:
            self.analyst = create_analyst(session, "Ada")[0].id
        for place in range(2):
            with self.database.write() as session:
                owner = create_owner(session, f"owner {place}", Limits.of(50.0, 0.01, "gdp"))[0].id
            caller = Principal("owner", owner)
            wire = Wire(f"site {place}", self.fate, self.database, caller, self.bell)
            site = Site(folder / f"site{place}.db", wire, cap)
            offered = OfferedDataset.model_validate({"n": 50, "schema": json.loads(SCHEMA_TEXT)})
            with self.database.write() as session:
                dataset = hub.offer(session, caller, site.world.dataset, offered)
                datasets.put_grant(session, dataset, self.analyst, Limits.none("gdp"))
                self.datasets.append(dataset.id)
            self.owners.append(owner)
            self.sites.append(site)

    def ask(self, number: int) -> str:
        """Ask about both datasets; return the job."""
        about = [{"id": each} for each in self.datasets]
        request = KIND.request.model_validate(
            {"dataset": about, "privacy": TARGET, "reuse": False, "steps": 4}
        )
        caller = Principal("analyst", self.analyst)
        return submit(submissions_on(self.database), caller, Query(KIND, request), f"key {number}").job_id

    def turn(self) -> None:
        """One step of all: a site that was killed starts again."""
        for site in self.sites:
            with suppress(KilledError):
                site.turn()
            if site.wire.who in self.fate.dead:
                site.start()
        with self.database.write() as session:
            ready = jobs.take_ended_at_sites(session)
            if ready is not None:
                charges.commit(session, ready.id, "{}")

    def is_over(self, job: str) -> bool:
        """Whether a question is over at the hub, and nothing works or waits at a site."""
        waiting = any(taking_in(site.database, site.world).waiting() for site in self.sites)
        idle = not (waiting or self.working() or any(self.claimed()))
        return idle and self.state(job) not in ("reserved", "claimed")

    def working(self) -> int:
        """How many workers of all sites are alive."""
        return sum(worker.is_alive() for site in self.sites for worker in site.workers)

    def claimed(self) -> list[int]:
        """How many jobs of each site a worker has, or had when it was killed."""
        return [_claimed(site.database) for site in self.sites]

    def state(self, job: str) -> str:
        """The state of a job at the hub."""
        with self.database.read() as session:
            return session.get_one(Job, job).state

    def parts(self, job: str) -> list[Job]:
        """The parts of a job at the hub, one for each site."""
        with self.database.read() as session:
            return jobs.parts_of(session, session.get_one(Job, job))


def _claimed(database: Database) -> int:
    with database.read() as session:
        return jobs.in_states(session, "claimed")["claimed"]
