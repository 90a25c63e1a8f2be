"""Keys for some things alone, and for some time: what each opens, what it may issue, and when it ends."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import httpx
import pytest
import yaml
from sqlalchemy import update

from harness import HANG_GUARD, PLAIN, SPD3, Caller, Server, body_of, npy, problem, spd, until
from privest_service.database import Database, now
from privest_service.database.tables import new_id
from privest_service.estimates import service as estimates
from privest_service.estimates.kinds import KINDS
from privest_service.interface import document
from privest_service.ledger import service as ledger
from privest_service.ledger.models import IdempotencyKey, Job
from privest_service.security.keys import SCOPES
from privest_service.security.models import ApiKey
from privest_service.security.principals import Credential, Principal
from privest_service.security.service import is_good_yet


def issued(by: Caller, role: str = "owner", **asked: Any) -> dict[str, Any]:
    """One more key, from another."""
    answer = by.post(f"/v1/{role}s/{by.id}/keys", json=asked)
    assert answer.status_code == 201, answer.text
    return answer.json()


def with_key(by: Caller, role: str = "owner", **asked: Any) -> Caller:
    """The same principal, with one more key."""
    return Caller(by.server, by.id, issued(by, role, **asked)["key"])


def lacks(answer: httpx.Response, scope: str) -> None:
    """Refused, with the name of the scope that would have done."""
    assert problem(answer, 403, "forbidden")["detail"].endswith(f"with the scope {scope}")
    assert answer.headers["www-authenticate"] == f'Bearer error="insufficient_scope", scope="{scope}"'


def ended(server: Server, key_id: str) -> None:
    """Let a key's time be over."""
    database = Database(server.database_url)
    with database.write() as session:
        session.execute(
            update(ApiKey).where(ApiKey.id == key_id).values(expires_at=now() - timedelta(seconds=1))
        )
    database.close()


def operations() -> Iterator[tuple[str, str, list[str]]]:
    """All of the interface that ask who calls, with the scopes that each names."""
    for path, methods in yaml.load(document(), yaml.CSafeLoader)["paths"].items():
        for method, operation in methods.items():
            if path.startswith("/v1"):
                (needed,) = operation["security"]
                yield method, path, needed["HTTPBearer"]


def test_every_operation_names_one_scope() -> None:
    named = {(method, path): scopes for method, path, scopes in operations()}
    assert not {each: scopes for each, scopes in named.items() if len(scopes) != 1 or scopes[0] not in SCOPES}
    assert {scope for scopes in named.values() for scope in scopes} == set(SCOPES)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_every_operation_asks_for_the_scope_that_it_names(server: Server) -> None:
    owner = server.owner()
    keys = {scope: with_key(owner, scopes=[scope]) for scope in SCOPES}
    for method, path, (needed,) in operations():
        for scope, caller in keys.items():
            answer = caller.request(method, path.replace("{", "").replace("}", ""))
            if scope == needed:
                assert "insufficient_scope" not in answer.headers.get("www-authenticate", ""), path
            else:
                lacks(answer, needed)


def test_keys_for_a_part_of_the_work(server: Server) -> None:
    owner, analyst = server.owner(), server.analyst()
    brings, watches = with_key(owner, scopes=["data"]), with_key(owner, scopes=["read"])
    dataset = brings.dataset()
    owner.grant(dataset, analyst)
    lacks(brings.get(f"/v1/owners/{owner.id}/ledger"), "read")
    lacks(brings.estimate(dataset), "estimate")
    assert watches.ledger() == owner.ledger()
    lacks(watches.upload(npy(spd(5)), SPD3), "data")
    lacks(watches.grant(dataset, analyst), "manage")
    lacks(watches.patch(f"/v1/owners/{owner.id}/budget", json={"epsilon": 9}), "manage")
    plans = with_key(analyst, "analyst", scopes=["read"])
    spends = with_key(analyst, "analyst", scopes=["read", "estimate"])
    assert plans.plan(dataset).status_code == 200
    lacks(plans.estimate(dataset), "estimate")
    assert owner.budget()["queries"] == 0
    job = spends.estimate(dataset).json()
    assert plans.get(f"/v1/jobs/{job['id']}").json() == job
    assert owner.budget()["queries"] == 1
    lacks(spends.post(f"/v1/analysts/{analyst.id}/keys"), "manage")


