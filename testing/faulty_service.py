"""The service with faults in it, each with a secret in all that it says: run in place of `privest`."""

import asyncio
import gc
import logging
import os
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import FastAPI, Request
from sqlalchemy import text
from starlette.responses import StreamingResponse

from privest_service import app as application
from privest_service.cli import main
from privest_service.database import Database
from privest_service.workers.service import Workers

SECRET = "sk-4711-0815"  # noqa: S105
"""Stands for a row, a key or an estimate: what no log may hold."""


def _raise(*_: object) -> None:
    raise RuntimeError(SECRET) from ValueError(f"{SECRET} was the cause")


def shout(what: str) -> None:
    """Say it in a worker, in all ways."""
    warnings.warn(what, stacklevel=1)
    logging.getLogger("worker").error(what)
    print(what, file=sys.stderr)
    os.write(1, what.encode())  # as a library that is written in C
    raise RuntimeError(what)


def _handler(_: Request) -> None:
    _raise()


def _statement(request: Request) -> None:
    with request.app.state.parts[Database].read() as session:
        session.execute(text("SELECT CAST(:given AS integer)"), {"given": SECRET})


def _library(_: Request) -> None:
    log = logging.getLogger("a.library")
    log.warning("it holds %s", SECRET)
    log.error(f"it holds {SECRET}")
    log.error(ValueError(SECRET))
    log.log(35, "a level of its own, %(what)s", {"what": SECRET})


def _warning(_: Request) -> None:
    warnings.warn(SECRET, stacklevel=1)


def _thread(_: Request) -> None:
    thread = threading.Thread(target=_raise)
    thread.start()
    thread.join()


def _unheard(_: Request) -> None:
    class Left:
        __del__ = _raise

    Left()


async def _task(_: Request) -> None:
    async def fail() -> None:
        _raise()

    asyncio.get_running_loop().create_task(fail())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.collect()


async def _late(_: Request) -> StreamingResponse:
    async def body() -> AsyncIterator[bytes]:
        yield b"begun"
        _raise()

    return StreamingResponse(body())


async def _worker(request: Request) -> None:
    await request.app.state.parts[Workers].in_worker("plan", shout, SECRET)


FAULTS: dict[str, Callable[[Request], Any]] = {
    "handler": _handler,
    "statement": _statement,
    "library": _library,
    "warning": _warning,
    "thread": _thread,
    "unheard": _unheard,
    "task": _task,
    "late": _late,
    "worker": _worker,
}
"""The faults, by the request path that triggers each."""


def _with_faults(plain: Callable[..., FastAPI]) -> Callable[..., FastAPI]:
    def create(*given: Any) -> FastAPI:
        app = plain(*given)
        for name, fault in FAULTS.items():
            app.add_api_route(f"/faults/{name}", fault, name=name, response_model=None)
        return app

    return create


if __name__ == "__main__":
    application.create_app = _with_faults(application.create_app)
    sys.exit(main())
