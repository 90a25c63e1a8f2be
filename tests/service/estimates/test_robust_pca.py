"""Robust PCA over HTTP: from an upload of vectors to the bill, for every solver, whatever the rows hold."""

import json
from collections.abc import Callable
from math import pi, sqrt

import numpy as np
import psutil
import pytest

from privest.manifolds.stiefel_grassmann import Grassmann
from privest_service.ledger.receipts import Receipt, signed_by
from testing.server import SPD3, Caller, Server, body_of, csv_of, npy, problem


@pytest.fixture
def backend() -> str:
    """One database will do, as it plays no part here."""
    return "sqlite"


D, R = 6, 2
VECTORS = {"kind": "vectors", "dim": D}
ASK = {"kind": "robust-pca", "rank": R, "epsilon": 2.0, "delta": 1e-6}
SOLVERS = ["ggd", "sggd", "gd-reaper", "sgd-reaper", "md-reaper", "smd-reaper"]

only_on_sqlite = pytest.mark.parametrize("backend", ["sqlite"])
"""Marks tests in which no database plays a part."""


def planted(n: int = 400, dim: int = D, rank: int = R) -> tuple[np.ndarray, np.ndarray]:
    """Half of the rows in the span of the first axes, the others anywhere; of all lengths."""
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((n, dim))
    rows[::2, rank:] = 0.0
    return rows * rng.uniform(0.1, 10.0, (n, 1)), np.eye(dim)[:, :rank]


def committed(caller: Caller, dataset: str, **asked: object) -> dict:
    """The job of a question that is answered, with an orthonormal basis of the right shape in it."""
    answer = caller.estimate(dataset, **ASK | asked)
    assert answer.status_code == 200, answer.text
    job = answer.json()
    assert job["state"] == "committed", job
    basis = np.array(job["estimate"]["basis"])
    rank = asked.get("rank", R)
    assert basis.shape[1] == rank
    assert np.isfinite(basis).all()
    assert np.abs(basis.T @ basis - np.eye(rank)).max() < 1e-10
    return job


_datasets: dict[str, tuple[Caller, str]] = {}


@pytest.fixture
def owner(server: Server) -> Caller:
    """An owner of planted rows, with budget enough for all that is asked here."""
    if server.url not in _datasets:
        owner = server.owner(epsilon=100.0, delta=1e-3)
        _datasets[server.url] = owner, owner.dataset(planted()[0], VECTORS)
    return _datasets[server.url][0]


@pytest.fixture
def dataset(server: Server, owner: Caller) -> str:
    """The dataset of the owner's planted rows."""
    return _datasets[server.url][1]


def refused(owner: Caller, dataset: str, **asked: object) -> str:
    """What a plan and a query are refused with, alike, while nothing is charged."""
    before = owner.budget(), owner.ledger()
    asked = {name: value for name, value in (ASK | asked).items() if value is not ...}
    first = problem(owner.plan(dataset, **asked), 422, "invalid")
    assert problem(owner.estimate(dataset, **asked), 422, "invalid") == first
    assert (owner.budget(), owner.ledger()) == before
    return json.dumps(first)


# Datasets of vectors


@pytest.mark.parametrize("form", ["npy", "csv", "csv with names"])
def test_vectors_from_upload_to_public_facts(server: Server, form: str) -> None:
    owner, rows = server.owner(), planted(60)[0]
    names = ",".join(f"gene {k}" for k in range(D)).encode() + b"\n"
    bare = csv_of(rows).partition(b"\n")[2]
    content = {"npy": npy(rows), "csv": bare, "csv with names": names + bare}[form]
    header = False if form == "csv" else None
    uploaded = owner.upload(content, VECTORS, name=f"rows.{form[:3]}", header=header)
    assert uploaded.status_code == 201, uploaded.text
    told = uploaded.json()
    assert (told["kind"], told["n"], told["shape"]) == ("vectors", 60, [60, D])
    assert told["schema"] == VECTORS | {"norm_bound": 1.0, "unit": None}
    assert owner.get(f"/v1/datasets/{told['id']}").json() == told
    reference = owner.upload(npy(rows), VECTORS).json()
    assert told["fingerprint"] == reference["fingerprint"]


