"""Logistic regression over HTTP: labelled rows in, coefficients in their units out, whatever rows hold."""

import re
from functools import partial

import numpy as np
import pytest

from testing import server
from testing.server import LABELLED, SPD3, Caller, Server, npy, problem


@pytest.fixture
def backend() -> str:
    """One database will do, as it plays no part here."""
    return "sqlite"


SOLVERS = ["newton", "clipped", "gd", "hb", "nag", "masg", "gd-opt", "hb-opt", "nag-opt", "masg-opt"]
ASK = {"kind": "logistic-regression", "epsilon": 2.0, "delta": 1e-6}

only_on_sqlite = pytest.mark.parametrize("backend", ["sqlite"])
"""Marks tests in which no database plays a part."""


told_apart = partial(server.told_apart, apart=4.0)

_datasets: dict[str, tuple[Caller, str]] = {}


@pytest.fixture
def asked(server: Server) -> tuple[Caller, str]:
    """An owner with budget for all that is asked here, and its labelled rows."""
    if server.url not in _datasets:
        owner = server.owner(epsilon=100.0, delta=1e-3)
        _datasets[server.url] = owner, owner.dataset(told_apart(), LABELLED)
    return _datasets[server.url]


@pytest.mark.few(4)
@pytest.mark.parametrize("solver", [None, *SOLVERS])
def test_every_solver_answers_and_is_charged_what_the_plan_said(
    asked: tuple[Caller, str], solver: str | None
) -> None:
    owner, dataset = asked
    options = {"solver": solver, "reuse": False}
    planned = owner.plan(dataset, **ASK, **options).json()
    before = owner.budget()["queries"]
    answer = owner.estimate(dataset, **ASK, **options)
    assert answer.status_code == 200, answer.text
    job = answer.json()
    assert job["state"] == "committed"
    assert owner.budget()["queries"] == before + 1
    assert job["charges"][0]["mu_squared"] == pytest.approx(planned["privacy"]["mu"] ** 2, abs=3e-12)
    stated, foretold = job["uncertainty"], planned["expected_error"]
    assert "standardised" in stated["of"]
    assert 0 < stated["standard_deviation"] < stated["radius_95"]
    assert 0 < foretold["standard_deviation"] < foretold["radius_95"] <= foretold["unfavourable"]
    assert "`classifier-score`" in foretold["untold"]
    found = job["estimate"]
    assert found["classes"] == ["0", "1"]
    rows = told_apart()
    scores = rows[:, :2] @ np.array(found["coefficients"]) + found["intercept"]
    # The best line is right for 97.7 % of the rows; noise of this privacy costs little.
    assert np.mean((scores > 0) == rows[:, 2]) > (0.8 if solver in ("gd", "hb", "nag", "masg") else 0.95)
    assert (found["sampling"] is not None) == (planned["solver"] == "newton")
    for spread in (found["noise"], found["sampling"] or found["noise"]):
        np.testing.assert_allclose(np.sqrt(np.diag(spread["covariance"])), spread["standard_errors"])
        assert len(spread["standard_errors"]) == 3


@only_on_sqlite
@pytest.mark.parametrize("loss", ["sigmoid", "savage", "logistic-nonconvex"])
def test_losses_that_are_not_convex_are_planned_charged_and_run(asked: tuple[Caller, str], loss: str) -> None:
    owner, dataset = asked
    options = {"loss": loss, "reuse": False}
    planned = owner.plan(dataset, **ASK, **options).json()
    assert planned["solver"] == "escape"
    assert [release["statistic"] for release in planned["releases"]] == ["gradient", "hessian", "gradient"]
    job = owner.estimate(dataset, **ASK, **options).json()
    assert job["state"] == "committed"
    assert job["charges"][0]["mu_squared"] == pytest.approx(planned["privacy"]["mu"] ** 2, abs=3e-12)
    rows, found = told_apart(), job["estimate"]
    scores = rows[:, :2] @ np.array(found["coefficients"]) + found["intercept"]
    assert np.mean((scores > 0) == rows[:, 2]) > 0.95
    assert found["sampling"] is None


@only_on_sqlite
def test_spider_is_planned_charged_and_run_until_records_run_out(asked: tuple[Caller, str]) -> None:
    owner, dataset = asked
    options = {"loss": "sigmoid", "solver": "spider", "reuse": False}
    planned = owner.plan(dataset, **ASK, **options).json()
    assert [release["statistic"] for release in planned["releases"]] == ["hessian", "gradient", "curvature"]
    (warning,) = planned["warnings"]
    needed = int(re.search(r"; (\d+) records would give", warning)[1])
    assert needed > 2000
    job = owner.estimate(dataset, **ASK, **options).json()
    assert job["state"] == "committed"
    assert job["charges"][0]["mu_squared"] == pytest.approx(planned["privacy"]["mu"] ** 2, abs=3e-12)
    assert job["uncertainty"]["radius_95"] <= planned["expected_error"]["unfavourable"]
    assert job["uncertainty"]["accuracy"] == planned["expected_error"]["accuracy"]
    assert len(job["estimate"]["coefficients"]) == 2
    assert job["estimate"]["sampling"] is None


