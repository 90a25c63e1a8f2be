"""Published answers over HTTP: who may publish, read and withdraw, and that nothing is charged."""

import csv
import io
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from testing.server import LABELLED, Caller, Server, books_balance, problem, told_apart

TABLE = {
    "kind": "table",
    "columns": [
        {"name": "age", "type": "number", "low": 0, "high": 110},
        {"name": "ill", "type": "category", "categories": ["no", "yes"]},
        {"name": "born", "type": "date", "low": "1900-01-01", "high": "2025-12-31"},
    ],
}


def people(n: int = 400) -> bytes:
    rows = (f"{20 + i % 60},{('no', 'yes')[i % 2]},{1950 + i % 50}-05-03" for i in range(n))
    return "\n".join(("age,ill,born", *rows)).encode()


class Scene:
    """An owner whose analyst was answered, and may publish."""

    def __init__(self, server: Server, **terms: Any) -> None:
        self.server, self.owner, self.analyst, self.reader = (
            server,
            server.owner(),
            server.analyst(),
            server.analyst(),
        )
        made = self.owner.upload(people(), TABLE, "people.csv")
        assert made.status_code == 201, made.text
        self.dataset: str = made.json()["id"]
        self.allow(**({"publish": "allowed"} | terms))
        self.job = self.ask()
        self.name = f"t_{self.job.removeprefix('job_')}"
        self.path = f"/v1/published/{self.name}"

    def allow(self, **terms: Any) -> None:
        assert self.owner.grant(self.dataset, self.analyst, **terms).status_code == 200

    def ask(self, **body: Any) -> str:
        told = self.analyst.estimate(self.dataset, epsilon=0.3, columns=["age", "ill", "born"], **body).json()
        assert told["state"] == "committed", told
        return told["id"]

    def publish(self, job: str = "", by: Caller | None = None, **body: Any) -> Any:
        told = {"job": job or self.job, "readers": [self.reader.id]} | body
        return (by or self.analyst).put(self.path, json=told)

    def acts(self) -> list[str]:
        return [
            each["kind"] for each in self.owner.get("/v1/acts", params={"text": self.name}).json()["acts"]
        ]


@pytest.fixture
def scene(server: Server) -> Scene:
    return Scene(server)


def asked(caller: Caller, **body: Any) -> str:
    """The job that answers a question about a mean."""
    headers = {"Idempotency-Key": "only", "Prefer": "wait=240"}
    told = caller.post("/v1/estimates/frechet-mean", headers=headers, json=body).json()
    assert told["state"] == "committed", told
    return told["id"]


def cells(answer: Any) -> list[dict[str, str]]:
    assert answer.status_code == 200, answer.text
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_an_answer_becomes_a_table_that_is_read_without_a_charge(scene: Scene) -> None:
    told = scene.publish()
    assert told.status_code == 200, told.text
    spent = scene.owner.budget()
    answer = scene.analyst.get(f"/v1/jobs/{scene.job}").json()
    table = cells(scene.reader.get(f"{scene.path}.csv"))
    assert [(row["item"], row["measure"]) for row in table] == [
        ("age", "mean"),
        ("ill=no", "share"),
        ("ill=yes", "share"),
        ("born", "mean"),
    ]
    *plain, born = answer["estimate"]["columns"]
    for row, column in zip(table[:3], plain, strict=True):
        assert [float(row[part]) for part in ("value", "low", "high")] == [
            column[p] for p in ("value", "low", "high")
        ]
    days = np.datetime64(born["value"]) - np.datetime64("1970-01-01")
    assert float(table[3]["value"]) == days.astype(int)
    assert table[3]["unit"] == "days since 1970-01-01"
    assert {row["receipt"] for row in table} == {scene.job}
    assert {float(row["off_by"]) for row in table} == {answer["uncertainty"]["radius_95"]}
    charged = next(entry for entry in scene.owner.ledger() if entry["kind"] == "debit")
    assert {Decimal(row["epsilon"]) for row in table} == {Decimal(str(charged["epsilon"]))}
    # The other formats say the same, and their price is not less than it is.
    for ending, read in (
        ("parquet", parquet.read_table),
        ("arrow", lambda file: pa.ipc.open_file(file).read_all()),
    ):
        file = scene.reader.get(f"{scene.path}.{ending}")
        assert file.status_code == 200, file.text
        rows = read(io.BytesIO(file.content)).to_pylist()
        assert list(rows[0]) == list(table[0])
        for row, like in zip(rows, table, strict=True):
            assert (row["item"], row["value"], row["low"]) == (
                like["item"],
                float(like["value"]),
                float(like["low"]),
            )
            for price in ("epsilon", "delta"):
                assert Fraction(row[price]) >= Fraction(Decimal(like[price]))
            assert row["published_at"].isoformat() == like["published_at"]
    shown = scene.reader.get(scene.path).json()
    assert [each["value"] for each in shown["values"]] == [float(row["value"]) for row in table]
    assert scene.owner.budget() == spent