@only_on_sqlite
def test_dummy_rows_know_the_schema_alone(server: Server) -> None:
    owner = server.owner()
    schema = VECTORS | {"norm_bound": 3.0}
    first, second = (owner.dataset(planted(n)[0], schema) for n in (20, 50))
    told = [owner.get(f"/v1/datasets/{dataset}/dummy").json() for dataset in (first, second)]
    assert told[0] == told[1]
    rows = np.array(told[0]["rows"])
    assert rows.shape[1] == D
    lengths = np.linalg.norm(rows, axis=1)
    assert 1.0 < np.median(lengths) < 6.0


def _with(place: tuple[int, int], value: float) -> bytes:
    rows = planted(60)[0]
    rows[place] = value
    return npy(rows)


FAULTS: dict[str, tuple[bytes, str, int | None, str | None, str]] = {
    "NaN": (_with((17, 4), np.nan), "npy", 17, "[4]", "finite"),
    "infinite": (_with((59, 0), -np.inf), "npy", 59, "[0]", "finite"),
    "strings": (npy(np.full((9, D), "987654")), "npy", None, None, ""),
    "a column too few": (npy(np.ones((9, D - 1))), "npy", None, None, ""),
    "flat": (npy(np.ones(54)), "npy", None, None, ""),
    "a word in a table": (csv_of(np.ones((9, D))) + b"1,2,MARKER,4,5,6\n", "csv", 9, "[2]", "number"),
    "NaN in a table": (csv_of(np.ones((9, D))) + b"1,2,3,4,5,nan\n", "csv", 9, "[5]", "finite"),
    "a table with a column too many": (
        csv_of(np.ones((9, D))) + b"1,2,3,4,5,6,7\n",
        "csv",
        9,
        None,
        "columns",
    ),
    "a table of other columns": (csv_of(np.ones((9, D + 1))), "csv", 0, None, "columns"),
}


@only_on_sqlite
@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_record_is_named_by_index_and_field(owner: Caller, name: str) -> None:
    content, form, record, field, rule = FAULTS[name]
    answer = owner.upload(content, VECTORS, name=f"rows.{form}")
    fault = problem(answer, 422, "dataset-invalid")["faults"][0]
    assert (fault.get("record"), fault.get("field")) == (record, field)
    assert rule in fault["rule"]
    assert "MARKER" not in answer.text
    assert "987654" not in answer.text


@only_on_sqlite
@pytest.mark.parametrize(
    "wrong",
    [
        {"dim": 0},
        {"dim": -1},
        {"dim": 100_001},
        {"dim": 6.5},
        {"dim": "6"},
        {"dim": None},
        {"norm_bound": 0},
        {"norm_bound": -1.0},
        {"norm_bound": 1e7},
        {"norm_bound": float("nan")},
        {"norm_bound": None},
        {"radius": 1.0},
        {"manifold": {"name": "sphere", "dim": 6}},
        {"987654": 1},
    ],
    ids=str,
)
def test_a_schema_of_no_vectors(owner: Caller, wrong: dict) -> None:
    answer = owner.upload(npy(planted(20)[0]), VECTORS | wrong)
    problem(answer, 422, "invalid")
    assert "987654" not in answer.text


def test_estimates_and_datasets_of_different_kinds(server: Server) -> None:
    owner = server.owner()
    vectors, points = owner.dataset(planted()[0], VECTORS), owner.dataset()
    before = owner.budget(), owner.ledger()
    for ask in (owner.plan, owner.estimate):
        needs = problem(ask(points, kind="robust-pca", rank=1), 422, "invalid")
        assert "vectors" in json.dumps(needs)
        needs = problem(ask(vectors, kind="frechet-mean"), 422, "invalid")
        assert "points" in json.dumps(needs)
    assert (owner.budget(), owner.ledger()) == before
    assert owner.dataset(schema=SPD3)


