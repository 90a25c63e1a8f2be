"""Lists in pages: each thing once, whatever the size of the page, and none behind a page unseen."""

from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from sqlalchemy import update

from privest_service.database import Database
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset
from testing.server import Caller, Server, problem

pytestmark = pytest.mark.both


def _pages(caller: Caller, path: str, of: str, limit: int) -> list[list[str]]:
    found, cursor = list[list[str]](), ""
    while True:
        answer = caller.get(path, params={"limit": limit, "cursor": cursor}).json()
        found.append([each.get("id", each["name"]) for each in answer[of]])
        cursor = answer.get("next")
        if not cursor:
            return found


def test_datasets_come_in_pages_newest_first(server: Server) -> None:
    owner, analyst = server.owner(), server.analyst()
    made = [owner.dataset() for _ in range(5)]
    database = Database(server.database_url)
    with database.write() as session:  # some are of one moment
        same = session.get_one(Dataset, made[1]).created_at
        session.execute(update(Dataset).where(Dataset.id == made[2]).values(created_at=same))
    database.close()
    whole = owner.get("/v1/datasets").json()
    assert whole["next"] is None
    listed = [each["id"] for each in whole["datasets"]]
    assert listed == [made[4], made[3], *sorted(made[1:3]), made[0]]
    for limit in (1, 2, 3, 5):
        pages = _pages(owner, "/v1/datasets", "datasets", limit)
        assert list(chain(*pages)) == listed
        assert {len(page) for page in pages[:-1]} <= {limit}
    for dataset in made[::2]:
        owner.grant(dataset, analyst)
    pages = _pages(analyst, "/v1/datasets", "datasets", 2)
    assert list(chain(*pages)) == [each for each in listed if each in made[::2]]


def test_grants_come_in_pages_with_what_is_left(server: Server) -> None:
    owner, other, analysts = server.owner(), server.owner(), [server.analyst(), server.analyst()]
    made = [owner.dataset(), owner.dataset(), other.dataset()]
    for dataset, whose in zip(made, (owner, owner, other), strict=True):
        for analyst in analysts:
            assert whose.grant(dataset, analyst, epsilon=0.5, delta=1e-6).status_code == 200
    asked = analysts[0].estimate(made[0], epsilon=0.2, delta=1e-7)
    assert asked.status_code == 200
    pairs = sorted((dataset, analyst.id) for dataset in made for analyst in analysts)
    for caller, expected in (
        (owner, [pair for pair in pairs if pair[0] != made[2]]),
        (other, [pair for pair in pairs if pair[0] == made[2]]),
        (analysts[0], [pair for pair in pairs if pair[1] == analysts[0].id]),
    ):
        for limit in (1, 2, 1000):
            found, cursor = list[dict[str, Any]](), ""
            while cursor is not None:
                page = caller.get("/v1/grants", params={"limit": limit, "cursor": cursor}).json()
                assert len(page["grants"]) <= limit
                found, cursor = found + page["grants"], page["next"]
            assert [(each["dataset"], each["analyst"]) for each in found] == expected
        for each in found:
            spent = (each["dataset"], each["analyst"]) == (made[0], analysts[0].id)
            assert each["left"]["queries"] == spent
            assert (each["left"]["share"] < 1) == spent
            assert each == caller.get(f"/v1/datasets/{each['dataset']}/grants/{each['analyst']}").json()
    # What is left is exact: so much is covered, and no more.
    (mine,) = (each for each in analysts[0].get("/v1/grants").json()["grants"] if each["dataset"] == made[0])
    left = {name: mine["left"][name] for name in ("epsilon", "delta")}
    more = left | {"epsilon": left["epsilon"] * 1.01}
    problem(analysts[0].estimate(made[0], **more), 409, "budget-exceeded")
    # What others did, or a freeze, shows in none of it.
    assert owner.patch(f"/v1/owners/{owner.id}/budget", json={"frozen": True}).status_code == 200
    again = [each for each in analysts[0].get("/v1/grants").json()["grants"] if each["dataset"] == made[0]]
    assert again == [mine]
    assert owner.patch(f"/v1/owners/{owner.id}/budget", json={"frozen": False}).status_code == 200
    assert analysts[0].estimate(made[0], **left).status_code == 200
    # Neither revoked grants nor ended ones are listed, nor those on datasets that are gone.
    assert other.delete(f"/v1/datasets/{made[2]}/grants/{analysts[0].id}").status_code == 204
    assert owner.delete(f"/v1/datasets/{made[1]}").status_code == 204
    listed = analysts[0].get("/v1/grants").json()["grants"]
    assert [each["dataset"] for each in listed] == [made[0]]
    assert owner.grant(made[0], analysts[0]).json()["left"] is None  # no cap any more
    for cursor in ("x", "/", "ds_1", "a/b/c"):
        assert owner.get("/v1/grants", params={"cursor": cursor}).status_code == 422, cursor
    assert owner.get("/v1/grants", params={"limit": 0}).status_code == 422
    problem(server.admin.get("/v1/grants"), 403, "forbidden")


