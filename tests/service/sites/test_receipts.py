"""Receipts of a site that lies: each is of one job of the hub."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from privest_service.jobs import service as jobs
from privest_service.ledger.receipts import Receipt
from privest_service.ledger.units import Limits
from privest_service.sites import connector
from testing.server import until
from testing.stepped_sites import Together, Wire


@dataclass
class ForgetfulWire(Wire):
    """Sends the receipt of the first job for each later one."""

    first: dict[str, Any] | None = None

    def call(self, method: str, path: str, **content: Any) -> httpx.Response:
        if path.endswith("/end"):
            self.first = self.first or content["json"]
            content = content | {"json": self.first}
        return super().call(method, path, **content)


def test_the_receipt_of_an_earlier_job_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both jobs have the same plan, and the receipt is truly signed. The job stays without one."""
    monkeypatch.setattr(connector, "_PATIENCE", 0.0)
    them = Together(tmp_path, Limits.of(2.0, 1e-5, "gdp"))
    liar = them.sites[0]
    liar.wire = wire = ForgetfulWire(**vars(liar.wire))
    first = them.ask(0)
    until(lambda: them.turn() or them.is_over(first))
    assert them.state(first) == "committed"
    second = them.ask(1)

    def ended() -> list[str]:
        with them.database.read() as session:
            parts = jobs.site_parts(session, *(part.id for part in them.parts(second)))
            return sorted(part.state for part in parts)

    until(lambda: them.turn() or "ended" in ended())
    until(lambda: them.turn() or not (them.working() or any(them.claimed())))
    them.turn()
    assert them.state(second) == "claimed"
    assert ended() == ["accepted", "ended"]
    assert wire.first is not None
    told = Receipt.model_validate(wire.first["receipt"]).statement
    assert told.hub_job == them.parts(first)[0].id
    for database in (them.database, *(site.database for site in them.sites)):
        database.close()
