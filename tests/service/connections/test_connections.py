"""Connections: what owners may register through them, and what nobody gets or learns through them."""

import csv
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest
from sqlalchemy import URL, make_url

from privest_service.database import Database
from testing import ROOT
from testing.server import ADMIN_KEY, LABELLED, Caller, Server, csv_of, npy, problem, told_apart, until

PLANE = {"kind": "points", "manifold": {"name": "euclidean", "dim": 2}, "center": [1.0, 2.0], "radius": 1.0}
SECRET = "hunter2-secret-of-a-source"  # noqa: S105 - planted, to be looked for
ROWS = np.random.default_rng(5).normal([1.0, 2.0], 0.1, (400, 2))

on_one_database = pytest.mark.parametrize("backend", ["sqlite"])
"""Marks tests in which the service's own database plays no part."""

_numbers = count()


def connected(server: Server, *owners: Caller, **config: Any) -> str:
    """The name of a new connection, assigned to owners."""
    name = f"source-{next(_numbers)}"
    made = server.admin.post("/v1/connections", json={"name": name, **config})
    assert made.status_code == 201, made.text
    assert made.json() == {"name": name, "kind": config["kind"], "owners": []}
    for owner in owners:
        assert server.admin.put(f"/v1/connections/{name}/owners/{owner.id}").status_code == 204
    return name


def register(owner: Caller, uri: str, schema: object = PLANE) -> httpx.Response:
    """Try to register what a handle names."""
    return owner.post("/v1/datasets", json={"uri": uri, "schema": schema})


def registered(owner: Caller, uri: str, schema: object = PLANE) -> dict[str, Any]:
    """The dataset that a handle becomes."""
    answer = register(owner, uri, schema)
    assert answer.status_code == 201, answer.text
    return answer.json()


def refused(owner: Caller, uri: str, *, says: str, schema: object = PLANE) -> None:
    """Check that a handle is refused for this reason and leaves nothing behind."""
    before = owner.get("/v1/datasets").json()
    document = problem(register(owner, uri, schema), 422, "dataset-invalid")
    assert says in document["faults"][0]["rule"], document
    assert str(owner.server.directory) not in json.dumps(document)
    assert owner.get("/v1/datasets").json() == before
    nothing_left(owner.server)


def nothing_left(server: Server) -> None:
    """No upload, copy or draft is left in the service's own directory."""
    left = (server.data_dir / "incoming").iterdir()
    assert [file.name for file in left if not file.name.startswith("pymp-")] == []


def uploaded(owner: Caller, rows: np.ndarray = ROWS, schema: object = PLANE) -> dict[str, Any]:
    """The rows of the connection, as an upload."""
    answer = owner.upload(npy(rows), schema)
    assert answer.status_code == 201, answer.text
    return answer.json()


def estimated(owner: Caller, dataset: str) -> None:
    """Check that the dataset answers, about right."""
    job = owner.estimate(dataset, epsilon=1.0).json()
    assert job["state"] == "committed", job
    assert np.linalg.norm(np.array(job["estimate"]["point"]) - [1.0, 2.0]) < 0.5


# Sources


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A root with rows in several formats, some of them below."""
    root = tmp_path / "source"
    (root / "deep" / "er").mkdir(parents=True)
    (root / "rows.csv").write_bytes(csv_of(ROWS))
    (root / "deep" / "er" / "rows.npy").write_bytes(npy(ROWS))
    return root


@dataclass(frozen=True)
class Bucket:
    """An S3 bucket on this machine."""

    config: dict[str, Any]
    put: Callable[[str, bytes], Any]
    get: Callable[[str], bytes]
    names: Callable[[str], list[str]]


@pytest.fixture(scope="session")
def _s3() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(_s3: str) -> Bucket:
    """A bucket of this test's own; the connection leads to a folder in it."""
    import boto3
    import obstore
    from obstore.store import S3Store

    name = f"bucket-{next(_numbers)}"
    keys = {"aws_access_key_id": "key-of-tests", "aws_secret_access_key": SECRET}
    boto3.client("s3", endpoint_url=_s3, region_name="us-east-1", **keys).create_bucket(Bucket=name)
    store = S3Store(name, endpoint=_s3, client_options={"allow_http": True}, **keys)
    options = {"aws_endpoint": _s3, "allow_http": True, "aws_region": "us-east-1", **keys}
    config = {"kind": "object-store", "url": f"s3://{name}/clinic", "options": options}
    return Bucket(
        config,
        lambda key, content: obstore.put(store, key, content),
        lambda key: bytes(obstore.get(store, key).bytes()),
        lambda below: [each["path"] for each in obstore.list(store, below).collect()],
    )


