"""What the dashboard says of a budget: shares that add up, forecasts, look-ups that no long ledger slows."""

import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event, text
from sqlalchemy.orm import make_transient
from structlog.testing import capture_logs

from privest_service.app import create_app
from privest_service.dashboard import budget_summary, entries
from privest_service.dashboard.budget_summary import BudgetSnapshot
from privest_service.dashboard.entries import Search
from privest_service.database import Database
from privest_service.datasets.housekeeping import sweep
from privest_service.datasets.store import Store
from privest_service.ledger import charges
from privest_service.ledger.models import Account, Entry
from privest_service.ledger.units import Charge, Limits
from privest_service.ledger.views import share_of_charge
from privest_service.settings import Settings
from testing.books import Books
from testing.server import ADMIN_KEY, HANG_GUARD, SPD3, npy, spd, until

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def books(database: Database) -> Books:
    return Books(database)


# Shares


@given(st.integers(0, 10**18), st.integers(0, 10**18), st.integers(1, 10**18), st.integers(1, 10**18))
def test_a_share_is_of_whichever_sum_is_nearer_its_limit(
    mu: int, slack: int, most: int, most_slack: int
) -> None:
    limits = Limits("gdp", 1, 1, most, most_slack)
    found = share_of_charge(limits, Charge(5, 5, mu, slack))
    assert found == max(mu / most, slack / most_slack)


def test_a_pure_budget_has_no_delta_to_share() -> None:
    limits = Limits("basic", 10, 0, 0, 0)
    assert share_of_charge(limits, Charge(4, 0, 10**9, 0)) == 0.4


# History


@pytest.mark.few(1)
def test_a_short_history_is_told_whole_and_a_long_one_by_its_shape(books: Books) -> None:
    account = books.open(Limits("gdp", 10**9, 10**15, 10**6, 10**6))
    with books.database.write() as session:
        for _ in range(600):
            books.reserve_in(session, {account: Charge(10**6, 0, 1000, 0)})
    with books.database.read() as session:
        held = session.get_one(Account, account)
        told = budget_summary.standing(session, held).history
        make_transient(held)
        held.seq = 100
        short = budget_summary._history(session, held)
    assert [moment.seq for moment in short] == list(range(1, 101))
    assert len(told) == budget_summary._POINTS
    assert (told[0].seq, told[-1].seq) == (1, 601)
    for moment in told:
        assert moment.left == pytest.approx(1 - (moment.seq - 1) / 1000, abs=1e-12)
        assert moment.left_basic == pytest.approx(1 - (moment.seq - 1) / 1000, abs=1e-12)
    gaps = [later.seq - earlier.seq for earlier, later in pairwise(told)]
    assert max(gaps) <= 1 + 600 / (budget_summary._POINTS - 1)


def moments(*told: tuple[float, float, str]) -> list[BudgetSnapshot]:
    """Days before now, what was left, and the kind of entry."""
    return [
        BudgetSnapshot(NOW - timedelta(days=days), left, left, "ε", i + 1, kind, None, "", None)
        for i, (days, left, kind) in enumerate(told)
    ]


@pytest.mark.parametrize(
    ("history", "days"),
    [
        pytest.param([(60, 1.0, "limit")], None, id="nothing spent"),
        pytest.param([(60, 1.0, "limit"), (0.01, 0.9, "debit")], None, id="too short to say"),
        pytest.param([(60, 1.0, "limit"), (10, 0.9, "debit"), (5, 0.8, "debit")], 40, id="since the first"),
        pytest.param(
            [(90, 1.0, "limit"), (80, 0.5, "debit"), (15, 0.4, "debit")], 120, id="in the last month"
        ),
        pytest.param([(90, 1.0, "limit"), (80, 0.5, "debit")], None, id="nothing in the last month"),
        pytest.param([(90, 1.0, "limit"), (20, 0.5, "debit"), (10, 1.0, "void")], None, id="all given back"),
        pytest.param([(20, 1.0, "limit"), (10, 0.0, "debit")], 0, id="nothing is left"),
        pytest.param([(90, 1.0, "limit"), (1, 1 - 1e-9, "debit")], 36500, id="a century at most"),
    ],
)
def test_the_forecast_goes_on_as_in_the_last_month(
    monkeypatch: pytest.MonkeyPatch, history: list[tuple[float, float, str]], days: float | None
) -> None:
    monkeypatch.setattr(budget_summary, "now", lambda: NOW)
    lasts = budget_summary._lasts(moments(*history))
    assert (lasts is None) == (days is None)
    if lasts is not None and days is not None:
        assert lasts / timedelta(days=1) == pytest.approx(days)


# Searching


def test_a_search_goes_a_stretch_at_a_time_and_loses_nothing(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "_STRETCH", 7)
    monkeypatch.setattr(entries, "_PAGE", 3)
    account = books.open(Limits("basic", 10**9, 10**9, 0, 0))
    with books.database.write() as session:
        jobs = [books.reserve_in(session, {account: Charge(1, 1, 1, 1)}) for _ in range(30)]
        for job in jobs[::4]:
            charges.void(session, job)
    with books.database.read() as session:
        held = session.get_one(Account, account)
        for wanted, expected in (
            ({}, range(39, 0, -1)),
            ({"state": "limit"}, [1]),
            ({"state": "voided"}, [*range(39, 31, -1), *range(30, 1, -4)]),
            ({"state": "failed"}, []),
            ({"text": "#17"}, [17]),
            ({"text": "99"}, []),
            ({"text": jobs[0]}, [32, 2]),
            ({"text": "no such name"}, []),
        ):
            seen, before = list[int](), None
            while True:
                found = entries.search(session, held, Search.model_validate(wanted | {"before": before}))
                seen += [entry.seq for entry, _ in found.rows]
                if found.further is None:
                    break
                assert before is None or found.further < before
                before = found.further
            assert seen == list(expected), wanted


