"""Private Fréchet means of every geometry over HTTP, and the schemas that describe none."""

import numpy as np
import pytest

from privest import manifolds
from testing.server import Server, npy, problem


@pytest.fixture
def backend() -> str:
    """One database will do, as it plays no part here."""
    return "sqlite"


SPACES = [
    {"name": "euclidean", "dim": 4},
    {"name": "sphere", "dim": 5},
    {"name": "spd", "dim": 3, "metric": "affine-invariant"},
    {"name": "spd", "dim": 3, "metric": "log-euclidean"},
    {"name": "spd", "dim": 3, "metric": "bures-wasserstein"},
    {"name": "poincare-ball", "dim": 3},
    {"name": "lorentz", "dim": 3},
    {"name": "stiefel", "dim": 4, "rank": 2},
    {"name": "grassmann", "dim": 4, "rank": 2},
    {"name": "oblique", "dim": 3, "rank": 2},
]
RADIUS = 0.8


def schema(space: dict, **facts: object) -> dict:
    return {"kind": "points", "manifold": space, "radius": RADIUS, **facts}


def named(space: dict) -> str:
    return space.get("metric", space["name"])


@pytest.mark.few(4)
@pytest.mark.parametrize("space", SPACES, ids=named)
def test_the_mean_is_found_with_the_error_that_the_plan_foretold(server: Server, space: dict) -> None:
    """Five standard deviations of noise that is Gaussian: false alarm below 1e-5."""
    manifold = manifolds.get(**space)
    rng = np.random.default_rng(5)
    steps = manifold.from_coordinates(
        manifold.reference, rng.standard_normal((500, manifold.coordinate_size))
    )
    lengths = manifold.norm(manifold.reference, steps).reshape(-1, *[1] * len(manifold.shape))
    rows = manifold.exp(manifold.reference, 0.5 * steps / lengths)
    mean = manifold.reference
    for _ in range(50):
        step = manifold.log_coordinates(mean, rows).mean(axis=0)
        mean = manifold.exp_coordinates(mean, step)
        if np.linalg.norm(step) < 1e-6:  # far below the noise
            break

    owner = server.owner(epsilon=9.0)
    dataset = owner.dataset(rows, schema(space))
    job = owner.estimate(dataset, epsilon=3.0).json()
    assert job["state"] == "committed", job
    point = np.array(job["estimate"]["point"])
    assert manifold.belongs(point)
    assert manifold.dist(point, mean) < 5 * job["uncertainty"]["standard_deviation"]


@pytest.mark.parametrize("space", SPACES[5:], ids=named)
def test_points_off_the_manifold_are_named_by_record(server: Server, space: dict) -> None:
    manifold = manifolds.get(**space)
    rows = np.stack([manifold.reference, manifold.reference])
    rows[1].flat[0] += 7.0
    refused = problem(server.owner().upload(npy(rows), schema(space)), 422, "dataset-invalid")
    assert [fault["record"] for fault in refused["faults"]] == [1]


@pytest.mark.parametrize(
    "declared",
    [
        schema({"name": "spd", "dim": 3, "metric": "secret-metric"}),
        schema({"name": "grassmann", "dim": 3, "rank": 4}),
        schema({"name": "grassmann", "dim": 3, "rank": 3}),
        schema({"name": "stiefel", "dim": 3}),
        schema({"name": "oblique", "dim": 1, "rank": 2}),
        schema({"name": "oblique", "dim": 3, "rank": 0}),
        schema({"name": "lorentz", "dim": 0}),
        schema({"name": "sphere", "dim": 3, "rank": 1}),
        schema({"name": "poincare-ball", "dim": 3}, radius=0),
        schema({"name": "poincare-ball", "dim": 3}, radius=1e5),
        schema({"name": "poincare-ball", "dim": 3}, center=[1.0, 0.0, 0.0]),
    ],
)
def test_schemas_of_no_geometry_are_refused(server: Server, declared: dict) -> None:
    refused = server.owner().upload(npy(np.zeros((3, 3))), declared)
    problem(refused, 422, "invalid")
    assert "secret-metric" not in refused.text


def test_rows_of_another_manifold_do_not_fit(server: Server) -> None:
    rows = np.broadcast_to(np.eye(3), (5, 3, 3))
    problem(server.owner().upload(npy(rows), schema({"name": "sphere", "dim": 3})), 422, "dataset-invalid")


STOCHASTIC = [
    {"solver": "rsgd"},
    {"solver": "rsgd", "sampling": "fixed", "rate": 0.1, "steps": 50},
    {"solver": "rsvrg"},
    {"solver": "rsvrg", "full_noise": "step", "restarts": 2, "epochs": 2, "steps": 5, "clip_change": 0.5},
]


@pytest.mark.parametrize("choices", STOCHASTIC, ids=str)
def test_stochastic_solvers_charge_what_their_plan_says(server: Server, choices: dict) -> None:
    owner = server.owner(epsilon=9.0)
    dataset = owner.dataset()
    plan = owner.plan(dataset, epsilon=2.0, delta=1e-4, **choices).json()
    assert plan["solver"] == choices["solver"]
    assert any(release["batch"] for release in plan["releases"])
    assert 0 < plan["privacy"]["slack"] < 1e-4
    job = owner.estimate(dataset, epsilon=2.0, delta=1e-4, **choices).json()
    assert job["state"] == "committed", job
    (charge,) = job["charges"]
    assert charge["mu_squared"] == pytest.approx(plan["privacy"]["mu"] ** 2, abs=2e-12)
    assert charge["slack"] == pytest.approx(plan["privacy"]["slack"], rel=1e-9)
    assert owner.budget()["spent"]["slack"] == charge["slack"]


def test_a_planner_left_free_says_why(server: Server) -> None:
    owner = server.owner()
    plan = owner.plan(owner.dataset()).json()
    assert plan["solver"] == "rgd"
    assert plan["why"].startswith("rgd: error")


@pytest.mark.parametrize(
    "choices",
    [
        {"solver": "adam"},
        {"solver": "rsgd", "rate": 0.0},
        {"solver": "rsgd", "rate": 1.5},
        {"solver": "rsgd", "epochs": 3},
        {"solver": "rsvrg", "epochs": 0},
        {"rate": 0.5},
        {"restarts": 2},
        {"sampling": "fixed"},
        {"solver": "rsgd", "delta": 0.0},
    ],
    ids=str,
)
def test_choices_that_fit_no_solver_are_refused(server: Server, choices: dict) -> None:
    owner = server.owner()
    dataset = owner.dataset()
    problem(owner.plan(dataset, **choices), 422, "invalid")
    problem(owner.estimate(dataset, **choices), 422, "invalid")
    assert owner.budget()["queries"] == 0