# The way of one query


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_answers_at_the_cost_that_its_plan_says(
    owner: Caller, dataset: str, solver: str
) -> None:
    before = owner.ledger()
    plan = owner.plan(dataset, **ASK, solver=solver).json()
    assert owner.ledger() == before
    assert plan["kind"] == "robust-pca"
    assert plan["solver"] == solver
    assert plan["why"]
    assert plan["second_opinion"]["epsilon"] > 1.0
    assert any(release["batch"] for release in plan["releases"]) == solver.startswith("s")

    job = committed(owner, dataset, solver=solver)
    assert job["privacy"] == plan["privacy"]
    assert (job["privacy"]["epsilon"], job["privacy"]["delta"]) == (2.0, 1e-6)
    assert "subspace" in job["uncertainty"]["of"]
    assert job["forecast"] == plan["expected_error"]
    assert 0 < job["uncertainty"]["standard_deviation"] <= job["uncertainty"]["radius_95"] < sqrt(R) * pi
    assert job["estimate"]["center"] is None
    assert len(job["estimate"]["explained"]) == R
    assert job["estimate"]["degrees_95"] == pytest.approx(180 / pi * job["uncertainty"]["radius_95"])

    (charge,) = job["charges"]
    assert charge["mu_squared"] == pytest.approx(plan["privacy"]["mu"] ** 2, abs=2e-12)
    assert charge["slack"] == pytest.approx(plan["privacy"]["slack"], rel=1e-9)
    entry, *earlier = owner.ledger()
    assert earlier == before
    assert (entry["kind"], entry["estimate"], entry["state"]) == ("debit", "robust-pca", "committed")
    assert (entry["job"], entry["dataset"]) == (job["id"], dataset)
    assert entry["mu_squared"] == charge["mu_squared"]
    assert "gradient" in job["privacy"]["mechanism"]

    receipt = Receipt.model_validate_json(owner.get(f"/v1/jobs/{job['id']}/receipt").content)
    assert signed_by(receipt, receipt.public_key)
    assert receipt.statement.kind == "robust-pca"
    places = {(it.seq, it.hash) for it in receipt.statement.entries}
    assert (entry["seq"], entry["hash"]) in places
    assert len(receipt.statement.entries) == 2  # of the owner's account, and of the dataset's


@pytest.mark.parametrize("solver", ["ggd", "md-reaper"])
@only_on_sqlite
def test_the_plane_is_found(server: Server, solver: str) -> None:
    """Far more exactly than the bound that is asked for; a random plane has about 1.8."""
    rows, truth = planted(4000)
    owner = server.owner(epsilon=9.0)
    job = committed(owner, owner.dataset(rows, VECTORS), solver=solver)
    assert Grassmann(*truth.shape).dist(np.array(job["estimate"]["basis"]), truth) < 0.3


@only_on_sqlite
def test_an_affine_plane_is_found_about_its_centre(server: Server) -> None:
    rows, truth = planted(20_000)
    centre = np.full(D, 0.3)
    owner = server.owner(epsilon=9.0)
    dataset = owner.dataset(0.1 * rows + centre, VECTORS | {"norm_bound": 2.0})
    job = committed(owner, dataset, center=True, explained=True)
    found = job["estimate"]
    assert np.linalg.norm(np.array(found["center"]) - centre) < 0.15
    assert Grassmann(*truth.shape).dist(np.array(found["basis"]), truth) < 0.3
    assert len(found["explained"]) == R
    assert 1.0 >= found["explained"][0] >= found["explained"][1] >= 0.0
    assert sum(found["explained"]) > 0.4
    plan = owner.plan(dataset, **ASK, center=True, explained=True).json()
    assert {release["statistic"] for release in plan["releases"]} >= {"location", "moment", "look"}
    assert sum(release["count"] for release in plan["releases"]) == plan["steps"]


OPTIONS = [
    {"loss": "absolute"},
    {"loss": "squared"},
    {"loss": "squared", "rank": 1},
    {"loss": "bounded", "scale": 0.4},
    {"loss": "redescending", "scale": 1.0, "steps": 3, "step_size": 0.2},
    {"start": "random"},
    {"start": "sketch", "consensus": True},
    {"start": "reaper", "halvings": 20, "steps": 70},
    {"start": "analyze-gauss", "consensus": False},
    {"solver": "sggd", "rate": 0.5, "steps": 3},
    {"solver": "sggd", "sampling": "fixed", "steps": 3, "loss": "absolute"},
    {"solver": "rsvrg", "loss": "squared", "rank": 1, "rate": 0.5, "epochs": 2, "step_size": 0.5},
    {"solver": "gd-reaper", "steps": 2, "step_size": 0.5, "center": True, "explained": True},
    {"rank": D - 1},
]