def test_a_key_issues_none_that_is_for_more_or_for_longer(server: Server) -> None:
    owner = server.owner()
    keys = f"/v1/owners/{owner.id}/keys"
    some = with_key(owner, scopes=["manage", "read"], expires_in=3600)
    lacks(some.post(keys, json={"scopes": ["read", "data"]}), "data")
    refused = problem(some.post(keys, json={"expires_in": 7200}), 403, "forbidden")
    assert "ends after itself" in refused["detail"]
    assert len(owner.get(keys).json()["keys"]) == 2
    # What it does not say, it has of the one that issues it.
    alike, less = issued(some), issued(some, scopes=["read"], expires_in=60)
    assert alike["scopes"] == ["read", "manage"]
    assert alike["expires_at"] == issued(some, scopes=["read"])["expires_at"]
    assert less["expires_at"] < alike["expires_at"]
    again = Caller(server, owner.id, alike["key"])
    lacks(again.post(keys, json={"scopes": ["estimate"]}), "estimate")
    whole = issued(Caller(server, owner.id, server.admin.key))
    assert (whole["scopes"], whole["expires_at"]) == (list(SCOPES), None)


def test_keys_are_listed_and_not_shown(server: Server) -> None:
    owner, other, analyst = server.owner(), server.owner(), server.analyst()
    keys = f"/v1/owners/{owner.id}/keys"
    first, second = issued(owner, scopes=["data", "data"]), issued(owner, expires_in=86_400)
    assert owner.delete(f"{keys}/{first['id']}").status_code == 204
    listed = owner.get(keys)
    for key in (first["key"], second["key"], owner.key):
        assert key not in listed.text
    found = {each["id"]: each for each in listed.json()["keys"]}
    assert len(found) == 3
    assert [*found][-1] == first["id"]  # revoked ones come last
    assert set(found[first["id"]]) == {"id", "scopes", "created_at", "expires_at", "revoked_at"}
    assert found[first["id"]]["scopes"] == ["data"]
    assert found[first["id"]]["revoked_at"]
    assert found[second["id"]]["scopes"] == list(SCOPES)
    left = datetime.fromisoformat(found[second["id"]]["expires_at"]) - datetime.now(UTC)
    assert timedelta(hours=23) < left < timedelta(hours=25)
    assert server.admin.get(keys).json() == listed.json()
    problem(other.get(keys), 404, "not-found")
    problem(analyst.get(keys), 403, "forbidden")
    (own,) = analyst.get(f"/v1/analysts/{analyst.id}/keys").json()["keys"]
    assert own["scopes"] == list(SCOPES)
    problem(server.analyst().get(f"/v1/analysts/{analyst.id}/keys"), 404, "not-found")


def test_a_key_may_always_end_itself_and_no_other_by_that(server: Server) -> None:
    owner = server.owner()
    keys = f"/v1/owners/{owner.id}/keys"
    one, two = issued(owner, scopes=["data"]), issued(owner, scopes=["data"])
    caller = Caller(server, owner.id, one["key"])
    lacks(caller.delete(f"{keys}/{two['id']}"), "manage")
    problem(caller.delete(f"/v1/owners/own_x/keys/{one['id']}"), 404, "not-found")
    assert caller.delete(f"{keys}/{one['id']}").status_code == 204
    problem(caller.delete(f"{keys}/{one['id']}"), 401, "unauthenticated")


def test_an_end_takes_effect_at_the_next_request_and_for_sessions_too(server: Server) -> None:
    owner = server.owner()
    key = issued(owner, expires_in=3600)
    caller = Caller(server, owner.id, key["key"])
    with httpx.Client(base_url=server.url, verify=PLAIN) as browser:
        assert browser.post("/dashboard/sign-in", data={"key": key["key"]}).status_code == 303
        assert browser.get("/dashboard").status_code == caller.get("/v1/datasets").status_code == 200
        ended(server, key["id"])
        problem(caller.get("/v1/datasets"), 401, "unauthenticated")
        assert browser.get("/dashboard").headers["location"] == "/dashboard/sign-in"
        assert browser.post("/dashboard/sign-in", data={"key": key["key"]}).status_code == 401
    assert owner.get("/v1/datasets").status_code == 200


