"""Requests through `Route`, in an application that has nothing else."""

import asyncio

import httpx
from fastapi import APIRouter, FastAPI

from privest.memo import memoized
from privest_service.limits import Limiter
from privest_service.security.admission import Route


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
