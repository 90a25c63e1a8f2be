"""A new estimator is one file and one line, and so is a new manifold: shown by adding one of each."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from testing.server import HANG_GUARD, PLAIN, Caller, Server, books_balance, npy, problem

ROOT = Path(__file__).parents[3]
TOYS = (sys.executable, "-m", "testing.with_toys")
VECTORS = {"kind": "vectors", "dim": 3, "norm_bound": 2.0}
STRETCHED = {"name": "stretched", "dim": 2, "factor": 2.0}

ESTIMATOR_EDITS = {
    "core/privest/estimators/registry.py",
    "service/privest_service/dashboard/pages/answers.py",
    "client/privest_client/answers.py",
    "audit/canaries.py",
    "audit/estimates.py",
    "testing/neighbours.py",
}
"""Files outside the estimator's own package that a new estimator edits."""

MANIFOLD_EDITS = {"core/privest/manifolds/stiefel_grassmann.py", "core/privest/manifolds/__init__.py"}

WRITTEN = ("core", "service", "client", "audit", "testing", "migrations", "scripts", "deploy")

GENERATED = {"client/privest_client/models.py", "client/privest_client/estimators.py"}


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[str], str]) -> Iterator[Server]:
    """A service that was started with both."""
    server = Server(tmp_path_factory.mktemp("toys"), new_database("sqlite"), TOYS, fresh=True)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def owner(toys: Server) -> Caller:
    return toys.owner(epsilon=20.0, delta=1e-3)


@pytest.fixture(scope="module")
def desk(toys: Server, owner: Caller) -> httpx.Client:
    """The owner's dashboard."""
    session = httpx.Client(base_url=f"{toys.url}/dashboard", timeout=HANG_GUARD, verify=PLAIN)
    assert session.post("/sign-in", data={"key": owner.key}).status_code == 303
    return session


def rows(n: int, dim: int) -> np.ndarray:
    return 0.5 + 0.1 * np.random.default_rng(3).standard_normal((n, dim))


def page(desk: httpx.Client, path: str) -> str:
    answer = desk.get(path)
    assert answer.status_code == 200, (path, answer.status_code, answer.text[-500:])
    return answer.text