def test_reads_are_conditional_until_it_is_published_anew(scene: Scene) -> None:
    scene.publish()
    first = scene.reader.get(f"{scene.path}.csv")
    known = {"If-None-Match": first.headers["etag"]}
    assert scene.reader.get(f"{scene.path}.csv", headers=known).status_code == 304
    again = scene.ask(reuse=False)
    assert scene.publish(again).json()["receipt"] == again
    fresh = scene.reader.get(f"{scene.path}.csv", headers=known)
    assert fresh.status_code == 200
    assert {row["receipt"] for row in cells(fresh)} == {again}


def test_a_refresh_asks_again_only_when_told(scene: Scene) -> None:
    """Asked again a question has its first answer, free, and publishing that again is no act."""
    told, spent = scene.publish().json(), scene.owner.budget()
    assert scene.ask() == scene.job
    assert scene.publish().json() == told
    assert scene.acts() == ["answer.published"]
    assert scene.owner.budget() == spent
    fresh = scene.ask(reuse=False)
    assert fresh != scene.job
    assert scene.owner.budget() != spent
    assert cells(scene.reader.get(f"{scene.path}.csv"))[0]["receipt"] == scene.job  # until it is published
    scene.publish(fresh)
    assert scene.acts() == ["answer.published", "answer.published"]


def test_only_who_is_named_reads(scene: Scene) -> None:
    stranger, other = scene.server.analyst(), scene.server.owner()
    scene.publish()
    for reader in (scene.reader, scene.analyst, scene.owner):
        assert scene.reader.get(f"{scene.path}.csv").status_code == 200
        assert scene.name in [each["name"] for each in reader.get("/v1/published").json()["published"]]
    for nobody in (stranger, other, scene.server.admin):
        for path in (scene.path, f"{scene.path}.csv", f"{scene.path}.parquet"):
            problem(nobody.get(path), 404, "not-found")
        assert nobody.get("/v1/published").json()["published"] == []
        assert nobody.delete(scene.path).status_code in (403, 404)
    problem(scene.reader.delete(scene.path), 404, "not-found")
    # Who else may read is told to the publisher and the owner alone.
    assert scene.reader.get(scene.path).json()["readers"] == []
    assert scene.owner.get(scene.path).json()["readers"] == [scene.reader.id]
    scene.publish(readers=[])
    problem(scene.reader.get(scene.path), 404, "not-found")


def test_an_analyst_publishes_where_the_owner_lets_it(server: Server) -> None:
    scene = Scene(server, publish=None)
    refused = problem(scene.publish(), 403, "grant-refuses")
    assert scene.dataset in refused["detail"]
    assert scene.acts() == []
    grant = f"/v1/datasets/{scene.dataset}/grants/{scene.analyst.id}"
    assert scene.analyst.get(grant).json()["publish"] is None
    scene.allow(publish="allowed")
    assert scene.analyst.get(grant).json()["publish"] == "allowed"
    assert scene.publish().status_code == 200
    # Nobody publishes another's answer: its owner does not even see it.
    problem(scene.publish(by=scene.owner), 404, "not-found")
    problem(scene.publish(by=scene.reader), 404, "not-found")
    problem(scene.publish(by=server.admin), 403, "forbidden")


