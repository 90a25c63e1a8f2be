"""HTTP answers of other parties, of which no more is read than a stated number of bytes."""

import time

import httpx

PLAIN = {"Accept-Encoding": "identity"}
"""Header of a request that asks for an answer without compression."""


class UnfitAnswerError(Exception):
    """An answer that breaks a bound; the text says which one, and holds nothing of the answer."""


def read_body(answer: httpx.Response, most: int, seconds: float) -> bytes:
    """Return the body of an answer that was opened as a stream.

    A compressed body is refused, since a few bytes of it can become any number of bytes.

    Args:
        answer: to a request with the header `PLAIN`.
        most: bytes that the body may have. Beyond these, at most one further piece of it is received.
        seconds: that the whole body may take, so that one byte now and then does not hold the caller up.

    Raises:
        UnfitAnswerError: the body is compressed, or longer.
        httpx.ReadTimeout: it took longer.
        httpx.TransportError: the connection broke.
    """
    if answer.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise UnfitAnswerError("it is compressed, which was not asked for")
    declared = answer.headers.get("content-length", "")
    if declared.isascii() and declared.isdecimal() and (len(declared) > 18 or int(declared) > most):
        raise UnfitAnswerError(f"it has more than {most:,} bytes")
    body, latest = bytearray(), time.monotonic() + seconds
    for piece in answer.iter_bytes():
        body += piece
        if len(body) > most:
            raise UnfitAnswerError(f"it has more than {most:,} bytes")
        if time.monotonic() > latest:
            raise httpx.ReadTimeout(f"the body took longer than {seconds:g} s")
    return bytes(body)