# On a long ledger


@pytest.fixture
def served(tmp_path: Path, new_database: Any) -> Iterator[tuple[Database, httpx.Client, str]]:
    """The whole application over HTTP in this process, so that its statements are heard."""
    settings = Settings(
        admin_key=ADMIN_KEY, data_dir=tmp_path, database_url=new_database("sqlite"), workers=1
    )  # pyright: ignore
    app = create_app(settings)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=HANG_GUARD) as client:
        yield app.state.parts[Database], client, port
    server.should_exit = True
    thread.join(HANG_GUARD)


@pytest.mark.costly
def test_no_page_reads_a_table_from_end_to_end(
    served: tuple[Database, httpx.Client, str], tmp_path: Path
) -> None:
    database, client, _ = served
    as_admin = {"Authorization": f"Bearer {ADMIN_KEY}"}
    budget = {"epsilon": 1, "delta": 1e-5}
    owner = client.post("/v1/owners", headers=as_admin, json={"name": "x", "budget": budget}).json()
    analyst = client.post("/v1/analysts", headers=as_admin, json={"name": "y"}).json()
    as_owner = {"Authorization": f"Bearer {owner['key']}"}
    made = client.post(
        "/v1/datasets",
        headers=as_owner,
        files={"file": ("rows.npy", npy(spd(60)))},
        data={"schema": json.dumps(SPD3)},
    ).json()
    client.put(f"/v1/datasets/{made['id']}/grants/{analyst['id']}", headers=as_owner, json={})
    asked = client.post(
        "/v1/estimates/frechet-mean",
        headers=as_owner | {"Idempotency-Key": "k", "Prefer": "wait=240"},
        json={"dataset": {"id": made["id"]}, "privacy": {"epsilon": 0.1}},
    ).json()
    pages = {
        owner["key"]: [
            "",
            "/ledger",
            f"/ledger?analyst={analyst['id']}&dataset={made['id']}&kind=frechet-mean&state=committed&text=y",
            f"/ledger?text={asked['id']}",
            "/ledger/2",
            "/datasets",
            f"/datasets/{made['id']}",
            "/analysts",
            f"/what-if?dataset={made['id']}",
            "/answers",
            f"/answers?before={asked['id']}",
            f"/answers/{asked['id']}",
            "/budget",
            "/notices",
            "/questions",
            "/acts",
            "/acts?text=x&kind=grant.made&who=owner",
            "/keys",
        ],
        analyst["key"]: [
            "/granted",
            f"/granted/{made['id']}",
            f"/what-if?dataset={made['id']}",
            "/answers",
            "/keys",
        ],
        ADMIN_KEY: [
            "/admin",
            "/admin?frozen=true",
            "/admin/analysts",
            f"/admin/analysts/{analyst['id']}",
            f"/admin/owners/{owner['id']}",
            "/admin/service",
            "/acts",
        ],
    }
    said: dict[str, Any] = {}

    def hear(_: Any, __: Any, statement: str, parameters: Any, ___: Any, ____: Any) -> None:
        if statement.startswith("SELECT"):
            said[statement] = parameters

    for engine in (database._reader, database._writer):
        event.listen(engine, "before_cursor_execute", hear)
    for key, paths in pages.items():
        assert client.post("/dashboard/sign-in", data={"key": key}).status_code == 303
        for path in paths:
            answer = client.get(f"/dashboard{path}")
            assert answer.status_code == 200, (path, answer.text)
    sweep(database, Store(tmp_path))  # as the service does each second
    for engine in (database._reader, database._writer):
        event.remove(engine, "before_cursor_execute", hear)

    assert len(said) > 20
    grown = "|".join(table.name for table in Entry.metadata.sorted_tables)
    with database.engine.connect() as connection:
        for statement, parameters in said.items():
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            for *_, step in plan:
                # Refusals are of a minute; these indexes hold few datasets, and what waits to be delivered.
                few = re.search("SCAN refusals|INDEX ix_(datasets_ephemeral|deliveries_channel_id)", step)
                assert few or not re.match(rf"SCAN ({grown})\b", step), (step, statement)
        whole = connection.execute(text("EXPLAIN QUERY PLAN SELECT * FROM entries")).all()
    assert re.match(rf"SCAN ({grown})\b", whole[0][-1])  # what was looked for is what SQLite says


def test_why_a_page_failed_is_written_nowhere(
    served: tuple[Database, httpx.Client, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client, _ = served

    def fail(*_: Any) -> None:
        raise ValueError("a value of an answer")

    monkeypatch.setattr("privest_service.dashboard.pages.admin.share", fail)
    budget = {"epsilon": 1, "delta": 1e-5}
    as_admin = {"Authorization": f"Bearer {ADMIN_KEY}"}
    client.post("/v1/owners", headers=as_admin, json={"name": "x", "budget": budget})
    client.post("/dashboard/sign-in", data={"key": ADMIN_KEY})
    with capture_logs() as logs:
        answer = client.get("/dashboard/admin")
    assert answer.status_code == 500
    (told,) = [each for each in logs if each["event"] == "a page failed"]
    assert told["exc_info"] is True  # of which the log tells kind and place: see `test_logs`
    assert "a value of an answer" not in answer.text + repr(logs)