@dataclass(frozen=True)
class Tables:
    """A PostgreSQL with a role that may read."""

    url: str
    run: Callable[[str], Any]

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of a connection to this database."""
        return {"kind": "database", "url": self.url}


@pytest.fixture
def tables(new_database: Callable[[str], str]) -> Iterator[Tables]:
    """Tables of numbers, and views that would write if they were let."""
    owner_url = new_database("postgresql")
    role = f"reader_{make_url(owner_url).database}"
    with psycopg.connect(owner_url, autocommit=True) as connection:

        def run(command: str) -> Any:
            return connection.execute(command)

        run(f"CREATE ROLE {role} LOGIN PASSWORD '{SECRET}'")
        run("CREATE TABLE rows (id bigint PRIMARY KEY, x float8, y numeric)")
        run('CREATE SCHEMA "Clinic"')
        run('CREATE TABLE "Clinic"."Points" (x float8, y real)')
        run("CREATE TABLE visits (x float8)")
        run("CREATE TABLE hidden (x float8, y float8)")
        with connection.cursor().copy("COPY rows FROM STDIN") as copy:
            for at in reversed(range(len(ROWS))):  # the key puts them in order
                copy.write_row((at, *map(repr, ROWS[at].tolist())))
        run("CREATE VIEW plane AS SELECT x, y FROM rows ORDER BY id")
        # As their maker, so that it is the transaction alone which keeps them from writing.
        for name, before in (
            ("writes", ""),
            ("insists", "PERFORM set_config('transaction_read_only', 'off', true);"),
        ):
            body = f"BEGIN {before} INSERT INTO visits VALUES (1); RETURN 1; END"  # noqa: S608
            run(
                f"CREATE FUNCTION {name}_now() RETURNS float8 LANGUAGE plpgsql SECURITY DEFINER "
                f"AS $$ {body} $$"
            )
            run(f"CREATE VIEW {name} AS SELECT {name}_now() AS x, y FROM rows")  # noqa: S608
        run("CREATE VIEW sleeps AS SELECT x, y, length(pg_sleep(30)::text) AS z FROM rows")
        run(f'GRANT USAGE ON SCHEMA "Clinic" TO {role}')
        run(f'GRANT SELECT ON rows, plane, writes, insists, sleeps, "Clinic"."Points" TO {role}')
        url = make_url(owner_url).set(username=role, password=SECRET)
        yield Tables(url.render_as_string(hide_password=False), run)


# From each kind of source to an estimate


def test_a_file(server: Server, folder: Path) -> None:
    owner = server.owner(epsilon=9.0)
    name = connected(server, owner, kind="files", root=str(folder))
    dataset = registered(owner, f"{name}:deep/er/rows.npy")
    assert (dataset["n"], dataset["shape"], dataset["kind"]) == (400, [400, 2], "points")
    estimated(owner, dataset["id"])
    # The same rows, however they came.
    assert dataset["fingerprint"] == uploaded(owner)["fingerprint"]
    assert dataset["fingerprint"] == registered(owner, f"{name}:rows.csv")["fingerprint"]
    nothing_left(server)


@pytest.mark.costly
def test_notices_and_heads_go_into_an_object_store(server: Server, bucket: Bucket) -> None:
    """Each is a new object, of an owner to whom the connection is assigned, and of nobody else."""
    owner, other = server.owner(), server.owner()
    bucket.put("clinic/rows.npy", npy(ROWS))
    channel = {
        "kind": "object-store",
        "connection": connected(server, owner, **bucket.config),
        "heads": "day",
    }
    for each in (owner, other):
        assert each.post(f"/v1/owners/{each.id}/channels", json=channel).status_code == 201

    def fared(each: Caller) -> dict[str, Any]:
        (found,) = each.get(f"/v1/owners/{each.id}/channels").json()["channels"]
        return found

    assert until(lambda: fared(other)["last_error"]).startswith("There is no connection of this name")
    until(lambda: fared(owner)["delivered_at"] or fared(owner)["last_error"])
    assert fared(owner)["last_error"] is None
    (name,) = bucket.names(f"clinic/privest-notices/{owner.id}")
    assert json.loads(bucket.get(name))["facts"]["heads"]["heads"]


def test_an_object(server: Server, bucket: Bucket) -> None:
    owner = server.owner(epsilon=9.0)
    bucket.put("clinic/2024/rows.csv", csv_of(ROWS))
    bucket.put("clinic/rows.npy", npy(ROWS))
    bucket.put("other/rows.csv", csv_of(ROWS))
    name = connected(server, owner, **bucket.config)
    dataset = registered(owner, f"{name}:2024/rows.csv")
    estimated(owner, dataset["id"])
    assert dataset["fingerprint"] == uploaded(owner)["fingerprint"]
    assert dataset["fingerprint"] == registered(owner, f"{name}:rows.npy")["fingerprint"]
    for path, says in (
        ("../other/rows.csv", "relative path"),
        ("/other/rows.csv", "relative path"),
        ("2024/../../other/rows.csv", "relative path"),
        ("other/rows.csv", "must name an object"),
        ("2024", "ends in a known format"),
        ("2024/rows.xls", "ends in a known format"),
        ("2024/rows.txt", "must name an object that exists"),
    ):
        refused(owner, f"{name}:{path}", says=says)


@pytest.mark.costly
@on_one_database
def test_files_of_a_web_server(server: Server, folder: Path) -> None:
    owner = server.owner()
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder))
    ) as web:
        threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        url = f"http://127.0.0.1:{web.server_port}/deep"
        name = connected(server, owner, kind="object-store", url=url, options={"allow_http": True})
        assert registered(owner, f"{name}:er/rows.npy")["fingerprint"] == uploaded(owner)["fingerprint"]
        refused(owner, f"{name}:rows.csv", says="must name an object")
        refused(owner, f"{name}:../rows.csv", says="relative path")
        refused(owner, f"{name}:%2e%2e/rows.csv", says="must name an object")
        web.shutdown()
    closed = connected(server, owner, kind="object-store", url="https://127.0.0.1:9")
    refused(owner, f"{closed}:rows.csv", says="did not give")


def test_a_table_and_a_view(server: Server, tables: Tables) -> None:
    owner = server.owner(epsilon=9.0)
    name = connected(server, owner, **tables.config)
    dataset = registered(owner, f"{name}:plane")
    estimated(owner, dataset["id"])
    assert dataset["fingerprint"] == uploaded(owner)["fingerprint"]
    whole = registered(owner, f"{name}:rows", {"kind": "vectors", "dim": 3})
    by_key = np.column_stack([np.arange(400), ROWS])
    assert whole["fingerprint"] == uploaded(owner, by_key, {"kind": "vectors", "dim": 3})["fingerprint"]
    # Each record decides the places of others by its key, so that the key decides where none is stored.
    stored = np.load(server.data_dir / "rows" / owner.id / f"{whole['id']}.npy")
    assert not np.array_equal(stored, by_key)
    np.testing.assert_array_equal(stored[np.argsort(stored[:, 0])], by_key)
    # Names that need quotes, in a schema; nothing missing is taken for a number.
    tables.run('INSERT INTO "Clinic"."Points" SELECT x, y FROM rows')
    assert registered(owner, f"{name}:Clinic.Points")["n"] == 400
    tables.run('INSERT INTO "Clinic"."Points" VALUES (NULL, 1)')
    refused(owner, f"{name}:Clinic.Points", says="finite")
    for path in ("clinic.points", "Clinic.rows", "nothing", "public.nothing"):
        refused(owner, f"{name}:{path}", says="table or view that exists")


def test_labels_of_a_table_are_found_by_name(server: Server, tables: Tables) -> None:
    owner = server.owner()
    name = connected(server, owner, **tables.config)
    rows = told_apart(n=50, apart=1.0)
    tables.run("CREATE TABLE ill (note text, y int, b float8, a float8)")
    tables.run("GRANT SELECT ON ill TO PUBLIC")
    for a, b, y in rows.tolist():
        tables.run(f"INSERT INTO ill VALUES ('x', {int(y)}, {b!r}, {a!r})")  # noqa: S608
    dataset = registered(owner, f"{name}:ill", LABELLED)
    assert dataset["fingerprint"] == uploaded(owner, rows, LABELLED)["fingerprint"]
    tables.run("ALTER TABLE ill ALTER y TYPE text")
    assert registered(owner, f"{name}:ill", LABELLED)["fingerprint"] == dataset["fingerprint"]
    tables.run("ALTER TABLE ill ALTER y TYPE boolean USING y = '1'")
    assert registered(owner, f"{name}:ill", LABELLED)["fingerprint"] == dataset["fingerprint"]


@on_one_database
def test_a_change_of_the_source_is_a_new_dataset(server: Server, folder: Path) -> None:
    owner = server.owner(epsilon=9.0)
    name = connected(server, owner, kind="files", root=str(folder))
    first = registered(owner, f"{name}:rows.csv")
    stored = server.data_dir / "rows" / owner.id / f"{first['id']}.npy"
    before = stored.read_bytes()
    with (folder / "rows.csv").open("a", newline="") as file:
        csv.writer(file).writerow([0.5, 0.5])
    second = registered(owner, f"{name}:rows.csv")
    assert (second["n"], second["fingerprint"]) != (first["n"], first["fingerprint"])
    assert second["n"] == 401
    shutil.rmtree(folder)
    assert owner.get(f"/v1/datasets/{first['id']}").json() == first
    assert stored.read_bytes() == before
    estimated(owner, first["id"])


# What a handle cannot name


@on_one_database
def test_paths_that_lead_elsewhere(server: Server, folder: Path, tmp_path: Path) -> None:
    owner = server.owner()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "rows.csv").write_bytes(csv_of(ROWS))
    (folder / "linked.csv").symlink_to(outside / "rows.csv")
    (folder / "within.csv").symlink_to("rows.csv")
    (folder / "linked").symlink_to(outside)
    (folder / "deeply").symlink_to("deep")
    (folder / "folder.csv").mkdir()
    os.mkfifo(folder / "fifo.csv")
    (folder / "rows.xls").write_bytes(csv_of(ROWS))
    (folder / "rows").write_bytes(csv_of(ROWS))
    name = connected(server, owner, kind="files", root=str(folder))
    for path, says in (
        ("../outside/rows.csv", "relative path"),
        ("deep/../rows.csv", "relative path"),
        ("deep/../../outside/rows.csv", "relative path"),
        ("./rows.csv", "relative path"),
        ("deep//er/rows.npy", "relative path"),
        (str(outside / "rows.csv"), "relative path"),
        ("/rows.csv", "relative path"),
        ("linked.csv", "must name a plain file"),
        ("within.csv", "must name a plain file"),
        ("linked/rows.csv", "must name a plain file"),
        ("deeply/er/rows.npy", "must name a plain file"),
        ("folder.csv", "must name a plain file"),
        ("fifo.csv", "must name a plain file"),
        ("missing.csv", "must name a plain file"),
        ("rows.csv/rows.csv", "must name a plain file"),
        ("x" * 900 + ".csv", "must name a plain file"),
        ("%2e%2e/outside/rows.csv", "must name a plain file"),
        ("rows.xls", "ends in a known format"),
        ("rows", "ends in a known format"),
    ):
        refused(owner, f"{name}:{path}", says=says)
    problem(register(owner, f"{name}:rows.csv\0.npy"), 422, "invalid")
    assert registered(owner, f"{name}:rows.csv")["n"] == 400


@on_one_database
def test_roots_that_hold_the_services_own_data(start_server: Callable[..., Server], tmp_path: Path) -> None:
    server = start_server(data_dir=tmp_path / "above" / "data")
    one, two = server.owner(), server.owner()
    dataset = one.dataset()
    data = server.data_dir
    alias = tmp_path / "alias"
    alias.symlink_to(data / "rows")
    for root in (data, data / "rows", data / "rows" / one.id, data.parent, tmp_path, Path("/"), alias):
        body = {"name": "root", "kind": "files", "root": str(root)}
        document = problem(server.admin.post("/v1/connections", json=body), 422, "invalid")
        assert "data directory" in document["faults"][0]["rule"]
        assert str(tmp_path) not in json.dumps(document)
    # Nor may a root become one later.
    root = tmp_path / "root"
    root.mkdir()
    name = connected(server, two, kind="files", root=str(root))
    shutil.rmtree(root)
    root.symlink_to(data / "rows")
    refused(
        two, f"{name}:{one.id}/{dataset}.npy", says="data directory", schema={"kind": "vectors", "dim": 9}
    )
    root.unlink()
    refused(two, f"{name}:rows.csv", says="root that is a directory")


@on_one_database
@pytest.mark.parametrize(
    "config",
    [
        {"kind": "files", "root": "relative"},
        {"kind": "files", "root": "/no-such-directory-here"},
        {"kind": "files", "root": "/etc/passwd"},
        {"kind": "files", "root": "/usr\0"},
        {"kind": "files"},
        {"kind": "object-store", "url": f"file:///{SECRET}"},
        {"kind": "object-store", "url": "memory:///"},
        {"kind": "object-store", "url": f"s3:{SECRET}"},
        {"kind": "object-store", "url": "s3://bucket", "options": {"aws_conditional_put": SECRET}},
        {"kind": "object-store", "url": "s3://bucket", "options": {SECRET: "x"}},
        {"kind": "object-store", "url": "s3://bucket", "options": {"aws_endpoint": 7}},
        {"kind": "database", "url": f"sqlite:////tmp/{SECRET}.db"},
        {"kind": "database", "url": f"sqlite+pysqlite:///{SECRET}.db"},
        {"kind": "database", "url": f"nothing://user:{SECRET}@host/name"},
        {"kind": "database", "url": f"postgresql://user:{SECRET}@host:port/name"},
        {"kind": "database", "url": SECRET},
        {"kind": SECRET},
        {"kind": "files", "root": "/usr", SECRET: 1},
        {"kind": "files", "root": "/usr", "name": "Upper"},
        {"kind": "files", "root": "/usr", "name": "a:b"},
        {"kind": "files", "root": "/usr", "name": ""},
        {"kind": "files", "root": "/usr", "name": "x" * 64},
    ],
)
def test_connections_that_cannot_be(server: Server, config: dict[str, Any]) -> None:
    answer = server.admin.post("/v1/connections", json={"name": "never"} | config)
    problem(answer, 422, "invalid")
    assert SECRET not in answer.text
    assert "never" not in server.admin.get("/v1/connections").text


@on_one_database
def test_tables_that_are_none(server: Server, tables: Tables) -> None:
    owner = server.owner()
    name = connected(server, owner, **tables.config)
    for path in (
        "rows; DROP TABLE rows",
        'rows"; DROP TABLE rows; --',
        "rows WHERE 1=1",
        "(SELECT 1)",
        "a.b.c",
        ".rows",
        "rows.",
        "public..rows",
        "röws",
        "pg_sleep(1)",
    ):
        refused(owner, f"{name}:{path}", says="as table or schema.table")
    refused(owner, f"{name}:hidden", says="may not read")
    assert registered(owner, f"{name}:plane")["n"] == 400


@on_one_database
@pytest.mark.parametrize("view", ["writes", "insists"])
def test_a_view_that_writes(server: Server, tables: Tables, view: str) -> None:
    owner = server.owner()
    name = connected(server, owner, **tables.config)
    refused(owner, f"{name}:{view}", says="would write" if view == "writes" else "did not give")
    assert tables.run("SELECT count(*) FROM visits").fetchone() == (0,)
    # It does write where it is let.
    tables.run("SELECT * FROM writes LIMIT 1")
    assert tables.run("SELECT count(*) FROM visits").fetchone() != (0,)


@pytest.mark.costly
@on_one_database
def test_more_than_may_be_fetched(
    start_server: Callable[..., Server], folder: Path, bucket: Bucket, tables: Tables
) -> None:
    limit = 200_000
    server = start_server(max_dataset_bytes=limit)
    owner = server.owner()
    small, large = np.full((limit // 32, 2), 0.1), np.full((limit // 16, 2), 0.1)
    files = connected(server, owner, kind="files", root=str(folder))
    objects = connected(server, owner, **bucket.config)
    database = connected(server, owner, **tables.config)
    tables.run("CREATE TABLE many (x float8, y float8)")
    tables.run("GRANT SELECT ON many TO PUBLIC")
    for rows in (small, large):
        (folder / "many.npy").write_bytes(npy(rows))
        bucket.put("clinic/many.npy", npy(rows))
        tables.run(f"INSERT INTO many SELECT 0.1, 0.1 FROM generate_series(1, {len(small)})")  # noqa: S608
        for uri in (f"{files}:many.npy", f"{objects}:many.npy", f"{database}:many"):
            if rows is small:
                assert registered(owner, uri)["n"] == len(small)
            else:
                refused(owner, uri, says=f"at most {limit} bytes")


class _Understating(SimpleHTTPRequestHandler):
    """Says that what it has is shorter than it is."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.send_header("Last-Modified", self.date_time_string())
        self.end_headers()


