"""Connections that do not wait for ever: uvicorn's, which let go of clients that keep them waiting."""

import asyncio
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from privest_service.problems import blank

_LEAST = 4096
"""Fewest bytes that a client must bring or take between two looks while it is waited for."""

_TOGETHER = 2**16
"""Bytes from which on what was written does not wait for more."""


class _Joining:
    """A transport that sends together what is written in one turn of the event loop: a head with its body.

    Each time that something is sent its reader is woken.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._waiting, self._size = list[bytes](), 0

    def write(self, data: bytes) -> None:
        """Send soon."""
        if data and not self._waiting:
            self._loop.call_soon(self._send)
        if data:
            self._waiting.append(data)
            self._size += len(data)
        if self._size >= _TOGETHER:
            self._send()

    def _send(self) -> None:
        if waiting := self._waiting:
            self._waiting, self._size = [], 0
            self._transport.writelines(waiting)

    def get_write_buffer_size(self) -> int:
        """Bytes that are not taken yet."""
        return self._size + self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Send what was written, and close."""
        self._send()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class PacedProtocol(H11Protocol):
    """Looks now and then whether it waits for its client, and how far that has come since.

    uvicorn itself waits for ever for the rest of a head or a body, and for somebody to take an answer.

    A connection is looked at every `patience` seconds.
    """

    def __init__(self, patience: float, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self._patience = patience

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin to watch the client."""
        super().connection_made(_Joining(transport, self.loop))  # pyright: ignore[reportArgumentType]
        self._brought, self._took, self._left = 0, 0, 0
        self._awaited: tuple[str, object] | None = None
        self._next = self.loop.call_later(self._patience, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching the client."""
        self._next.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count bytes that the client sent."""
        self._brought += len(data)
        super().data_received(data)

    def resume_writing(self) -> None:
        """Count bytes that the client took, once most of what waited for it is gone."""
        self._took += _LEAST
        super().resume_writing()

    def _waits_for(self, left: int) -> str | None:
        """Name what only the client can do now; None where it is our turn, or nobody's."""
        if left or self.transport.is_closing():
            return "answer"
        if self.conn.their_state is h11.SEND_BODY:
            if self.cycle.response_complete:
                return "rest"
            return None if self.flow.read_paused else "body"
        # Between two requests uvicorn itself counts the seconds.
        idle = self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None
        return "head" if idle else None

    def _look(self) -> None:
        left = self.transport.get_write_buffer_size()
        what = self._waits_for(left)
        awaited = (what, self.cycle) if what else None
        moved = self._took + max(0, self._left - left) if what == "answer" else self._brought
        # Nobody reads the rest of a body that was answered: it ends soon, at whatever pace.
        if awaited and awaited == self._awaited and (moved < _LEAST or what == "rest"):
            if what in ("head", "body"):
                self._refuse(408)
            else:
                self.transport.abort()
        self._brought, self._took, self._left, self._awaited = 0, 0, left, awaited
        self._next = self.loop.call_later(self._patience, self._look)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Refuse what is no HTTP, as a problem document."""
        fault = sys.exception()
        self._refuse(fault.error_status_hint if isinstance(fault, h11.RemoteProtocolError) else 400)

    def _refuse(self, status: int) -> None:
        """Answer where that can still be done, and close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = blank(status, {"Connection": "close"})
            for event in (
                h11.Response(status_code=status, headers=answer.raw_headers),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
            if self.cycle:  # whose answer would come second
                self.cycle.disconnected = True
                self.cycle.message_event.set()
        self.transport.close()