def test_an_estimator_of_one_file_and_one_line(toys: Server, owner: Caller, desk: httpx.Client) -> None:
    dataset = owner.dataset(rows(400, 3), VECTORS)
    asked = {"kind": "toy-mean", "epsilon": 2.0, "rounds": 4}

    # The plan charges nothing, the run exactly what the plan says.
    planned = owner.plan(dataset, **asked).json()
    assert (planned["kind"], planned["shrink"], planned["steps"]) == ("toy-mean", 1.0, 4)
    assert planned["releases"][0]["statistic"] == "row"
    assert owner.budget()["queries"] == 0
    job = owner.estimate(dataset, key="once", **asked).json()
    assert job["state"] == "committed", job
    off = np.array(job["estimate"]["mean"]) - 0.5
    assert np.linalg.norm(off) < 0.1 + 6 * job["uncertainty"]["standard_deviation"]
    assert job["uncertainty"]["of"] == "the mean of the shortened rows"
    assert job["warnings"] == [*planned["warnings"], "a toy answered"]
    assert job["privacy"] == planned["privacy"]
    assert owner.budget()["queries"] == 1
    assert owner.estimate(dataset, key="once", **asked).json()["id"] == job["id"]

    # The receipt, and a stranger's look at the whole ledger.
    assert owner.get(f"/v1/jobs/{job['id']}/receipt").json()["statement"]["kind"] == "toy-mean"
    assert books_balance(toys)

    # What is out of the declared range is refused in its words.
    for options, rule in (({"rounds": 0}, "at least 1"), ({"rounds": 4, "shrink": 2.0}, "at most 1")):
        refused = owner.plan(dataset, kind="toy-mean", epsilon=2.0, **options)
        assert rule in problem(refused, 422, "invalid")["faults"][0]["rule"]

    # Several datasets are pooled as they are for any other estimator.
    other = owner.dataset(rows(300, 3), VECTORS)
    body = {"dataset": [{"id": dataset}, {"id": other}], "privacy": {"epsilon": 1.0}, "rounds": 2}
    pooled = owner.post(
        "/v1/estimates/toy-mean", headers={"Idempotency-Key": "two", "Prefer": "wait=240"}, json=body
    )
    assert pooled.json()["state"] == "committed", pooled.text

    # Every page of the dashboard.
    for path in ("", "/datasets", f"/datasets/{dataset}", "/datasets/new?kind=vectors", "/analysts"):
        page(desk, path)
    assert "Toy mean" in page(desk, "/answers")
    told = page(desk, f"/answers/{job['id']}")
    assert "Mean." in told
    assert "from the mean of the shortened rows" in told
    assert "<li>what shortening moved</li>" in told
    assert "Foretold by the plan" in told
    assert "a toy answered" in told
    assert "toy mean" in page(desk, "/ledger")
    entry = max(each["seq"] for each in owner.ledger() if each.get("job") == job["id"])
    assert "Toy mean" in page(desk, f"/ledger/{entry}")
    assert "toy mean" in page(desk, "/datasets/new?kind=vectors")
    told = page(desk, f"/what-if?dataset={dataset}&kind=toy-mean&epsilon=0.5")
    assert 'name="rounds"' in told
    assert "the noise alone moves the toy mean" in told
    assert "{&#34;shrink&#34;: 1.0}" in told  # the example of further options is one of its own
    asked_for = f"/what-if?dataset={dataset}&kind=toy-mean&epsilon=0.5"
    assert desk.get(f"{asked_for}&rounds=0").status_code == 422
    assert "mean 1.0" not in page(desk, f"{asked_for}&rank=2")  # a field of another kind stays from before
    for name, rule in (
        ("shrink", "belongs in the further options"),
        ("colour", "is not a known field"),
        ("12-07-1987", "a field not in lower-case words"),
    ):
        refused = desk.get(f"{asked_for}&{name}=0.5")
        assert refused.status_code == 422
        assert rule in refused.text
        assert (name in refused.text) == name.isalpha()


@pytest.mark.costly
def test_the_interface_and_the_client_of_a_new_estimator(toys: Server, owner: Caller, tmp_path: Path) -> None:
    """The commands of `make openapi` write both; nobody edits either."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def command(*words: object, **more: str) -> str:
        made = subprocess.run(
            list(map(str, words)),
            cwd=ROOT,
            env=environment | more,
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr[-2000:]
        return made.stdout

    openapi = tmp_path / "openapi.yaml"
    openapi.write_text(command(*TOYS, "openapi"))
    client = Path(shutil.copytree(ROOT / "client" / "privest_client", tmp_path / "privest_client"))
    codegen = Path(sys.executable).with_name("datamodel-codegen")
    command(codegen, "--input", openapi, "--output", client / "models.py")
    command(sys.executable, "scripts/client-methods", openapi, client)

    dataset = owner.dataset(rows(200, 3), VECTORS)
    program = f"""
import inspect
from privest_client import Client
import privest_client
assert privest_client.__file__.startswith({str(tmp_path)!r}), privest_client.__file__
assert "shrink: factor of the answer" in Client.toy_mean.__doc__
named = list(inspect.signature(Client.toy_mean).parameters)
assert named[:5] == ["self", "dataset", "columns", "rounds", "epsilon"]
with Client({toys.url!r}, {owner.key!r}, progress=False) as client:
    plan = client.plan("toy-mean", {dataset!r}, rounds=2, epsilon=0.5)
    found = client.toy_mean({dataset!r}, rounds=2, epsilon=0.5)
    assert client.wait(found.id).job == found.job
    assert (found.uncertainty.unknown, found.warnings) == (["what shortening moved"], ["a toy answered"])
    print(found.job.estimate.model_dump_json())