@only_on_sqlite
def test_spider_without_a_batch_says_what_would_do(asked: tuple[Caller, str]) -> None:
    owner, dataset = asked
    tight = ASK | {"epsilon": 0.05, "loss": "savage", "solver": "spider"}
    refused = problem(owner.plan(dataset, **tight), 422, "invalid")
    said = re.search(r"into 2000 records: it takes (\d+), or epsilon ([\d.]+)", refused["detail"])
    assert said, refused
    assert owner.plan(dataset, **tight | {"epsilon": float(said[2])}).status_code == 200


@only_on_sqlite
def test_spider_is_of_one_dataset(asked: tuple[Caller, str]) -> None:
    owner, dataset = asked
    both = [{"id": dataset}, {"id": owner.dataset(told_apart(), LABELLED)}]
    privacy = {"epsilon": 2.0, "delta": 1e-6}
    body = {"dataset": both, "privacy": privacy, "loss": "savage", "solver": "spider"}
    refused = problem(owner.post("/v1/estimates/logistic-regression/plan", json=body), 422, "invalid")
    assert "on one dataset only: name one" in refused["detail"]


@only_on_sqlite
def test_the_default_loss_named_is_the_same_question(asked: tuple[Caller, str]) -> None:
    owner, dataset = asked
    first = owner.estimate(dataset, **ASK, solver="clipped").json()
    again = owner.estimate(dataset, **ASK, solver="clipped", loss="logistic").json()
    assert again["reused"]
    assert again["estimate"] == first["estimate"]


@only_on_sqlite
def test_bounded_losses_are_for_two_classes(server: Server) -> None:
    owner = server.owner()
    dataset = owner.dataset(told_apart(), LABELLED | {"classes": ["0", "1", "2"]})
    problem(owner.plan(dataset, **ASK, loss="sigmoid"), 422, "invalid")


@only_on_sqlite
def test_more_than_two_classes_have_a_row_each(server: Server) -> None:
    owner = server.owner(epsilon=20.0)
    rows = told_apart(3000)
    rows[2000:] = [10.0, 0.5, 2] + rows[2000:] * [0.0, 1.0, 0.0]  # a third class beside the two
    dataset = owner.dataset(rows, LABELLED | {"classes": ["0", "1", "2"]})
    found = owner.estimate(dataset, **ASK | {"epsilon": 8.0}).json()["estimate"]
    coefficients, intercept = np.array(found["coefficients"]), np.array(found["intercept"])
    assert coefficients.shape == (3, 2)
    said = np.argmax(rows[:, :2] @ coefficients.T + intercept, axis=1)
    assert np.mean(said == rows[:, 2]) > 0.8


@only_on_sqlite
@pytest.mark.parametrize("solver", ["nag", "masg-opt"])
@pytest.mark.parametrize(("delta", "law"), [(1e-6, "gaussian"), (0.0, "laplace")])
def test_random_batches_are_planned_charged_and_run(
    server: Server, solver: str, delta: float, law: str
) -> None:
    owner = server.owner(epsilon=4.0, delta=delta, composition="basic" if delta == 0 else "gdp")
    dataset = owner.dataset(told_apart(), LABELLED)
    asked = ASK | {"epsilon": 1.0, "delta": delta, "solver": solver, "batch_size": 100, "steps": 20}
    planned = owner.plan(dataset, **asked).json()
    kinds = {(r["noise"], r["batch"], r["sampling"], r["mu_squared"]) for r in planned["releases"]}
    assert kinds == {(law, 100.0, "poisson", None)}
    assert sum(r["count"] for r in planned["releases"]) == planned["steps"] <= 20
    job = owner.estimate(dataset, **asked).json()
    assert job["state"] == "committed"
    assert owner.budget()["spent"]["epsilon"] == pytest.approx(1.0, rel=0.02)


