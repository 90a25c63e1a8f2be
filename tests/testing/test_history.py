"""A past that was written directly is a ledger like any other: it balances, and the service reads it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import select

from privest_service.database import Database
from privest_service.estimates.catalogue import KINDS
from privest_service.jobs.models import Job
from testing.history import past, signing_key
from testing.server import LABELLED, Server, books_balance, spd, told_apart


@pytest.mark.costly
@pytest.mark.parametrize("backend", ["postgresql"])  # on SQLite the hospital of all tests of pages has one
def test_a_past_is_a_ledger_like_any_other(
    start_server: Callable[..., Server], database: Database, tmp_path: Path
) -> None:
    server = start_server(signing_key_file=signing_key(tmp_path))
    owner, analysts = server.owner(3.0, 1e-5), [server.analyst(), server.analyst()]
    datasets = [
        owner.dataset(spd(500, 2), {"kind": "points", "manifold": {"name": "spd", "dim": 2}, "radius": 1.0}),
        owner.dataset(told_apart(apart=2.0), LABELLED),
    ]
    for analyst, dataset in zip(analysts, datasets, strict=True):
        assert owner.grant(dataset, analyst).status_code == 200
    since = datetime.now(UTC) - timedelta(weeks=8)
    past(database, owner, datasets, analysts, since=since, queries=30, seed=1)

    assert books_balance(server)
    budget = owner.budget()
    assert 0.6 < budget["spent"]["epsilon"] / 3.0 < 0.7
    entries = owner.ledger()[::-1]
    moments = [datetime.fromisoformat(entry["at"]) for entry in entries]
    assert all(before <= after for before, after in pairwise(moments))
    assert since < moments[0] < moments[-1] < datetime.now(UTC)
    assert {entry["submitter"] for entry in entries[1:]} == {owner.id, *(each.id for each in analysts)}
    with database.read() as session:
        jobs = session.scalars(select(Job).where(Job.owner_id == owner.id)).all()
    assert {job.state for job in jobs} == {"committed", "failed", "voided"}
    assert budget["queries"] == sum(job.state != "voided" for job in jobs)
    for job in jobs:
        assert job.created_at in moments
        if job.submitter_id == owner.id and job.state == "committed":
            assert KINDS[job.kind].job.model_validate(owner.get(f"/v1/jobs/{job.id}").json()).estimate
    assert owner.estimate(datasets[0]).json()["state"] == "committed"
    with pytest.raises(AssertionError, match="a past comes first"):
        past(database, owner, datasets, analysts, since=since, queries=30)
