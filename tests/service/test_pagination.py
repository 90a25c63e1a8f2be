"""Lists in pages: each thing once, whatever the size of the page, and none behind a page unseen."""

from collections.abc import Callable
from itertools import chain

import pytest
from sqlalchemy import update

from privest_service.database import Database
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset
from testing.server import Caller, Server, problem


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