@only_on_sqlite
@pytest.mark.parametrize("solver", [None, "clipped"])
def test_bounds_will_do_for_facts_and_errors_by_sampling_can_be_had(
    asked: tuple[Caller, str], solver: str | None
) -> None:
    owner, _ = asked
    dataset = owner.dataset(told_apart(), LABELLED | {"mean": [0.0, 0.0], "scale": [30.0, 2.0]})
    options = {"solver": solver, "standardisation": "private", "sampling_errors": True, "reuse": False}
    planned = owner.plan(dataset, **ASK, **options).json()
    names = [release["statistic"] for release in planned["releases"]]
    assert names == (
        ["spread", "lengths", "labels", "moments", *6 * ["curved"]]
        if planned["solver"] == "newton"
        else ["spread", "lengths", "labels", "gradient", "curved", "curved", "moments"]
    )
    assert planned["privacy"]["epsilon"] == ASK["epsilon"]
    job = owner.estimate(dataset, **ASK, **options).json()
    found, rows = job["estimate"], told_apart()
    scores = rows[:, :2] @ np.array(found["coefficients"]) + found["intercept"]
    # Of 300 runs with fresh noise 297 were above .95, and the rest were told to be of no use.
    lost = [warning for warning in job["uncertainty"]["warnings"] if "all but unknown" in warning]
    assert np.mean((scores > 0) == rows[:, 2]) > 0.95 or lost
    assert all(error > 0 for error in found["sampling"]["standard_errors"])
    bare = owner.dataset(
        told_apart(), {name: fact for name, fact in LABELLED.items() if name not in ("mean", "scale")}
    )
    problem(owner.plan(bare, **ASK, **options), 422, "invalid")


@only_on_sqlite
def test_a_pure_budget_is_served_with_laplace_noise(server: Server) -> None:
    owner = server.owner(epsilon=4.0, delta=0.0, composition="basic")
    dataset = owner.dataset(told_apart(), LABELLED)
    planned = owner.plan(dataset, kind="logistic-regression", epsilon=1.0).json()
    assert planned["privacy"]["delta"] == 0.0
    assert {release["noise"] for release in planned["releases"]} <= {"laplace", "independent-laplace"}
    job = owner.estimate(dataset, kind="logistic-regression", epsilon=1.0).json()
    assert job["state"] == "committed"
    assert owner.budget()["spent"]["epsilon"] == pytest.approx(1.0)


@pytest.mark.few(2)
@only_on_sqlite
@pytest.mark.parametrize(
    "hard",
    [
        told_apart(60) * [1, 1, 0],
        told_apart(60) * [0, 0, 1],
        np.repeat(told_apart(1), 60, axis=0),
        told_apart(60) * [1e300, 1e300, 1],
        told_apart(60) * [1e-300, 1e-300, 1],
    ],
    ids=["one class", "zero features", "one record", "huge", "tiny"],
)
def test_what_rows_hold_changes_nothing_but_the_numbers(server: Server, hard: np.ndarray) -> None:
    owner = server.owner(epsilon=20.0)
    usual, odd = (owner.dataset(rows, LABELLED) for rows in (told_apart(60), hard))
    for solver in ("newton", "nag-opt"):
        plans = [owner.plan(dataset, **ASK, solver=solver).json() for dataset in (usual, odd)]
        assert plans[0] == plans[1]
        jobs = [owner.estimate(dataset, **ASK, solver=solver).json() for dataset in (usual, odd)]
        assert [job["state"] for job in jobs] == ["committed"] * 2
        for job in jobs:
            assert len(job["estimate"]["coefficients"]) == 2
            assert np.isfinite(job["estimate"]["coefficients"]).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"solver": "adam"},
        {"penalty": -1.0},
        {"solver": "gd", "penalty": 0.0},
        {"steps": 5},
        {"solver": "nag", "steps": 0},
        {"solver": "nag", "steps": 1001},
        {"solver": "nag", "step_scale": 2.0},
        {"step_scale": 0.5},
        {"batch_size": 20},
        {"solver": "nag", "batch_size": 0},
        {"solver": "nag", "batch_size": 2001},
        {"loss": "hinge"},
        {"loss": None},
        {"loss": "sigmoid", "solver": "newton"},
        {"loss": "sigmoid", "penalty": 0.1},
        {"loss": "savage", "steps": 5},
        {"loss": "logistic-nonconvex", "penalty": 0.0},
        {"loss": "logistic-nonconvex", "sampling_errors": True},
        {"solver": "escape"},
        {"solver": "spider"},
        {"solver": "spider", "loss": "savage", "delta": 0},
        {"solver": "spider", "loss": "savage", "standardisation": "private"},
        {"intercept": "yes"},
        {"rank": 2},
    ],
    ids=str,
)
def test_bad_questions_are_refused_before_anything_is_charged(asked: tuple[Caller, str], wrong: dict) -> None:
    owner, dataset = asked
    before = owner.budget()
    problem(owner.plan(dataset, **ASK | wrong), 422, "invalid")
    problem(owner.estimate(dataset, **ASK | wrong), 422, "invalid")
    assert owner.budget() == before


@only_on_sqlite
def test_kinds_of_data_and_of_estimates_must_fit(asked: tuple[Caller, str]) -> None:
    owner, dataset = asked
    problem(owner.plan(dataset, kind="frechet-mean"), 422, "invalid")
    problem(owner.plan(dataset, kind="robust-pca", rank=1), 422, "invalid")
    points = owner.upload(npy(np.stack([np.eye(3)] * 5)), SPD3).json()["id"]
    problem(owner.plan(points, **ASK), 422, "invalid")