@contextmanager
def under_way(owner: Caller, dataset: str, key: str) -> Iterator[str]:
    """A free job that goes on until nobody looks any more, and what it is asked for under a key."""
    kind, nothing = KINDS["frechet-mean"], cast("Any", None)
    request = kind.request.model_validate(body_of(dataset, 0.1))
    asked = estimates.asked(nothing, Principal("owner", owner.id), kind, request, key)
    job = Job(
        id=new_id("job"),
        kind=kind.name,
        submitter_id=owner.id,
        owner_id=owner.id,
        dataset_id=dataset,
        spec_digest="",
        plan="{}",
        dummy=True,
    )
    bound = IdempotencyKey(principal_id=owner.id, key=key, body_digest=asked.digest, job_id=job.id)
    database = Database(owner.server.database_url)
    with database.write() as session:
        ledger.reserve_free(session, job, bound)
        ledger._move(session, Job.id == job.id, "reserved", "claimed", lease_until=now() + timedelta(hours=1))
    try:
        yield job.id
    finally:
        with database.write() as session:
            assert ledger.fail(session, job.id)
        database.close()


def test_what_waits_or_watches_under_a_key_ends_with_it(server: Server) -> None:
    owner = server.owner()
    dataset, key = owner.dataset(), issued(owner)
    caller = Caller(server, owner.id, key["key"])
    with under_way(owner, dataset, "k") as job, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(caller.estimate, dataset, key="k", wait=600)
        with httpx.stream("GET", f"{server.url}/v1/jobs/{job}/events", headers=caller.headers) as events:
            lines = events.iter_lines()
            assert {next(lines), next(lines)} == {"event: state", 'data: "claimed"'}
            assert owner.delete(f"/v1/owners/{owner.id}/keys/{key['id']}").status_code == 204
            assert not any("data" in line for line in lines)
        problem(waiting.result(HANG_GUARD), 401, "unauthenticated")
        assert waiting.result().headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(("seconds", "good"), [(None, True), (60, True), (-1, False)])
def test_a_token_is_good_until_its_end(seconds: int | None, good: bool) -> None:
    end = None if seconds is None else now() + timedelta(seconds=seconds)
    nothing: Any = None
    assert is_good_yet(nothing, Credential(Principal("owner", "own_x"), until=end)) is good


def test_streams_of_a_caller_are_few(server: Server) -> None:
    owner, analyst = server.owner(), server.analyst()
    dataset = owner.dataset()
    owner.grant(dataset, analyst)
    other = analyst.estimate(dataset).json()["id"]
    with under_way(owner, dataset, "k") as job, ExitStack() as stack, httpx.Client(verify=PLAIN) as client:

        def watch() -> httpx.Response:
            events = client.stream("GET", f"{server.url}/v1/jobs/{job}/events", headers=owner.headers)
            return stack.enter_context(events)

        assert [watch().status_code for _ in range(14)] == [200] * 12 + [429] * 2
        assert owner.get("/v1/datasets").status_code == 200
        assert analyst.get(f"/v1/jobs/{other}/events").status_code == 200
        stack.close()
        until(lambda: watch().status_code == 200)


@pytest.mark.parametrize(
    "asked",
    [
        {"scopes": []},
        {"scopes": ["everything"]},
        {"scopes": "read"},
        {"scopes": ["read"] * 5},
        {"expires_in": 0},
        {"expires_in": -1},
        {"expires_in": 1.5},
        {"expires_in": "60"},
        {"expires_in": 10**12},
        {"expires_at": "2999-01-01"},
    ],
)
@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_bad_wish_for_a_key(server: Server, asked: dict[str, Any]) -> None:
    owner = server.owner()
    problem(owner.post(f"/v1/owners/{owner.id}/keys", json=asked), 422, "invalid")
    assert len(owner.get(f"/v1/owners/{owner.id}/keys").json()["keys"]) == 1