@on_one_database
def test_more_than_was_said(start_server: Callable[..., Server], folder: Path) -> None:
    server = start_server(max_dataset_bytes=200_000)
    owner = server.owner()
    (folder / "many.csv").write_bytes(csv_of(np.full((50_000, 2), 0.1)))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Understating, directory=str(folder))) as web:
        threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        url = f"http://127.0.0.1:{web.server_port}"
        name = connected(server, owner, kind="object-store", url=url, options={"allow_http": True})
        refused(owner, f"{name}:many.csv", says="at most 200000")
        assert registered(owner, f"{name}:rows.csv")["n"] == 400
        web.shutdown()


@pytest.mark.costly
@on_one_database
def test_a_source_that_takes_too_long(start_server: Callable[..., Server], tables: Tables) -> None:
    """The worker is stopped, and nothing is left of what it had begun."""
    server = start_server(job_timeout=6)
    owner = server.owner()
    name = connected(server, owner, **tables.config)
    problem(register(owner, f"{name}:sleeps", {"kind": "vectors", "dim": 3}), 503, "unavailable")
    nothing_left(server)
    # A busy machine may be too slow for a good source as well, at first.
    until(lambda: register(owner, f"{name}:plane").status_code == 201)


# Who may use and see what


def test_only_what_was_assigned(server: Server, folder: Path) -> None:
    one, two = server.owner(), server.owner()
    name = connected(server, one, kind="files", root=str(folder))
    uri = f"{name}:rows.csv"
    assert registered(one, uri)["n"] == 400
    foreign = register(two, uri)
    problem(foreign, 404, "not-found")
    assert foreign.content == register(two, "no-such-connection:rows.csv").content
    assert foreign.content == register(two, f"{name}:../x").content
    assert foreign.content == register(two, f"{name}:no-such-file").content
    problem(server.admin.post("/v1/datasets", json={"uri": uri, "schema": PLANE}), 403, "forbidden")
    problem(server.analyst().post("/v1/datasets", json={"uri": uri, "schema": PLANE}), 403, "forbidden")

    owners = f"/v1/connections/{name}/owners"
    for _ in range(2):  # the second changes nothing
        assert server.admin.put(f"{owners}/{two.id}").status_code == 204
    assert registered(two, uri)["n"] == 400
    assert server.admin.delete(f"{owners}/{two.id}").status_code == 204
    assert register(two, uri).content == foreign.content
    problem(server.admin.delete(f"{owners}/{two.id}"), 404, "not-found")
    problem(server.admin.put(f"{owners}/own_nobody"), 404, "not-found")
    problem(server.admin.put(f"/v1/connections/nothing/owners/{two.id}"), 404, "not-found")

    assert server.admin.delete(f"/v1/connections/{name}").status_code == 204
    assert register(one, uri).content == foreign.content
    problem(server.admin.delete(f"/v1/connections/{name}"), 404, "not-found")
    # Another of this name is another one: nobody has it yet.
    body = {"name": name, "kind": "files", "root": str(folder)}
    assert server.admin.post("/v1/connections", json=body).status_code == 201
    assert register(one, uri).content == foreign.content
    problem(server.admin.post("/v1/connections", json=body), 422, "invalid")
    assert len(one.get("/v1/datasets").json()["datasets"]) == 1


