"""Manners of the interface: ids of requests, tags of answers, and pages of other origins."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from pydantic import TypeAdapter

from privest_service.inputs import Moment
from testing import ROOT
from testing.server import Server, problem


@pytest.fixture
def backend() -> str:
    """None of this comes as far as a database's own manners."""
    return "sqlite"


LAB = "https://lab.example.org"


@pytest.fixture
def open_server(shared_server: Callable[..., Server]) -> Server:
    """A service that pages of one origin may call."""
    return shared_server(cors_origins=f"{LAB}, http://localhost:3000")


def test_the_callers_id_of_a_request_is_told_and_logged(server: Server) -> None:
    chosen = "a1-Z_9.~" * 8
    answer = server.admin.get("/v1/me", headers={"X-Request-ID": chosen})
    assert answer.headers["x-request-id"] == chosen
    logged = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert [line["route"] for line in logged if line.get("request") == chosen] == ["/v1/me"]


@pytest.mark.parametrize(
    "hostile", ["", "a" * 65, "a b", 'a","event":"x', "a\tb", "\u00e9", "a;b", "<b>", "%0a"]
)
def test_a_hostile_id_of_a_request_is_replaced(server: Server, hostile: str) -> None:
    answer = server.admin.get("/v1/me", headers={"X-Request-ID": hostile.encode("latin-1")})  # pyright: ignore
    assert answer.status_code == 200
    assert len(answer.headers["x-request-id"]) == 16
    assert set(answer.headers["x-request-id"]) <= set("0123456789abcdef")
    assert not hostile or hostile not in server.log.read_text()


def test_what_is_read_again_comes_only_if_it_changed(server: Server) -> None:
    owner, analyst = server.owner(), server.analyst()
    dataset = owner.dataset()
    for path in (
        f"/v1/datasets/{dataset}",
        "/v1/datasets",
        "/v1/ledger/keys",
        f"/v1/owners/{owner.id}/budget",
    ):
        first = owner.get(path)
        tag = first.headers["etag"]
        for names in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again = owner.get(path, headers={"If-None-Match": names})
            assert (again.status_code, again.content) == (304, b""), (path, names)
            assert again.headers["etag"] == tag
            assert "content-type" not in again.headers
        assert owner.get(path, headers={"If-None-Match": '"other"'}).content == first.content
    grant = f"/v1/datasets/{dataset}/grants/{analyst.id}"
    owner.grant(dataset, analyst)
    tag = owner.get(grant).headers["etag"]
    owner.grant(dataset, analyst, purpose="another")
    changed = owner.get(grant, headers={"If-None-Match": tag})
    assert (changed.status_code, changed.json()["purpose"]) == (200, "another")


def test_no_tag_opens_what_a_key_does_not(server: Server) -> None:
    path = f"/v1/datasets/{server.owner().dataset()}"
    assert server.owner().get(path, headers={"If-None-Match": "*"}).status_code == 404


def test_pages_of_an_allowed_origin_may_call(open_server: Server) -> None:
    asked = {
        "Origin": LAB,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,idempotency-key,prefer",
    }
    preflight = open_server.admin.request("OPTIONS", "/v1/estimates/frechet-mean", headers=asked)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == LAB
    assert "access-control-allow-credentials" not in preflight.headers
    answer = open_server.admin.get("/v1/me", headers={"Origin": LAB})
    assert answer.headers["access-control-allow-origin"] == LAB
    assert "x-request-id" in answer.headers["access-control-expose-headers"].lower()


@pytest.mark.parametrize(
    "origin", ["https://other.example.org", "http://lab.example.org", f"{LAB}.evil.org", f"{LAB}:444", "null"]
)
def test_pages_of_other_origins_may_not(open_server: Server, origin: str) -> None:
    asked = {"Origin": origin, "Access-Control-Request-Method": "GET"}
    assert open_server.admin.request("OPTIONS", "/v1/me", headers=asked).status_code == 400
    answer = open_server.admin.get("/v1/me", headers={"Origin": origin})
    assert "access-control-allow-origin" not in answer.headers


def test_without_the_setting_no_page_may_call(server: Server) -> None:
    answer = server.admin.get("/v1/me", headers={"Origin": LAB})
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_probes_answer_head_without_a_body(server: Server) -> None:
    for path in ("/healthz", "/readyz"):
        answer = server.admin.request("HEAD", path)
        assert (answer.status_code, answer.content) == (200, b"")
        told = problem(server.admin.post(path), 405, "method-not-allowed")
        assert told["detail"] == "Use one of GET, HEAD."


def test_a_date_alone_is_the_beginning_of_that_day_in_utc(server: Server) -> None:
    """Everywhere in the query strings of the interface where a timestamp may stand."""
    owner = server.owner()
    (made,) = [act for act in owner.get("/v1/acts").json()["acts"] if act["kind"] == "owner.created"]
    document = yaml.load((ROOT / "openapi.yaml").read_text(), yaml.CSafeLoader)
    taken = [
        (path, each["name"])
        for path, item in document["paths"].items()
        for each in item.get("get", {}).get("parameters", ())
        if each["in"] == "query" and "date-time" in str(each["schema"])
    ]
    assert len(taken) == 4
    for path, name in taken:
        assert owner.get(path, params={name: "2026-11-27"}).status_code == 200
        for wrong in ("2026-11", "2026-11-31", "20261127", "2026-11-27T12:00", "1", "tomorrow"):
            problem(owner.get(path, params={name: wrong}), 422, "invalid")
    day = datetime.fromisoformat(made["at"]).astimezone(UTC).date()
    for since, found in ((day, 1), (day + timedelta(days=1), 0)):
        acts = owner.get("/v1/acts", params={"since": str(since), "kind": "owner.created"}).json()["acts"]
        assert len(acts) == found
    assert TypeAdapter(Moment).validate_python("2026-11-27") == datetime(2026, 11, 27, tzinfo=UTC)
