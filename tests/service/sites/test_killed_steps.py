"""A thousand kills between any two steps: what a killed process leaves is what it had committed.

The processes of test_kills.py are here functions of one process, which break off where they would be killed:
before or after a transaction at a site, and before or after the hub takes a call. With a hub all connections
are cut at once; nothing else of it is lost, as it keeps a run in its database alone.
"""

import json
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import func, select

from privest_service.database import now
from privest_service.exports.export import lines
from privest_service.exports.verify import verify
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job, SitePart
from privest_service.ledger.units import Limits
from privest_service.sites import connector as connector_module
from testing.hubs import taking_in
from testing.server import SIGNER, until
from testing.stepped_sites import LEASE, Mortal, Site, Together

STRUCK = ("connection", "hub", "site 0", "site 1")
BEGUN = ("claimed", "committed", "failed")


class Storm(Together):
    """A hub and two sites, of which something is struck in every question."""

    def strike(self, number: int, rng: np.random.Generator) -> tuple[str, str, bool]:
        """Ask, strike at a random step, and come to an end: what was struck, the state, and if it was hit."""
        struck = STRUCK[int(rng.integers(len(STRUCK)))]
        self.fate.left, self.fate.struck = int(rng.integers(55)), struck
        job = self.ask(number)

        def over() -> bool:
            self.turn()
            working, here = self.working(), sum(self.claimed())
            if working < here or (not working and not here and self._stuck(job)):
                self._time_passes()  # a worker is gone, and the lease of its run will be
            return self.is_over(job)

        until(over)
        hit, self.fate.struck = not self.fate.struck, ""
        return struck.split()[0], self.state(job), hit

    def _stuck(self, job: str) -> bool:
        """Whether the hub waits for a site that has no more to do with a job: it was killed in its run."""
        return self.state(job) == "claimed" and any(
            self._failed(site, part.id) for site, part in zip(self.sites, self.parts(job), strict=True)
        )

    def _failed(self, site: Site, part: str) -> bool:
        known = taking_in(site.database, site.world).job_of(part)
        return known is not None and known.state == "failed"

    def _time_passes(self) -> None:
        later = now() + 2 * LEASE
        for database in (self.database, *(site.database for site in self.sites)):
            if isinstance(database, Mortal):
                database.who = "nobody"
            database.run(lambda session: jobs.fail_overdue(session, later))
        for site in self.sites:
            site.database.who = site.wire.who


@pytest.mark.parametrize("kills", [25, pytest.param(1000, marks=pytest.mark.prove)])
@pytest.mark.system_noise
def test_nothing_is_overspent_and_nothing_leaves_uncharged_or_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    monkeypatch.setattr(connector_module, "_PATIENCE", 0.0)
    cap = Limits.of(0.085 * kills**0.5, 1e-5, "gdp")  # reached by about three questions in four
    storm, rng = Storm(tmp_path, cap), np.random.default_rng(kills)
    ended, hits = Counter[tuple[str, str]](), 0
    for number in range(kills):
        struck, state, hit = storm.strike(number, rng)
        ended[struck, state] += 1
        hits += hit
    assert hits > 0.5 * kills  # else the run was over before its strike
    # A broken connection costs no answer, and a hub that was away none either.
    assert not {("connection", "failed"), ("hub", "failed")} & ended.keys()
    assert sum(count for (_, state), count in ended.items() if state == "committed") > kills / 4
    for place, site in enumerate(storm.sites):
        taking = taking_in(site.database, site.world)
        site.database.who = "nobody"
        spent, price = site.spent(), 0
        for (part, _), noises in site.wire.sent.items():
            assert len(noises) == 1
            job = taking.job_of(part)
            assert job is not None
            assert job.state in BEGUN
        with site.database.read() as session:
            states = jobs.in_states(session, "claimed", "reserved", "requested")
            assert sum(states.values()) == 0
            charged = session.scalar(select(func.count()).where(Job.part_of.is_(None), Job.state.in_(BEGUN)))
            assert verify(lines(session, site.world.owner), [SIGNER.public_key]).faults == []
        assert charged
        price, rest = divmod(spent, charged)
        assert rest == 0
        assert price > 0
        assert spent <= cap.mu_squared
        with storm.database.read() as session:
            answered = session.scalars(
                select(SitePart.receipt)
                .join(Job, Job.id == SitePart.job_id)
                .where(Job.owner_id == storm.owners[place], Job.state == "committed")
            ).all()
            assert verify(lines(session, storm.owners[place]), [SIGNER.public_key]).faults == []
        assert 0 < len({json.loads(str(receipt))["statement"]["job"] for receipt in answered}) <= charged
        assert len(set(answered)) == len(answered)
    until(lambda: threading.active_count() < 50)