def test_an_owner_sees_names_and_kinds_of_its_own(server: Server, folder: Path) -> None:
    one, two = server.owner(), server.owner()
    name = connected(server, one, kind="files", root=str(folder))
    assert one.get("/v1/connections").json() == {"connections": [{"name": name, "kind": "files"}]}
    assert two.get("/v1/connections").json() == {"connections": []}
    problem(server.analyst().get("/v1/connections"), 403, "forbidden")
    all_of_them = server.admin.get("/v1/connections").json()["connections"]
    assert {"name": name, "kind": "files", "owners": [one.id]} in all_of_them


@on_one_database
def test_nothing_tells_what_opens_a_connection(
    start_server: Callable[..., Server], bucket: Bucket, tables: Tables, folder: Path
) -> None:
    server = start_server()
    owner = server.owner()
    bucket.put("clinic/rows.csv", csv_of(ROWS))
    wrong: dict[str, Any] = {**bucket.config, "options": bucket.config["options"] | {"aws_endpoint": SECRET}}
    unreachable = URL.create("postgresql", "user", SECRET, "127.0.0.1", 9, SECRET)
    configs = [
        bucket.config,
        wrong,
        tables.config,
        {"kind": "database", "url": unreachable.render_as_string(hide_password=False)},
        {
            "kind": "object-store",
            "url": f"http://user:{SECRET}@127.0.0.1:9/",
            "options": {"allow_http": True},
        },
        {"kind": "files", "root": str(folder)},
    ]
    answers = [server.admin.post("/v1/connections", json=configs[0] | {"name": "Bad Name"})]
    for config in configs:
        name = connected(server, owner, **config)
        answers += [
            register(owner, f"{name}:{path}")
            for path in ("rows.csv", "plane", "hidden", "nothing", "../x", "writes")
        ]
    answers += [caller.get("/v1/connections") for caller in (owner, server.admin)]
    assert {answer.status_code for answer in answers} == {200, 201, 422}
    told = "".join(answer.text + str(answer.headers) for answer in answers)
    server.stop()
    told += server.log.read_text() + (ROOT / "openapi.yaml").read_text()
    database = Database(server.database_url)
    with database.read() as session:
        rows = session.connection().exec_driver_sql("SELECT * FROM connections").all()
    database.close()
    assert len(rows) == len(configs)
    told += str(rows)
    for hidden in (SECRET, "key-of-tests", "clinic", str(folder), "127.0.0.1:9"):
        assert hidden not in told, hidden
    assert ADMIN_KEY not in told
    # Under another secret they open nothing, and say so.
    (server.directory / "secret").write_bytes(bytes(32))
    problem(register_after_restart(start_server, owner, name), 503, "unavailable")


