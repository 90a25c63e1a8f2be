"""Keys for some things alone, and for some time: what each opens, what it may issue, and when it ends."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, cast

import httpx
import pytest
import yaml
from sqlalchemy import select, text, update

from privest_service.database import Database, now
from privest_service.database.tables import new_id
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.service import Query
from privest_service.jobs import service as jobs
from privest_service.jobs.models import IdempotencyKey, Job
from privest_service.openapi import document
from privest_service.problems import Invalid, Unauthenticated
from privest_service.security.authentication import Authenticator
from privest_service.security.keys import SCOPES, new_key
from privest_service.security.models import ApiKey
from privest_service.security.principals import Credential, Principal
from privest_service.security.service import issue_key, keys_of, revoke_key
from testing.server import HANG_GUARD, PLAIN, SPD3, Caller, Server, body_of, npy, problem, spd, until
from testing.world import submissions_on


def issued(by: Caller, role: str = "owner", **asked: Any) -> dict[str, Any]:
    """One more key, from another."""
    answer = by.post(f"/v1/{role}s/{by.id}/keys", json=asked)
    assert answer.status_code == 201, answer.text
    return answer.json()


def with_key(by: Caller, role: str = "owner", **asked: Any) -> Caller:
    """The caller with one more key of its own."""
    return Caller(by.server, by.id, issued(by, role, **asked)["key"])


def lacks(answer: httpx.Response, scope: str) -> None:
    """Refused, with the name of the scope that would have done."""
    assert problem(answer, 403, "forbidden")["detail"].endswith(f"with the scope {scope}.")
    assert answer.headers["www-authenticate"] == f'Bearer error="insufficient_scope", scope="{scope}"'


def ended(server: Server, key_id: str) -> None:
    """Let a key's time be over."""
    database = Database(server.database_url)
    with database.write() as session:
        session.execute(
            update(ApiKey).where(ApiKey.id == key_id).values(expires_at=now() - timedelta(seconds=1))
        )
    database.close()


@cache
def operations() -> list[tuple[str, str, list[str]]]:
    """All of the interface that ask who calls, with the scopes that each names."""
    found = list[tuple[str, str, list[str]]]()
    for path, methods in yaml.load(document(), yaml.CSafeLoader)["paths"].items():
        for method, operation in methods.items():
            if path.startswith("/v1"):
                (needed,) = operation["security"]
                found.append((method, path, needed["HTTPBearer"]))
    return found


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
    assert [*found][:2] == [second["id"], first["id"]]  # the newest first
    facts = {"id", "scopes", "created_at", "expires_at", "revoked_at", "person", "through", "on_behalf_of"}
    assert set(found[first["id"]]) == facts
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


def holds(by: Caller, key: dict[str, Any]) -> Caller:
    """The caller with a key that was issued."""
    return Caller(by.server, by.id, key["key"])


@pytest.mark.parametrize("role", ["owner", "analyst"])
def test_no_key_outlives_the_one_that_issued_it(server: Server, role: str) -> None:
    first = server.owner() if role == "owner" else server.analyst()
    keys = f"/v1/{role}s/{first.id}/keys"
    stolen, other = issued(first, role), issued(first, role)
    alone = issued(Caller(server, first.id, server.admin.key), role)
    child = issued(holds(first, stolen), role)
    grandchild = issued(holds(first, child), role, scopes=["read"])
    assert first.delete(f"{keys}/{stolen['id']}").status_code == 204
    for key in (stolen, child, grandchild):
        problem(holds(first, key).get("/v1/me"), 401, "unauthenticated")
    for caller in (first, holds(first, other), holds(first, alone)):
        assert caller.get("/v1/me").status_code == 200
    # What was revoked before keeps its moment.
    listed = first.get(keys).json()
    assert first.delete(f"{keys}/{stolen['id']}").status_code == 204
    assert first.get(keys).json() == listed


@pytest.mark.parametrize("role", ["owner", "analyst"])
def test_a_key_that_takes_the_place_of_another_keeps_what_that_issued(server: Server, role: str) -> None:
    first = server.owner() if role == "owner" else server.analyst()
    keys = f"/v1/{role}s/{first.id}/keys"
    old = issued(first, role, scopes=["manage", "read"], expires_in=3600)
    program = issued(holds(first, old), role, scopes=["read"])
    new = issued(holds(first, old), role, rotate=True)
    assert (new["scopes"], new["expires_at"]) == (old["scopes"], old["expires_at"])
    problem(holds(first, old).get("/v1/me"), 401, "unauthenticated")
    assert holds(first, program).get("/v1/me").status_code == 200
    assert holds(first, new).delete(f"{keys}/{program['id']}").status_code == 204
    again = issued(holds(first, new), role)
    # Whoever had the old one, and took its place, is out with it.
    assert first.delete(f"{keys}/{old['id']}").status_code == 204
    for key in (new, again):
        problem(holds(first, key).get("/v1/me"), 401, "unauthenticated")
    assert first.get("/v1/me").status_code == 200
    problem(
        Caller(server, first.id, server.admin.key).post(keys, json={"rotate": True}), 422, "invalid"
    )  # which is no key of theirs


