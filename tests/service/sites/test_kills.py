"""Hub, sites and connections are killed at any step: no overspend, no answer uncharged, no release twice."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import case, func, select, update
from sqlalchemy.orm import aliased

from privest.privacy.accounting import epsilon_for, mu_for
from privest_service.database import Database, now
from privest_service.jobs.models import Job, JointRun
from privest_service.ledger.models import Entry
from privest_service.ledger.units import Limits
from privest_service.signing import Signer
from testing.server import Server, books_balance, spd, until
from testing.sites import Site, Sites, sites
from testing.wire import Wire, wired

COUNTS = (400, 700)
EPSILON, DELTA, CAP_DELTA = 0.2, 1e-8, 1e-6
BEGUN = ("claimed", "committed", "failed")


def struck(kills: int) -> list[str]:
    """What is killed, in turn: of six, four connections, a site and a hub; in a random order."""
    targets = (["connection"] * 4 + ["site", "hub"]) * (kills // 6 + 1)
    return list(np.random.default_rng(kills).permutation(targets[:kills]))


class Storm:
    """Questions one after the other, in each of which something is killed.

    Attributes:
        asked: ids of the hub's jobs, with what was killed in their run.
        ended: states of those that came to an end.
    """

    def __init__(self, them: Sites, wires: list[Wire], seed: int) -> None:
        self.them, self.wires, self._random = them, wires, np.random.default_rng(seed)
        self.asked, self.ended = dict[str, str](), Counter[tuple[str, str]]()

    def strike(self, target: str) -> None:
        """Ask, kill something at a random step, have it come back, and go on."""
        answered = self._answered()
        job = self.them.ask(wait=0, epsilon=EPSILON, delta=DELTA, reuse=False).json()["id"]
        self.asked[job] = target
        # Before the sites know of it, before their first answers, after so many of these, or after the last.
        step = int(self._random.integers(40))
        until(lambda: self._state(job) not in ("reserved", "claimed") or self._at(job, step, answered))
        place = int(self._random.integers(len(self.wires)))
        if target == "connection":
            self.wires[place].cut()
        elif target == "site":
            begun = self._begun(job)
            self.them.sites[place].server.kill()
            time_passes(self.them.sites[place].server)
            self.them.sites[place].restart()
            if begun:
                time_passes(self.them.hub)
        else:
            self.them.hub.kill()
            self.them.restart_hub()
            for wire in self.wires:
                wire.lead_to(self.them.hub.url)
        until(lambda: self._state(job) not in ("reserved", "claimed"))
        self.ended[target, self._state(job)] += 1

    def _answered(self) -> int:
        return sum(len(wire.answers()) for wire in self.wires)

    def _at(self, job: str, step: int, before: int) -> bool:
        return step == 0 or (self._begun(job) and self._answered() - before >= step - 1)

    def _state(self, job: str) -> str:
        return str(self.them.analyst.get(f"/v1/jobs/{job}").json()["state"])

    def _begun(self, job: str) -> bool:
        return self._state(job) in BEGUN


def time_passes(server: Server) -> None:
    """Have the leases of all runs end: that of one whose worker was killed, and of nothing else."""
    database = Database(server.database_url, signer=Signer(server.signing_key.read_bytes()))
    with database.write() as session:
        session.execute(update(Job).where(Job.state == "claimed").values(lease_until=now()))
    database.close()


def charged(site: Site) -> dict[str, tuple[str, str, int]]:
    """What a site's database says of the hub's questions, by their ids there: job, state, what is spent."""
    database = Database(site.server.database_url, signer=Signer(site.server.signing_key.read_bytes()))
    charged_job, one = aliased(Job), aliased(Entry)  # all accounts of a job move by the same
    account = select(func.min(one.account_id)).where(one.job_id == charged_job.id).scalar_subquery()
    rows = (
        select(
            JointRun.hub_job,
            Job.id,
            Job.state,
            func.sum(case((Entry.kind == "debit", 1), else_=-1) * Entry.mu_squared),
        )
        .join(Job, Job.id == JointRun.job_id)
        .join(charged_job, (charged_job.id == Job.id) | (charged_job.part_of == Job.id))
        .join(Entry, (Entry.job_id == charged_job.id) & (Entry.account_id == account))
        .group_by(JointRun.hub_job, Job.id, Job.state)
    )
    with database.read() as session:
        found = {str(part): (job, state, int(spent)) for part, job, state, spent in session.execute(rows)}
    database.close()
    return found


@pytest.mark.costly
@pytest.mark.parametrize("kills", [6, pytest.param(1000, marks=pytest.mark.prove)])
def test_whoever_is_killed_nothing_is_overspent_and_nothing_is_answered_free_or_twice(
    tmp_path: Path, new_database: Callable[[str], str], kills: int
) -> None:
    wires = list[Wire]()
    with ExitStack() as stack:

        def through(url: str) -> str:
            wires.append(stack.enter_context(wired(url)))
            return wires[-1].url

        made = sites(tmp_path, lambda: new_database("sqlite"), through=through, workers=4, job_timeout=150)
        # The sites' caps are reached before the end, while the hub's budget would allow all.
        admitted = mu_for(EPSILON, DELTA) * (0.75 * kills) ** 0.5
        cap: dict[str, Any] = {"epsilon": epsilon_for(admitted, 0.9 * CAP_DELTA), "delta": CAP_DELTA}
        them = stack.enter_context(made).offering([spd(n, seed=n) for n in COUNTS], **cap)
        storm = Storm(them, wires, seed=kills)
        stack.callback(lambda: them.hub.kill())  # noqa: PLW0108 - the one that was started last
        for target in struck(kills):
            storm.strike(target)
        assert Counter(storm.asked.values()) == Counter(struck(kills))

        # A broken connection, and a hub that was away, cost no answer: sites go on where they were.
        for target in ("connection", "hub"):
            assert {state for (what, state) in storm.ended if what == target} <= {"committed", "voided"}
        jobs = {job: them.analyst.get(f"/v1/jobs/{job}").json() for job in storm.asked}
        states = Counter(job["state"] for job in jobs.values())
        assert states["committed"] >= kills // 3
        assert states["voided"] > 0
        limit = Limits.of(cap["epsilon"], cap["delta"], "gdp").mu_squared
        for place, (site, wire) in enumerate(zip(them.sites, wires, strict=True)):
            here = charged(site)
            # Each answer has one noise, however often it was sent, and was charged to the site's own ledger.
            for path, sent in wire.answers().items():
                assert len(set(sent)) == 1, path
                _, state, spent = here[path.split("/")[4]]
                assert state in BEGUN
                assert spent > 0
            for job in jobs.values():
                if job["state"] == "committed":
                    told = job["sites"][place]["receipt"]["statement"]["job"]
                    assert [spent > 0 for own, _, spent in here.values() if own == told] == [True]
            assert 0 < sum(spent for _, _, spent in here.values()) <= limit
        for server in them.servers():
            assert books_balance(server)