def register_after_restart(start: Callable[..., Server], owner: Caller, name: str) -> httpx.Response:
    """What a handle gets from a service that was started anew."""
    return register(Caller(start(), owner.id, owner.key), f"{name}:rows.csv")


# The two bodies of one call


@on_one_database
def test_bodies_that_are_no_handles(server: Server) -> None:
    owner = server.owner()
    good = {"uri": "a:b.csv", "schema": PLANE}
    bodies: list[Any] = [
        {},
        [],
        SECRET,
        good | {SECRET: 1},
        good | {"uri": 7},
        good | {"uri": SECRET},
        good | {"uri": f"{SECRET.upper()}:x.csv"},
        good | {"uri": "a:"},
        good | {"uri": ":x.csv"},
        good | {"uri": "a:" + "x" * 1001},
        good | {"schema": SECRET},
        good | {"schema": PLANE | {"radius": "1"}},
        good | {"schema": PLANE | {"radius": float("inf")}},
        {"uri": "a:b.csv"},
        {"schema": PLANE},
    ]
    for body in bodies:
        answer = owner.post(
            "/v1/datasets", content=json.dumps(body), headers={"Content-Type": "application/json"}
        )
        problem(answer, 422, "invalid")
        assert SECRET not in answer.text.lower()
    for content in (b"", b"{", b"\xff", b"[" * 100_000):
        answer = owner.post("/v1/datasets", content=content, headers={"Content-Type": "application/json"})
        problem(answer, 422, "invalid")
    # It holds no rows, so it need not be long.
    problem(owner.post("/v1/datasets", json=good | {"uri": "x" * 2**20}), 413, "too-large")
    problem(register(owner, "a:b.csv"), 404, "not-found")
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    problem(owner.post("/v1/datasets", content=json.dumps(good), headers=headers), 404, "not-found")


