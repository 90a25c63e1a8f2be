"""Answers of another party that are longer than anybody should read, and count how much was."""

import gzip
import json
from collections.abc import AsyncIterator, Iterator

import httpx

PIECE = 2**16
"""Bytes that are given at a time."""


class Counted(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that is given in pieces, and counts the bytes that were taken."""

    def __init__(self, body: bytes, times: int = 1) -> None:
        self.body, self.times, self.taken = body, times, 0

    def _pieces(self) -> Iterator[bytes]:
        for _ in range(self.times):
            for start in range(0, len(self.body), PIECE):
                piece = self.body[start : start + PIECE]
                self.taken += len(piece)
                yield piece

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces():
            yield piece


def endless() -> Counted:
    """A body of more bytes than any machine holds, without a declared length."""
    return Counted(b" " * PIECE, 10**9)


def packed(document: object, size: int = 50 * 2**20) -> bytes:
    """A small compressed body, which becomes a document and so many blanks."""
    return gzip.compress(json.dumps(document).encode() + b" " * size)


def answering(status: int = 200, content: bytes | object = b"") -> httpx.Response:
    """An answer that is a stream, as those of the network are; what is not bytes is written as JSON."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return httpx.Response(status, stream=Counted(body))