def test_a_revoked_grant_holds_it_back_and_a_new_one_opens_it(scene: Scene) -> None:
    scene.publish()
    grant = f"/v1/datasets/{scene.dataset}/grants/{scene.analyst.id}"
    for close in (lambda: scene.owner.delete(grant), scene.allow):
        close()
        problem(scene.reader.get(f"{scene.path}.csv"), 404, "not-found")
        assert scene.reader.get("/v1/published").json()["published"] == []
        (mine,) = scene.analyst.get("/v1/published").json()["published"]
        assert mine["is_open"] is False
        problem(scene.analyst.get(scene.path), 404, "not-found")
        scene.allow(publish="allowed")
        assert scene.reader.get(f"{scene.path}.csv").status_code == 200


def test_what_an_owner_withdraws_stays_withdrawn(scene: Scene) -> None:
    scene.publish()
    why = {"Privest-Reason": "too early"}
    assert scene.owner.delete(scene.path, headers=why).status_code == 204
    for caller in (scene.reader, scene.analyst, scene.owner):
        problem(caller.get(f"{scene.path}.csv"), 404, "not-found")
        problem(caller.delete(scene.path), 404, "not-found")
    assert scene.acts() == ["answer.withdrawn", "answer.published"]
    problem(scene.publish(), 403, "grant-refuses")
    other = scene.analyst.put(f"{scene.path}_2", json={"job": scene.job})
    problem(other, 403, "grant-refuses")
    assert scene.publish(scene.ask(reuse=False)).status_code == 200  # another answer may be
    assert books_balance(scene.server)


def test_its_publisher_may_publish_again_what_it_withdrew(scene: Scene) -> None:
    scene.publish()
    assert scene.analyst.delete(scene.path).status_code == 204
    problem(scene.reader.get(scene.path), 404, "not-found")
    assert scene.publish().status_code == 200
    assert scene.acts() == ["answer.published", "answer.withdrawn", "answer.published"]


def test_a_name_is_its_publishers_for_good(scene: Scene) -> None:
    """Whoever reads a table by its name is never shown another's."""
    other = Scene(scene.server)
    scene.publish()
    taken = {"job": other.job, "readers": []}
    problem(other.analyst.put(scene.path, json=taken), 409, "name-taken")
    assert scene.analyst.delete(scene.path).status_code == 204
    problem(other.analyst.put(scene.path, json=taken), 409, "name-taken")


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ["Upper", "1st", "with-dash", "a.b", "a" * 64, "é", "a b", "x;drop"])
def test_names_are_those_that_every_database_takes(scene: Scene, name: str) -> None:
    answer = scene.analyst.put(f"/v1/published/{name}", json={"job": scene.job})
    assert answer.status_code in (404, 405, 422), answer.text


def test_wrong_requests_are_refused_in_words(scene: Scene) -> None:
    faults = problem(scene.publish(readers=["an_nobody"]), 422, "invalid")["faults"]
    assert faults[0]["location"] == "readers"
    problem(scene.publish("job_none"), 404, "not-found")
    problem(scene.publish(readers=[scene.reader.id] * 101), 422, "invalid")
    about = {"id": scene.dataset, "dummy": True}
    dummy = asked(scene.analyst, dataset=about, columns=["age"], privacy={"epsilon": 0.1})
    assert "no dummy" in problem(scene.publish(dummy), 422, "invalid")["detail"]
    problem(scene.reader.get(f"{scene.path}.xlsx"), 422, "invalid")


def test_keys_that_only_read_publish_nothing(scene: Scene) -> None:
    scopes = {"scopes": ["read", "estimate", "data"]}
    made = scene.analyst.post(f"/v1/analysts/{scene.analyst.id}/keys", json=scopes).json()
    small = Caller(scene.server, scene.analyst.id, made["key"])
    problem(scene.publish(by=small), 403, "forbidden")
    scene.publish()
    problem(small.delete(scene.path), 403, "forbidden")
    assert small.get(f"{scene.path}.csv").status_code == 200


