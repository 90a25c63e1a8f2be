"""Answers of others are read up to a bound, and not beyond it."""

import httpx
import pytest

from privest_service import bounded_http
from privest_service.bounded_http import PLAIN, UnfitAnswerError, read_body
from testing.hostile import PIECE, Counted, endless, packed

MOST = 10 * PIECE


def read(body: Counted, headers: dict[str, str] | None = None) -> bytes:
    """Read a body as callers do."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, stream=body))
    with (
        httpx.Client(transport=transport, headers=PLAIN) as client,
        client.stream("GET", "http://x") as answer,
    ):
        return read_body(answer, MOST, 5.0)


def test_a_body_is_read_up_to_the_bound() -> None:
    assert read(Counted(b"x" * MOST), {"Content-Length": str(MOST)}) == b"x" * MOST
    assert read(Counted(b"x", MOST), {"Content-Encoding": "identity"}) == b"x" * MOST


def test_no_more_is_read_than_the_bound_and_a_piece() -> None:
    body = endless()
    with pytest.raises(UnfitAnswerError, match="more than 655,360 bytes"):
        read(body)
    assert body.taken == MOST + PIECE


@pytest.mark.parametrize(
    "headers",
    [{"Content-Length": str(MOST + 1)}, {"Content-Length": "9" * 5000}, {"Content-Encoding": "gzip"}],
)
def test_nothing_is_read_of_what_says_that_it_is_too_long_or_compressed(headers: dict[str, str]) -> None:
    body = endless()
    with pytest.raises(UnfitAnswerError):
        read(body, headers)
    assert body.taken == 0


def test_a_compressed_body_is_not_unpacked() -> None:
    body = Counted(packed({}))
    with pytest.raises(UnfitAnswerError, match="compressed"):
        read(body, {"Content-Encoding": "gzip"})
    # One that does not say so is bytes like others.
    plain = packed({})
    assert read(Counted(plain)) == plain


def test_a_body_that_comes_byte_by_byte_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(100))
    monkeypatch.setattr(bounded_http.time, "monotonic", lambda: float(next(seconds)))
    body = Counted(b"x", 100)
    with pytest.raises(httpx.ReadTimeout):
        read(body)
    assert body.taken == 6