@pytest.mark.parametrize("backend", ["postgresql"])  # SQLite has one writer
def test_a_key_that_is_issued_while_its_issuer_is_revoked_is_revoked_too(database: Database) -> None:
    def blocked() -> bool:
        with database.read() as session:
            waits = "SELECT count(*) FROM pg_locks JOIN pg_database ON oid = database"
            waits += " WHERE NOT granted AND datname = current_database()"
            held = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            held += " AND datname = current_database()"
            return any(session.execute(text(each)).scalar_one() for each in (waits, held))

    with database.write() as session:
        issuer = issue_key(session, "owner", "own_1")[0].id
    issuing = Credential(Principal("owner", "own_1"), key_id=issuer)
    with ThreadPoolExecutor(1) as pool:
        with database.write() as session:
            child = issue_key(session, "owner", "own_1", issuer=issuing)[0].id
            revoking = pool.submit(database.run, lambda other: revoke_key(other, "own_1", issuer))
            until(lambda: blocked() or revoking.done())
        revoking.result(HANG_GUARD)
    with database.write() as session:
        assert session.get_one(ApiKey, child).revoked_at
        with pytest.raises(Unauthenticated):
            issue_key(session, "owner", "own_1", issuer=issuing)


def test_many_keys_are_listed_in_pages_that_hide_none(database: Database) -> None:
    moment = now()
    with database.write() as session:
        top = issue_key(session, "owner", "own_1")[0]
        of_others = issue_key(session, "owner", "own_2")[0]
        issuers = [top.id]
        for number in range(1200):  # several of each moment, and all of one ancestor
            issuers.append(new_id("key"))
            session.add(
                ApiKey(
                    id=issuers[-1],
                    role="owner",
                    principal_id="own_1",
                    digest=issuers[-1],
                    scopes="read",
                    created_at=moment + timedelta(seconds=number // 7),
                    issued_by=issuers[number // 2],
                )
            )
    found, cursor = list[ApiKey](), None
    with database.read() as session:
        while page := keys_of(session, "own_1", limit=500, before=cursor):
            found += page[0]
            if (cursor := page[1]) is None:
                break
        assert len(page[0]) == 201
        with pytest.raises(Invalid):
            keys_of(session, "own_1", limit=500, before=of_others.id)
    assert sorted(key.id for key in found) == sorted(issuers)
    made = [(key.created_at, key.id) for key in found]
    assert made == sorted(made, reverse=True)
    with database.write() as session:
        revoke_key(session, "own_1", top.id)
    with database.read() as session:
        good = session.scalars(select(ApiKey.id).where(ApiKey.revoked_at.is_(None))).all()
    assert good == [of_others.id]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_pages_of_keys(server: Server) -> None:
    for role, who in (("owner", server.owner()), ("analyst", server.analyst())):
        keys = f"/v1/{role}s/{who.id}/keys"
        made = [issued(who, role)["id"] for _ in range(4)]
        first = who.get(keys, params={"limit": 3}).json()
        rest = who.get(keys, params={"limit": 3, "cursor": first["next"]}).json()
        assert [each["id"] for each in first["keys"]] == made[:0:-1]
        assert next(each["id"] for each in rest["keys"]) == made[0]
        assert (len(rest["keys"]), rest["next"]) == (2, None)
        for wrong in ({"limit": 0}, {"limit": 1001}, {"cursor": "key_none"}, {"cursor": "\0"}):
            problem(who.get(keys, params=wrong), 422, "invalid")


@pytest.mark.parametrize("backend", ["sqlite"])
def test_no_answer_is_kept_by_caches(server: Server) -> None:
    """Every operation of the interface, whether it answers or refuses; a key is shown by four of them.

    Who is refused has a key in our form: of others an address may try 60 a minute.
    """
    owner, analyst = server.owner(), server.analyst()
    shows = set[str]()
    for method, path, _ in operations():
        place = path.replace("{owner_id}", owner.id).replace("{analyst_id}", analyst.id)
        for caller in (server.admin, Caller(server, "", new_key("owner"))):
            body: dict[str, Any] = {"name": "x"}
            if path == "/v1/owners":
                body["budget"] = {"epsilon": 1, "delta": 1e-5}
            content = {"json": {} if path.endswith("/keys") else body} if method == "post" else {}
            answer = caller.request(method, place.replace("{", "").replace("}", ""), **content)
            assert answer.headers["cache-control"] == "no-store", (method, path)
            if answer.status_code == 201 and "key" in answer.json():
                shows.add(path)
    shown = {
        path
        for path, methods in yaml.load(document(), yaml.CSafeLoader)["paths"].items()
        for operation in methods.values()
        if str(operation["responses"].get("201")).rpartition("/")[2].split("'")[0]
        in ("CreatedOwner", "CreatedAnalyst", "IssuedKey")
    }
    assert shows == shown
    assert len(shown) == 4
    for path in ("/healthz", "/openapi.json", "/v1/nothing"):
        assert server.admin.get(path).headers["cache-control"] == "no-store"


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
    (asked,) = submissions_on(nothing).commands(Principal("owner", owner.id), Query(kind, request), key)
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
        jobs.add(session, job, bound)
        jobs.move(session, Job.id == job.id, "reserved", "claimed", lease_until=now() + timedelta(hours=1))
    try:
        yield job.id
    finally:
        with database.write() as session:
            assert jobs.fail(session, job.id)
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
    authenticator = Authenticator(nothing, nothing, "", b"")
    assert authenticator.is_good_yet(Credential(Principal("owner", "own_x"), until=end)) is good


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
        {"rotate": True, "scopes": ["read"]},
        {"rotate": True, "expires_in": 60},
        {"rotate": 1},
    ],
)
@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_bad_wish_for_a_key(server: Server, asked: dict[str, Any]) -> None:
    owner = server.owner()
    problem(owner.post(f"/v1/owners/{owner.id}/keys", json=asked), 422, "invalid")
    assert len(owner.get(f"/v1/owners/{owner.id}/keys").json()["keys"]) == 1