def _sent(owner: Caller, content: bytes, sha256: str) -> httpx.Response:
    form = {"schema": json.dumps(PLANE), "sha256": sha256}
    return owner.post("/v1/datasets", files={"file": ("rows.npy", content)}, data=form)


@on_one_database
def test_the_digest_of_an_upload(server: Server) -> None:
    owner = server.owner()
    content = npy(ROWS)
    digest = hashlib.sha256(content).hexdigest()
    assert _sent(owner, content, digest).status_code == 201
    assert _sent(owner, content, digest.upper()).status_code == 201
    for damaged in (content[:-1], content + b"\0", content[:-1] + b"\1"):
        document = problem(_sent(owner, damaged, digest), 422, "dataset-invalid")
        assert document["faults"] == [
            {"location": "sha256", "rule": "is not the SHA-256 of the file that arrived: send the file again"}
        ]
        nothing_left(server)
    for malformed in (digest[:-1], digest + "0", "g" * 64, ""):
        problem(_sent(owner, content, malformed), 422, "invalid")
    assert len(owner.get("/v1/datasets").json()["datasets"]) == 2


@on_one_database
def test_formats_by_content_type(server: Server, tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    owner = server.owner()
    table = pa.table({"x": ROWS[:, 0], "y": ROWS[:, 1]})
    parquet.write_table(table, tmp_path / "rows.parquet")
    with pa.ipc.new_stream(tmp_path / "stream.arrow", table.schema) as stream:
        stream.write_table(table)
    with pa.ipc.new_file(tmp_path / "file.arrow", table.schema) as file:
        file.write_table(table)
    np.savez(tmp_path / "rows.npz", ROWS)
    sent = {
        ("x", "application/x-npy"): npy(ROWS),
        ("x", "text/csv; charset=utf-8"): csv_of(ROWS),
        ("x", "application/x-npz"): (tmp_path / "rows.npz").read_bytes(),
        ("rows.npz", "application/zip"): (tmp_path / "rows.npz").read_bytes(),
        ("x", "application/vnd.apache.parquet"): (tmp_path / "rows.parquet").read_bytes(),
        ("x.csv", "application/vnd.apache.arrow.stream"): (tmp_path / "stream.arrow").read_bytes(),
        ("x", "application/vnd.apache.arrow.file"): (tmp_path / "file.arrow").read_bytes(),
        ("x", "application/json"): json.dumps(ROWS.tolist()).encode(),
        ("x.ARROW", "application/octet-stream"): (tmp_path / "file.arrow").read_bytes(),
    }
    marks = set()
    for (name, media), content in sent.items():
        answer = owner.upload(content, PLANE, name=name, media=media)
        assert answer.status_code == 201, (name, media, answer.text)
        marks.add(answer.json()["fingerprint"])
    assert len(marks) == 1
    problem(owner.upload(npy(ROWS), PLANE, name="x", media="application/zip"), 415, "unsupported-media-type")