def test_a_page_of_long_schemas_is_shorter(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = server.owner()
    made = [owner.dataset() for _ in range(3)]
    database = Database(server.database_url)
    with database.read() as session:
        caller = datasets.Principal("owner", owner.id)
        length = len(session.get_one(Dataset, made[0]).dataset_schema)
        for longest, count in ((2 * length, 2), (length - 1, 1)):
            monkeypatch.setattr(datasets, "_LONGEST_LIST", longest)
            found, further = datasets.visible(session, caller)
            assert [each.id for each in found] == made[::-1][:count]
            assert further is not None
            rest, _ = datasets.visible(session, caller, cursor=further)
            assert rest[0].id == made[::-1][count]
    database.close()


def test_connections_come_in_pages_by_name(start_server: Callable[..., Server], backend: str) -> None:
    server = start_server()
    source = server.directory / "source"
    source.mkdir()
    owner, names = server.owner(), ["ann", "bob", "cid", "dan", "eve"]
    for name in names:
        new = {"name": name, "kind": "files", "root": str(source)}
        assert server.admin.post("/v1/connections", json=new).status_code == 201
        if name != "cid":
            assert server.admin.put(f"/v1/connections/{name}/owners/{owner.id}").status_code == 204
    for limit in (1, 2, 5):
        assert list(chain(*_pages(server.admin, "/v1/connections", "connections", limit))) == names
        own = list(chain(*_pages(owner, "/v1/connections", "connections", limit)))
        assert own == [name for name in names if name != "cid"]


@pytest.mark.parametrize("cursor", ["x", "12", "99999999999999999999-ds_1", "1-a\x00", "-1-ds"])
def test_a_cursor_that_is_none_is_refused(server: Server, cursor: str) -> None:
    problem(server.owner().get("/v1/datasets", params={"cursor": cursor}), 422, "invalid")


@pytest.mark.parametrize("role", ["owner", "analyst"])
def test_an_administrator_reads_all_owners_and_analysts_in_pages(server: Server, role: str) -> None:
    made = [getattr(server, role)() for _ in range(5)]
    path, of = f"/v1/{role}s", f"{role}s"
    pages = _pages(server.admin, path, of, 2)
    assert {len(page) for page in pages[:-1]} == {2}
    listed = list(chain(*pages))
    assert len(set(listed)) == len(listed)
    assert [each for each in listed if each in {one.id for one in made}] == [one.id for one in reversed(made)]
    for one in made:
        problem(one.get(path), 403, "forbidden")
    for cursor in ("x", "1-", "-1-a", "9" * 18 + "-a", "1-" + "a" * 41):
        problem(server.admin.get(path, params={"cursor": cursor}), 422, "invalid")