@only_on_sqlite
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_are_taken(owner: Caller, dataset: str, options: dict) -> None:
    answer = owner.plan(dataset, **ASK | options)
    assert answer.status_code == 200, answer.text
    plan = answer.json()
    for name in ("solver", "start", "consensus"):
        assert plan[name] == options.get(name, plan[name])
    if "step_size" in options:
        assert plan["step_sizes"][0] == options["step_size"]
    if "steps" in options:
        assert len(plan["step_sizes"]) == options["steps"]
    job = committed(owner, dataset, **options)
    assert job["charges"][0]["mu_squared"] == pytest.approx(plan["privacy"]["mu"] ** 2, abs=2e-12)


@pytest.mark.costly
@only_on_sqlite
def test_heavy_plans_are_made_elsewhere_and_remembered(shared_server: Callable[..., Server]) -> None:
    server = shared_server(fresh=True)  # one that was forked has the accountants
    owner = server.owner(epsilon=100.0, delta=1e-3)
    dataset = owner.dataset(planted()[0], VECTORS)
    asked = ASK | {"solver": "smd-reaper", "epsilon": 1.7}
    plan = owner.plan(dataset, **asked)
    web = psutil.Process(server.process.pid)
    assert not [m.path for m in web.memory_maps() if "/scipy/stats/" in m.path]  # accountants import it
    workers = web.children(recursive=True)
    for worker in workers:
        worker.suspend()
    try:
        assert owner.plan(dataset, **asked).content == plan.content
        assert owner.estimate(dataset, key="planned", wait=0, **asked).status_code == 202
    finally:
        for worker in workers:
            worker.resume()
    job = committed(owner, dataset, solver="smd-reaper", epsilon=1.7)
    assert job["privacy"] == plan.json()["privacy"]


def test_the_same_question_is_answered_from_the_store(server: Server) -> None:
    owner = server.owner(epsilon=9.0)
    dataset = owner.dataset(planted()[0], VECTORS)
    first, again = committed(owner, dataset), committed(owner, dataset)
    assert again == first | {"reused": True}
    assert committed(owner, dataset, reuse=False)["estimate"] != first["estimate"]
    assert committed(owner, dataset, loss="absolute")["id"] != first["id"]
    assert owner.budget()["queries"] == 3


def test_an_analyst_with_a_grant(server: Server) -> None:
    owner, analyst = server.owner(epsilon=9.0), server.analyst()
    dataset = owner.dataset(planted()[0], VECTORS)
    problem(analyst.estimate(dataset, **ASK), 404, "not-found")
    assert owner.grant(dataset, analyst, epsilon=2.5, delta=1e-5).status_code == 200
    job = committed(analyst, dataset)
    assert {charge["mu_squared"] for charge in job["charges"]} == {owner.ledger()[0]["mu_squared"]}
    assert len(job["charges"]) == 2
    assert owner.ledger()[0]["submitter"] == analyst.id
    seen = owner.get(f"/v1/jobs/{job['id']}").json()
    told = {"estimate": None, "uncertainty": None, "forecast": None, "warnings": []}
    assert seen == job | told | {"receipt": seen["receipt"]}
    problem(analyst.estimate(dataset, **ASK, reuse=False), 409, "budget-exceeded")


def test_a_budget_that_does_not_cover_it(server: Server) -> None:
    owner = server.owner(epsilon=1.0)
    dataset = owner.dataset(planted()[0], VECTORS)
    before = owner.budget(), owner.ledger()
    for solver in ("ggd", "sgd-reaper"):
        problem(owner.estimate(dataset, **ASK, solver=solver), 409, "budget-exceeded")
    assert (owner.budget(), owner.ledger()) == before


# Bad input that is public