def test_a_deleted_dataset_leaves_what_was_published_of_it(scene: Scene) -> None:
    scene.publish()
    assert scene.owner.delete(f"/v1/datasets/{scene.dataset}").status_code == 204
    assert scene.reader.get(f"{scene.path}.csv").status_code == 200
    assert scene.owner.delete(scene.path).status_code == 204  # which the owner may end
    problem(scene.reader.get(f"{scene.path}.csv"), 404, "not-found")


def test_owners_publish_their_own_answers_and_lists_come_in_pages(server: Server) -> None:
    owner, reader = server.owner(epsilon=3.0), server.analyst()
    dataset = owner.dataset(told_apart(apart=2.0), LABELLED)
    job = owner.estimate(dataset, kind="logistic-regression", epsilon=0.5).json()
    names = [f"{owner.id.lower()}_{place}" for place in range(3)]
    for name in names:
        assert (
            owner.put(f"/v1/published/{name}", json={"job": job["id"], "readers": [reader.id]}).status_code
            == 200
        )
    table = cells(reader.get(f"/v1/published/{names[0]}.csv"))
    assert [(row["item"], row["measure"]) for row in table] == [
        (name, "coefficient towards 1") for name in ("a", "b", "intercept")
    ]
    assert [float(row["value"]) for row in table[:2]] == job["estimate"]["coefficients"]
    assert all(float(row["low"]) < float(row["value"]) < float(row["high"]) for row in table)
    found, cursor = list[str](), ""
    while cursor is not None:
        page = reader.get("/v1/published", params={"limit": 2, "cursor": cursor}).json()
        found, cursor = found + [each["name"] for each in page["published"]], page["next"]
    assert found == names


def test_no_cell_is_a_formula(server: Server) -> None:
    owner = server.owner()
    columns = [{"name": "=1+2", "type": "number", "low": 0, "high": 1}]
    made = owner.upload(
        b"=1+2\n" + b"0.5\n" * 100, {"kind": "table", "columns": columns}, "x.csv", header=True
    )
    assert made.status_code == 201, made.text
    job = owner.estimate(made.json()["id"], columns=["=1+2"]).json()["id"]
    name = f"f_{job.removeprefix('job_')}"
    assert owner.put(f"/v1/published/{name}", json={"job": job}).status_code == 200
    assert cells(owner.get(f"/v1/published/{name}.csv"))[0]["item"] == "'=1+2"
    assert owner.get(f"/v1/published/{name}").json()["values"][0]["item"] == "=1+2"


def test_several_owners_must_all_let_it_be_published(server: Server) -> None:
    owners, analyst, reader = [server.owner() for _ in range(2)], server.analyst(), server.analyst()
    datasets = [owner.dataset() for owner in owners]
    for owner, dataset, publish in zip(owners, datasets, ("allowed", None), strict=True):
        assert owner.grant(dataset, analyst, publish=publish).status_code == 200
    about = [{"id": dataset} for dataset in datasets]
    job = asked(analyst, dataset=about, privacy={"epsilon": 0.1})
    path, body = f"/v1/published/s_{job.removeprefix('job_')}", {"job": job, "readers": [reader.id]}
    assert datasets[1] in problem(analyst.put(path, json=body), 403, "grant-refuses")["detail"]
    owners[1].grant(datasets[1], analyst, publish="allowed")
    assert analyst.put(path, json=body).json()["datasets"] == datasets
    assert reader.get(f"{path}.csv").status_code == 200
    for owner in owners:
        assert next(each["kind"] for each in owner.get("/v1/acts").json()["acts"]) == "answer.published"
    owners[0].grant(datasets[0], analyst)
    problem(reader.get(f"{path}.csv"), 404, "not-found")
    owners[0].grant(datasets[0], analyst, publish="allowed")
    assert owners[1].delete(path).status_code == 204
    problem(analyst.put(path, json=body), 403, "grant-refuses")
