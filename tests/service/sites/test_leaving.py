"""A site is killed in a run that may go on without it: the answer is the others', and all are charged."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from privest import manifolds
from privest_service.database import Database, now
from privest_service.jobs import service as jobs
from privest_service.signing import Signer
from testing.server import Server, books_balance, until
from testing.sites import sites
from testing.wire import Wire, wired

VECTORS = {"kind": "vectors", "dim": 5}
PLANE = np.eye(5, 2)
SPREAD = np.array([1.0, 0.8, 0.1, 0.1, 0.1])


def _lease_ends(server: Server) -> None:
    """Have what a killed worker ran be over."""
    database = Database(server.database_url, signer=Signer(server.signing_key.read_bytes()))
    database.run(lambda session: jobs.fail_overdue(session, now().replace(year=now().year + 1)))
    database.close()


@pytest.mark.costly
def test_a_run_of_three_goes_on_without_one_that_is_killed(
    tmp_path: Path, new_database: Callable[[str], str]
) -> None:
    wires = list[Wire]()
    with ExitStack() as stack:

        def through(url: str) -> str:
            wires.append(stack.enter_context(wired(url)))
            return wires[-1].url

        made = sites(tmp_path, lambda: new_database("sqlite"), 3, through)
        rng = np.random.default_rng(4)
        rows = [rng.standard_normal((2_000, 5)) * SPREAD for _ in range(3)]
        them = stack.enter_context(made).offering(rows, VECTORS)
        how = {"rank": 2, "loss": "squared", "steps": 60, "epsilon": 2.0, "may_leave": 1, "turns": 2}
        about = [{"id": each} for each in them.datasets]
        body = {"dataset": about, "privacy": {"epsilon": 2.0}, "rank": 2, "may_leave": 1}
        assert them.analyst.post("/v1/estimates/robust-pca/plan", json=body).json()["may_leave"] == 1
        asked = them.ask("robust-pca", wait=0, **how).json()["id"]
        until(lambda: len(wires[2].answers()) >= 5)
        lost = them.sites[2]
        lost.server.kill()
        _lease_ends(lost.server)
        lost.restart()
        job = them.analyst.ended(asked)
        assert job["state"] == "committed", job["sites"]
        assert [told["state"] for told in job["sites"]] == ["ended", "ended", "left"]
        assert 5 <= len(wires[2].answers()) < len(wires[0].answers()) == len(wires[1].answers())
        space = manifolds.get("grassmann", dim=5, rank=2)
        assert space.dist(np.array(job["estimate"]["basis"]), PLANE) < 0.3
        assert job["uncertainty"] is None
        assert any("left" in told for told in job["warnings"])
        for site in them.sites:  # whoever left stays charged
            assert site.owner.budget()["spent"]["epsilon"] > 0
        assert all(books_balance(server) for server in them.servers())
