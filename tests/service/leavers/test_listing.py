"""Lists of people: whole or refused, from a csv and page by page from a SCIM service."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from privest_service.leavers import listing
from privest_service.leavers.listing import read
from testing.hostile import IN_BUFFERS, flooding


@contextmanager
def scim(answer: Callable[[int], tuple[int, Any]]) -> Iterator[str]:
    """A SCIM service that answers a page, by the number of the person that it begins with."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query)
            assert self.headers["Authorization"] == "Bearer opens"
            status, body = answer(int(asked.get("startIndex", ["1"])[0]))
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_address[1]}/scim/v2/"
    http.shutdown()
    http.server_close()


PEOPLE = [{"userName": f"p{i}", "active": i != 3} for i in range(5)]


def pages(size: int, total: int = len(PEOPLE)) -> Callable[[int], tuple[int, Any]]:
    return lambda first: (200, {"totalResults": total, "Resources": PEOPLE[first - 1 : first - 1 + size]})


@pytest.mark.parametrize("size", [1, 2, 5])
def test_all_pages_are_read(size: int) -> None:
    with scim(pages(size)) as place:
        found = read(place, "userName", "opens")
    assert found == {"p0": True, "p1": True, "p2": True, "p3": False, "p4": True}


BAD: dict[str, Callable[[int], tuple[int, Any]]] = {
    "cut short": pages(2, total=9),
    "refused": lambda _: (401, {}),
    "elsewhere": lambda _: (302, {}),
    "no JSON": lambda _: (200, b"<html>"),
    "no list": lambda _: (200, {"Resources": PEOPLE}),
    "a list": lambda _: (200, []),
    "of no number": lambda _: (200, {"totalResults": "5", "Resources": PEOPLE}),
    "of nobody": lambda _: (200, {"totalResults": 0}),
    "without names": lambda _: (200, {"totalResults": 1, "Resources": [{"active": True}]}),
    "of no objects": lambda _: (200, {"totalResults": 1, "Resources": ["p0"]}),
    "of resources that are none": lambda _: (200, {"totalResults": 1, "Resources": None}),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("how", BAD)
def test_a_list_that_is_not_whole_is_refused(how: str) -> None:
    with scim(BAD[how]) as place, pytest.raises(ValueError, match="Nothing was changed"):
        read(place, "userName", "opens")


def test_a_service_that_is_down_or_could_be_anybody_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be asked"):
        read("http://127.0.0.1:9/scim/v2", "userName", None)
    with pytest.raises(ValueError, match="https"):
        read("http://id.example.org/scim/v2", "userName", None)


def test_a_csv_names_people_and_may_say_who_is_active(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("\ufeffsub,active\nada,TRUE\nbob,no\neve,\nbob,false\n", encoding="utf-8")
    assert read(str(file), "sub", None) == {"ada": True, "bob": False, "eve": True}
    file.write_text("sub\nada\n")
    assert read(str(file), "sub", None) == {"ada": True}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sub\n", "nobody"),
        ("", "no column"),
        ("name\nada\n", "no column"),
        ("sub,active\nada,perhaps\n", "true or false"),
        ("sub\nada\n  \n", "without"),
        ("sub,active\n,true\n", "without"),
    ],
)
def test_a_csv_that_says_something_else_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "people.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=said):
        read(str(file), "sub", None)


def test_a_page_is_read_up_to_a_bound_and_not_unpacked() -> None:
    for headers in ({}, {"Content-Encoding": "gzip"}):
        with (
            flooding(headers) as flood,
            pytest.raises(ValueError, match=r"is refused: it (has|is)"),
        ):
            read(flood.url, "userName", None)
        (sent,) = flood.sent
        assert sent < listing._LARGEST_PAGE + IN_BUFFERS


def test_a_page_that_is_nested_deeply_is_no_list() -> None:
    with scim(lambda _: (200, b"[" * 10**6)) as place, pytest.raises(ValueError, match="Nothing was changed"):
        read(place, "userName", "opens")


def test_a_list_of_people_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_MOST_PEOPLE", 10)
    asked = list[int]()

    def further(first: int) -> tuple[int, Any]:
        asked.append(first)
        return 200, {"totalResults": 10**9, "Resources": [{"userName": f"p{first}"}]}

    with scim(further) as place, pytest.raises(ValueError, match="more than 10 people"):
        read(place, "userName", "opens")
    assert len(asked) == 11


def test_a_token_goes_through_no_proxy_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with scim(pages(5)) as place:
        assert read(place, "userName", "opens")["p0"]
