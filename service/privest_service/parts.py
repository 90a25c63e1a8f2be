"""The parts of one running service: made once by the application, and handed to endpoints by their types."""

from typing import Any

from fastapi import Depends, Request


def running(part: type[object]) -> Any:
    """Return the annotation by which FastAPI hands the running part of a type to an endpoint."""

    async def found(request: Request) -> object:
        return request.app.state.parts[part]

    return Depends(found)