BAD = {
    "rank of all columns": ({"rank": D}, "rank"),
    "rank beyond them": ({"rank": D + 5}, "rank"),
    "rank zero": ({"rank": 0}, "rank"),
    "rank negative": ({"rank": -1}, "rank"),
    "rank a fraction": ({"rank": 1.5}, "rank"),
    "rank left out": ({"rank": ...}, "rank"),
    "rank null": ({"rank": None}, "rank"),
    "unknown loss": ({"loss": "987654"}, "loss"),
    "unknown solver": ({"solver": "987654"}, "solver"),
    "unknown start": ({"start": "987654"}, "start"),
    "unknown field": ({"987654": 1}, ""),
    "field of another kind": ({"clip": 1.0}, "not a known field"),
    "step_size zero": ({"step_size": 0}, "step_size"),
    "step_size negative": ({"step_size": -1.0}, "step_size"),
    "step_size tiny": ({"step_size": 1e-300}, "step_size"),
    "step_size huge": ({"step_size": 1e9}, "step_size"),
    "steps zero": ({"steps": 0}, "steps"),
    "steps too many": ({"steps": 987654}, "steps"),
    "scale zero": ({"scale": 0}, "scale"),
    "scale tiny": ({"loss": "bounded", "scale": 1e-9}, "scale"),
    "scale with absolute": ({"loss": "absolute", "scale": 0.5}, "scale"),
    "scale with squared": ({"loss": "squared", "scale": 0.5}, "scale"),
    "rate with ggd": ({"rate": 0.5}, "rate"),
    "sampling with md-reaper": ({"solver": "md-reaper", "sampling": "fixed"}, "sampling"),
    "rate zero": ({"solver": "sggd", "rate": 0.0}, "rate"),
    "rate above one": ({"solver": "sggd", "rate": 1.5}, "rate"),
    "consensus with squared": ({"loss": "squared", "consensus": True}, "consensus"),
    "consensus from a random start": ({"start": "random", "consensus": True}, "consensus"),
    "loss with a relaxed solver": ({"solver": "gd-reaper", "loss": "absolute"}, "loss"),
    "start with a relaxed solver": ({"solver": "gd-reaper", "start": "random"}, "start"),
    "delta zero": ({"delta": 0}, "delta must be above 0"),
    "delta zero, stochastic": ({"delta": 0, "solver": "sggd"}, "delta must be above 0"),
    "center a number": ({"center": 1}, "center"),
    "explained a word": ({"explained": "yes"}, "explained"),
    "epsilon beyond float64 sums": ({"epsilon": 1e300}, ""),
    "epsilon tiny": ({"epsilon": 1e-300, "delta": 1e-300}, ""),
}


@only_on_sqlite
@pytest.mark.parametrize("name", BAD)
def test_a_bad_question(owner: Caller, dataset: str, name: str) -> None:
    asked, word = BAD[name]
    told = refused(owner, dataset, **asked)
    assert word in told
    assert "987654" not in told


@only_on_sqlite
@pytest.mark.parametrize("field", ["rank", "step_size", "scale", "rate"])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-Infinity"])
def test_numbers_that_are_none(owner: Caller, dataset: str, field: str, number: str) -> None:
    body = json.dumps(body_of(dataset, 2.0, delta=1e-6, rank=R) | {field: "HERE"})
    for path in ("/v1/estimates/robust-pca", "/v1/estimates/robust-pca/plan"):
        headers = {"Content-Type": "application/json", "Idempotency-Key": "no number"}
        problem(owner.post(path, headers=headers, content=body.replace('"HERE"', number)), 422, "invalid")


@only_on_sqlite
def test_too_few_records(server: Server) -> None:
    owner = server.owner(epsilon=9.0)
    rows = planted(4)[0]
    assert "records" in refused(owner, owner.dataset(rows, VECTORS), rank=4)
    assert committed(owner, owner.dataset(rows, VECTORS), rank=3)


@only_on_sqlite
def test_vectors_of_one_number_have_no_subspace(server: Server) -> None:
    owner = server.owner()
    assert "rank" in refused(owner, owner.dataset(np.ones((9, 1)), {"kind": "vectors", "dim": 1}), rank=1)


@only_on_sqlite
def test_more_columns_than_a_square_matrix_is_formed_for(server: Server) -> None:
    owner = server.owner(epsilon=9.0)
    dataset = owner.dataset(np.ones((20, 301)), {"kind": "vectors", "dim": 301})
    for solver in SOLVERS[2:]:
        plan = owner.plan(dataset, **ASK, solver=solver).json()
        assert plan["start"] == "sketch"
        assert [release["statistic"] for release in plan["releases"]] == ["explained", "sketch", "gradient"]
    wider = owner.dataset(np.ones((60, 1001)), {"kind": "vectors", "dim": 1001})
    assert "1000 columns" in refused(owner, wider, start="analyze-gauss")
    assert "rank must be at most" in refused(owner, wider, rank=51)
    assert owner.plan(wider, **ASK).json()["start"] in ("sketch", "random")


