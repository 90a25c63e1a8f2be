"""The page after an upload says how many values lie outside the declared bounds, once and to its owner."""

import json
from collections.abc import Mapping

import httpx
import pytest
from fastapi import Request

from privest_service.dashboard.outside_bounds import handed_over
from testing.scenes import Desk
from testing.server import Server

SCHEMA = json.dumps(
    {
        "kind": "table",
        "columns": [
            {"name": "age <b>", "type": "integer", "low": 0, "high": 110},
            {"name": "dose", "type": "number", "low": 0, "high": 5},
        ],
    }
)
WITHIN, BEYOND = b"age <b>,dose\n30,1\n40,5\n", b"age <b>,dose\n-1,1\n400,7\n"


@pytest.fixture
def backend() -> str:
    """One database: the counts are in neither."""
    return "sqlite"


def uploaded(desk: Desk, content: bytes) -> httpx.Response:
    form = {"kind": "table", "schema": SCHEMA}
    return desk.post("/datasets/new", form, files={"file": ("rows.csv", content)})


def test_the_page_after_an_upload_shows_the_counts_once(server: Server) -> None:
    desk = Desk(server, server.owner().key)
    answers = [uploaded(desk, content) for content in (WITHIN, BEYOND)]
    pages = [each.headers["location"].removeprefix("/dashboard") for each in answers]
    # Nothing but the cookie differs: neither status nor address, which logs keep.
    assert [each.status_code for each in answers] == [303, 303]
    assert len(pages[0]) == len(pages[1])
    assert all("privest-outside-bounds=" in each.headers["set-cookie"] for each in answers)
    assert "outside the declared bounds" not in desk.get(pages[0]).text
    assert "nearer bound: 2 of age &lt;b&gt;, 1 of dose." in desk.get(pages[1]).text
    assert "outside the declared bounds" not in desk.get(pages[1].partition("?")[0]).text
    assert "outside" not in server.log.read_text()


@pytest.mark.parametrize(
    ("cookie", "shown"),
    [
        ("0:2.1:3", [("a", 2), ("b", 3)]),
        ("", []),
        ("7:1.x:2.1:-3.1:.:.0:0", []),
        ("1:" + "9" * 4000, []),
        ("<script>", []),
    ],
)
def test_a_forged_cookie_shows_numbers_of_columns_or_nothing(
    cookie: str, shown: list[tuple[str, int]]
) -> None:
    headers = [(b"cookie", f"privest-outside-bounds={cookie}".encode())]
    scope: Mapping[str, object] = {"type": "http", "headers": headers}
    assert handed_over(Request(dict(scope)), ["a", "b"]) == shown
