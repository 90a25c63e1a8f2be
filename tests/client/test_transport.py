"""What the client sends its key to, and how much of an answer it reads."""

import asyncio
from typing import Any

import httpx
import pytest

from privest_client import AsyncClient, Client, PrivestError, calls
from privest_client.errors import UnexpectedAnswer
from testing.hostile import PIECE, Counted, endless, packed

PROXY = "http://proxy.example:3128"
MOST = 10 * PIECE


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    "url",
    [
        "http://privest.example",
        "HTTP://privest.example:8000/root",
        "http://192.0.2.1:8000",
        "http://0.0.0.0:8000",
        "http://localhost.example",
        "http://127.0.0.1@privest.example",
        "http://[2001:db8::1]",
        "privest.example",
        "",
    ],
)
def test_a_key_goes_to_no_other_machine_unencrypted(kind: Any, url: str) -> None:
    with pytest.raises(
        PrivestError, match=r"unencrypted to .*https://.*plain_http=True.*PRIVEST_PLAIN_HTTP=1"
    ):
        kind(url, "key")


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8000", "http://127.8.8.8", "http://localhost", "http://[::1]:8000/root", "https://x"],
)
def test_it_goes_within_this_machine_and_encrypted_anywhere(kind: Any, url: str) -> None:
    assert str(kind(url, "key")._http.base_url).rstrip("/") == url


def test_the_caller_may_say_that_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Client("http://privest.example", "key", plain_http=True)._http.base_url.host == "privest.example"
    monkeypatch.setenv("PRIVEST_URL", "http://privest.example")
    monkeypatch.setenv("PRIVEST_KEY", "key")
    for said in (None, "", "0", "yes"):
        if said is not None:
            monkeypatch.setenv("PRIVEST_PLAIN_HTTP", said)
        with pytest.raises(PrivestError, match=r"unencrypted to privest\.example"):
            Client.from_env()
    monkeypatch.setenv("PRIVEST_PLAIN_HTTP", "1")
    assert Client.from_env()._http.base_url.host == "privest.example"


def test_no_proxy_reads_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the environment has no part in calls within this machine; one that is given is a machine too."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, PROXY)
    assert Client("http://127.0.0.1:8000", "key")._http._mounts == {}
    assert Client("https://privest.example", "key")._http._mounts
    with pytest.raises(PrivestError, match=r"unencrypted to proxy\.example"):
        Client("http://127.0.0.1:8000", "key", proxy=PROXY)
    Client("http://127.0.0.1:8000", "key", proxy=PROXY, plain_http=True)
    Client("http://127.0.0.1:8000", "key", proxy="http://127.0.0.1:3128")
    Client("https://privest.example", "key", proxy=PROXY)


def asked(kind: Any, headers: dict[str, str], body: Counted) -> httpx.Response:
    """Ask a service that answers so."""

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["accept-encoding"] == "identity"
        return httpx.Response(200, headers=headers, stream=body)

    client = kind("https://x", "key")
    http = type(client._http)
    client._http = http(
        base_url="https://x", headers=client._http.headers, transport=httpx.MockTransport(answer)
    )
    found = client.run(calls.call(calls.Request("GET", "/v1/me", most=MOST)))
    return asyncio.run(found) if asyncio.iscoroutine(found) else found


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_no_more_of_an_answer_is_read_than_a_document_may_have(
    kind: Any,
) -> None:
    body = endless()
    with pytest.raises(UnexpectedAnswer, match="more than 655,360 bytes"):
        asked(kind, {}, body)
    assert body.taken == MOST + PIECE
    for headers in ({"Content-Length": str(MOST + 1)}, {"Content-Length": "9" * 5000}):
        body = endless()
        with pytest.raises(UnexpectedAnswer, match="more than"):
            asked(kind, headers, body)
        assert body.taken == 0


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_compressed_answer_is_refused_unread(kind: Any) -> None:
    body = Counted(packed({}))
    with pytest.raises(UnexpectedAnswer, match="compressed"):
        asked(kind, {"Content-Encoding": "gzip"}, body)
    assert body.taken == 0
    assert asked(kind, {}, Counted(b"{}")).json() == {}