"""
    told = command(sys.executable, "-c", program, PYTHONPATH=str(tmp_path))
    assert len(json.loads(told)["mean"]) == 3


def test_a_manifold_of_one_file_and_one_line(toys: Server, owner: Caller, desk: httpx.Client) -> None:
    dataset = owner.dataset(rows(300, 2), {"kind": "points", "manifold": STRETCHED, "radius": 4.0})
    job = owner.estimate(dataset, epsilon=2.0).json()
    assert job["state"] == "committed", job
    off = 2.0 * np.linalg.norm(np.array(job["estimate"]["point"]) - 0.5)
    assert off < 0.2 + 6 * job["uncertainty"]["standard_deviation"]
    assert len(owner.get(f"/v1/datasets/{dataset}/dummy").json()["rows"][0]) == 2

    for given, rule in (({"factor": 20.0}, "at most 10"), ({"dim": 51}, "at most 50")):
        schema = {"kind": "points", "manifold": STRETCHED | given}
        refused = problem(owner.upload(npy(rows(30, 2)), schema), 422, "invalid")
        assert rule in refused["faults"][0]["rule"]

    # The form offers it with its parameters, takes it, and its pages are shown.
    form = page(desk, "/datasets/new?kind=points")
    assert "<option>stretched</option>" in form
    assert re.search(r'name="factor"[^>]*inputmode="decimal"', form)
    assert re.search(r'name="dim"[^>]*inputmode="numeric"', form)
    (token,) = set(re.findall(r'name="token" value="([^"]+)"', form))
    fields = {"kind": "points", "manifold": "stretched", "dim": "2", "factor": "2", "radius": "4"}
    # What the form asks for other manifolds is sent along, and left out.
    fields |= {"metric": "log-euclidean", "rank": ""}
    uploaded = desk.post(
        "/datasets/new", data=fields | {"token": token}, files={"file": ("rows.npy", npy(rows(30, 2)))}
    )
    assert uploaded.status_code == 303, uploaded.text
    made = uploaded.headers["location"].partition("?")[0].rpartition("/")[2]
    assert owner.get(f"/v1/datasets/{made}").json()["schema"]["manifold"] == STRETCHED
    assert "stretched" in page(desk, f"/datasets/{dataset}")
    page(desk, f"/answers/{job['id']}")
    page(desk, f"/what-if?dataset={dataset}&epsilon=0.5")


def naming(pattern: str, *folders: str) -> set[str]:
    """Files that somebody wrote by hand, and that have a name in them."""
    listed = subprocess.run(
        ["git", "grep", "-liE", pattern, "--", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(listed.stdout.split()) - GENERATED


def test_as_many_files_name_an_estimator_as_the_documents_say() -> None:
    """Matrix completion is the example: a table by its name anywhere else would be one more place to edit."""
    found = naming("matrix.?completion|CompletionGradient", *WRITTEN)
    # A solver of a paper has a module and an entry more, which an estimator without one has not.
    paper = ("core/privest_papers/", "core/privest/estimators/paper_solvers.py")
    own = ("core/privest/estimators/subspace/", "testing/completion.py", *paper)
    others = {path for path in found if not path.startswith(own)}
    assert others == ESTIMATOR_EDITS
    assert _stated("An estimator") == len(ESTIMATOR_EDITS) + 1 <= 7


def test_as_many_files_name_a_manifold_as_the_documents_say() -> None:
    found = naming("oblique", *WRITTEN)
    assert found == MANIFOLD_EDITS
    assert _stated("A manifold") == len(MANIFOLD_EDITS) <= 2


def _stated(what: str) -> int:
    """The number of files that docs/architecture.md says are edited."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    (number,) = re.findall(rf"\*\*{what} takes edits in at most (\d) files\.\*\*", text)
    return int(number)