@only_on_sqlite
def test_a_budget_without_delta_is_told_what_it_lacks(server: Server) -> None:
    owner = server.owner(epsilon=9.0, delta=0.0, composition="basic")
    told = refused(owner, owner.dataset(planted()[0], VECTORS), delta=...)
    assert "delta must be above 0" in told


def test_a_basic_budget_with_delta(server: Server) -> None:
    owner = server.owner(epsilon=2.0, delta=1e-2, composition="basic")
    job = committed(owner, owner.dataset(planted()[0], VECTORS), delta=1e-3)
    assert job["charges"][0]["epsilon"] == 2.0
    assert owner.budget()["remaining"]["epsilon"] == 0.0


# Bad input that is private: it must not be seen in status, size or number of steps


def _rows(kind: str) -> np.ndarray:
    rows = planted(60)[0]
    match kind:
        case "zero rows":
            rows[::3] = 0.0
        case "nothing but zero rows":
            rows[:] = 0.0
        case "constant columns":
            rows[:, 1:4] = 5.0
        case "all rows equal":
            rows[:] = rows[0]
        case "huge":
            rows[:] *= 1e300
        case "one huge":
            rows[5] = np.finfo(float).max
        case "tiny":
            rows *= 1e-300
        case "subnormal":
            rows[::2] = 5e-324
        case "of all sizes":
            rows *= 10.0 ** np.linspace(-300, 300, 60)[:, None]
    assert np.isfinite(rows).all()
    return rows


PRIVATE = [
    "zero rows",
    "nothing but zero rows",
    "constant columns",
    "all rows equal",
    "huge",
    "one huge",
    "tiny",
    "subnormal",
    "of all sizes",
]


@pytest.mark.few(3)
@only_on_sqlite
@pytest.mark.parametrize("kind", PRIVATE)
def test_rows_without_a_subspace_are_answered_like_any(server: Server, kind: str) -> None:
    owner = server.owner(epsilon=1000.0, delta=1e-3)
    dataset, usual = owner.dataset(_rows(kind), VECTORS), owner.dataset(planted(60)[0], VECTORS)
    for more in (
        {"epsilon": 2.0},
        {"loss": "absolute", "start": "random", "steps": 5},
        {"center": True, "explained": True, "steps": 5},
        {"solver": "gd-reaper", "center": True, "steps": 5},
        {"solver": "md-reaper", "explained": True, "steps": 5},
        {"start": "sketch", "consensus": True, "steps": 5},
    ):
        # At most of these there is next to no noise that could hide a fault in the arithmetic.
        asked = {"epsilon": 80.0} | more
        plans = [owner.plan(name, **ASK | asked).json() for name in (dataset, usual)]
        assert plans[0] == plans[1]
        job = committed(owner, dataset, **asked)
        found = job["estimate"]
        assert np.array(found["basis"]).shape == (D, R)
        assert (found["center"] is None) == (not more.get("center"))
        assert len(found["explained"]) == R
        assert np.isfinite(found["center"] or 0.0).all()
        assert np.isfinite(found["explained"] or 0.0).all()


# Wide rows


def test_wide_rows_need_no_square_matrix(server: Server) -> None:
    rows, truth = planted(300, 2_000)
    owner = server.owner(epsilon=1000.0, delta=1e-3)
    dataset = owner.dataset(rows, {"kind": "vectors", "dim": 2_000})
    plan = owner.plan(dataset, **ASK | {"epsilon": 500.0}).json()
    assert "moment" not in {release["statistic"] for release in plan["releases"]}
    job = committed(owner, dataset, epsilon=500.0, loss="absolute")
    assert Grassmann(*truth.shape).dist(np.array(job["estimate"]["basis"]), truth) < 0.5
    warned = owner.plan(dataset, **ASK).json()["warnings"]
    assert any("hide" in warning for warning in warned)
