"""Requests through `Route`, in an application that has nothing else."""

import asyncio
import threading
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from privest.memo import memoized
from privest_service.database import Database
from privest_service.ledger.service import create_owner
from privest_service.ledger.units import Limits
from privest_service.limits import Limiter
from privest_service.security.admission import Route
from privest_service.security.authentication import Authenticator
from privest_service.security.dependencies import ReadDep
from privest_service.security.rate_limit import RateLimiter
from testing.server import ADMIN_KEY, HANG_GUARD


def test_nothing_that_one_request_computed_makes_another_faster() -> None:
    """Within a request each result is computed once, in its threads, too."""
    computed = list[int]()

    @memoized
    def double(number: int) -> int:
        computed.append(number)
        return 2 * number

    router = APIRouter(route_class=Route)

    @router.get("/double")
    def asked(number: int) -> int:
        return double(number) + double(number)

    app = FastAPI()
    app.include_router(router)
    app.state.parts = {Limiter: Limiter()}

    async def ask() -> list[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            return [(await client.get(f"/double?number={number}")).json() for number in (2, 2, 3)]

    assert asyncio.run(ask()) == [8, 8, 12]
    assert computed == [2, 2, 3]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_callers_of_a_database_that_hangs_do_not_hold_up_the_event_loop(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of 64 callers are recognised once it answers, and meanwhile a health check is answered."""
    with database.write() as session:
        _, key = create_owner(session, "x", Limits.of(1.0, 1e-5, "gdp"))
    first, waiting, go_on = database.first, list[int](), threading.Event()

    def slow(*given: Any, **values: Any) -> Any:
        waiting.append(threading.get_ident())
        assert go_on.wait(HANG_GUARD)
        return first(*given, **values)

    monkeypatch.setattr(database, "first", slow)
    router, app = APIRouter(route_class=Route), FastAPI()

    @router.get("/who")
    def who(caller: ReadDep) -> str:
        return caller.role

    @app.get("/healthz")
    async def healthz() -> str:
        return "ok"

    app.include_router(router)
    authenticator = Authenticator(database, RateLimiter("1000/minute"), ADMIN_KEY, b"")
    app.state.parts = {Limiter: Limiter(), Authenticator: authenticator}

    async def ask() -> None:
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://here", timeout=HANG_GUARD
        ) as client:
            callers = [asyncio.create_task(client.get("/who", headers=headers)) for _ in range(64)]
            while not waiting:
                await asyncio.sleep(0.01)
            assert (await client.get("/healthz")).json() == "ok"
            assert not any(each.done() for each in callers)
            go_on.set()
            assert {each.json() for each in await asyncio.gather(*callers)} == {"owner"}

    asyncio.run(ask())
    assert len(waiting) == 64
    assert threading.get_ident() not in waiting
