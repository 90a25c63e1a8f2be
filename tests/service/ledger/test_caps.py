"""Caps and windows over HTTP: who is held to what, who is told, and what counts."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from audit import served
from testing.server import Caller, Server, npy, problem, spd

WIDE = {"kind": "points", "manifold": {"name": "spd", "dim": 3}, "radius": 2.0}
NARROW = {"kind": "points", "manifold": {"name": "spd", "dim": 3, "metric": "log-euclidean"}, "radius": 1.0}


def ask(caller: Caller, dataset: str, epsilon: float) -> httpx.Response:
    """A fresh estimate at δ = 1e-6."""
    return caller.estimate(dataset, epsilon=epsilon, delta=1e-6, reuse=False)


def cap(owner: Caller, dataset: str, **limits: float) -> httpx.Response:
    """Cap the rows of a dataset."""
    return owner.put(f"/v1/datasets/{dataset}/cap", json=limits)


def refused_by(answer: httpx.Response, scope: str | None) -> None:
    """Refused, in the name of this scope or of none."""
    assert problem(answer, 409, "budget-exceeded").get("scope") == scope


@pytest.fixture(scope="module")
def audited_server() -> Iterator[Server]:
    """A service on SQLite of those tests that see faults which the audit plants in it."""
    with served.alone() as server:
        yield server


@pytest.fixture
def rows() -> np.ndarray:
    """The rows of 60 records."""
    return spd(60, seed=5)


def test_datasets_declared_to_hold_the_same_rows_share_a_cap(server: Server, rows: np.ndarray) -> None:
    owner = server.owner(epsilon=5.0, delta=1e-4)
    one = owner.upload(npy(rows), WIDE).json()
    two = owner.upload(npy(rows), NARROW, rows_of=one["id"]).json()
    other = owner.dataset(spd(60, seed=6))
    assert (one["rows_of"], one["same_rows"]) == (None, [])
    assert (two["rows_of"], two["same_rows"]) == (one["id"], [one["id"]])
    assert one["fingerprint"] == two["fingerprint"]
    assert cap(owner, one["id"], epsilon=0.5, delta=1e-5).json() == {
        "dataset": one["id"],
        "cap": {"epsilon": 0.5, "delta": 1e-5},
        "largest_query": {"epsilon": 0.496215629, "delta": 1e-5},
    }
    job = ask(owner, one["id"], 0.4)
    assert [charge["scope"] for charge in job.json()["charges"]] == ["owner", "dataset"]
    refused_by(ask(owner, two["id"], 0.4), "dataset")
    assert ask(owner, other, 0.4).status_code == 200
    # Deleted and uploaded again they are counted together, if the owner says so, under any member's id.
    assert owner.delete(f"/v1/datasets/{one['id']}").status_code == 204
    again = owner.upload(npy(rows), WIDE, rows_of=two["id"]).json()
    assert again["rows_of"] == one["id"]
    again = again["id"]
    refused_by(ask(owner, again, 0.4), "dataset")
    # A cap that is lifted admits them, and one that is put back counts all of it.
    assert cap(owner, again).json()["cap"] is None
    assert ask(owner, again, 0.4).status_code == 200
    problem(cap(owner, two["id"], epsilon=0.5, delta=1e-5), 422, "invalid")
    assert cap(owner, two["id"], epsilon=0.8, delta=1e-5).status_code == 200
    assert owner.budget()["queries"] == 3


def test_only_a_declaration_joins_datasets(audited_server: Server, rows: np.ndarray) -> None:
    """Equal rows alone do not: else an analyst could ask by a cap whether two datasets are equal."""
    server = audited_server
    owner, analyst = server.owner(epsilon=5.0, delta=1e-4), server.analyst()
    one, two, other = (owner.upload(npy(each), WIDE).json() for each in (rows, rows, spd(60, seed=6)))
    assert two["same_rows"] == [one["id"]]
    assert owner.get(f"/v1/datasets/{one['id']}").json()["same_rows"] == [two["id"]]
    cap(owner, one["id"], epsilon=0.5, delta=1e-5)
    for dataset in (one, two, other):
        owner.grant(dataset["id"], analyst)
        told = analyst.get(f"/v1/datasets/{dataset['id']}").json()
        assert [told[name] for name in ("fingerprint", "rows_of", "same_rows")] == [None] * 3
        assert ask(analyst, dataset["id"], 0.4).status_code == 200
    refused_by(ask(analyst, one["id"], 0.4), None)


def test_rows_are_those_of_a_dataset_of_the_owner(server: Server, rows: np.ndarray) -> None:
    owner, other = server.owner(), server.owner()
    for wrong in (other.dataset(rows), "ds_unknown", "x" * 41):
        refused = problem(owner.upload(npy(rows), WIDE, rows_of=wrong), 422, "invalid")
        assert refused["faults"][0]["location"] == "rows_of"
    assert owner.get("/v1/datasets").json()["datasets"] == []


def test_the_same_rows_of_another_owner_are_not_concerned(server: Server, rows: np.ndarray) -> None:
    one, two = server.owner(), server.owner()
    mine, theirs = one.dataset(rows), two.dataset(rows)
    assert cap(one, mine, epsilon=0.05, delta=1e-5).status_code == 200
    refused_by(ask(one, mine, 0.1), "dataset")
    assert ask(two, theirs, 0.1).status_code == 200


def test_a_refusal_names_its_scope_to_those_who_may_know(server: Server) -> None:
    owner, analyst = server.owner(1.0, 1e-4, "basic"), server.analyst()
    dataset = owner.dataset()
    owner.grant(dataset, analyst, epsilon=0.3, delta=1e-5)
    cap(owner, dataset, epsilon=0.6, delta=2e-5)
    refused_by(ask(owner, dataset, 2.0), "owner")
    refused_by(ask(owner, dataset, 0.7), "dataset")
    refused_by(ask(analyst, dataset, 0.4), "analyst")
    refused_by(ask(analyst, dataset, 2.0), "analyst")  # its own cap first, whatever else refuses
    owner.grant(dataset, analyst, epsilon=5.0, delta=1e-4)
    answers = [ask(analyst, dataset, epsilon) for epsilon in (0.7, 2.0)]
    owner.patch(f"/v1/owners/{owner.id}/budget", json={"frozen": True})
    answers.append(ask(analyst, dataset, 0.1))
    for answer in answers:
        refused_by(answer, None)
    assert len({answer.content for answer in answers}) == 1
    problem(ask(owner, dataset, 0.1), 409, "account-frozen")
    assert owner.budget()["queries"] == 0


def test_a_refusal_by_an_own_cap_tells_nothing_of_freezes(server: Server) -> None:
    owner, analyst = server.owner(5.0, 1e-4), server.analyst()
    dataset = owner.dataset()
    owner.grant(dataset, analyst, epsilon=0.1, delta=1e-5)
    answers = list[bytes]()
    for frozen in (False, True):
        owner.patch(f"/v1/owners/{owner.id}/budget", json={"frozen": frozen})
        answer = ask(analyst, dataset, 1.0)
        refused_by(answer, "analyst")
        answers.append(answer.content)
    assert len(set(answers)) == 1


def test_a_question_on_several_datasets_tells_of_own_caps_alone(audited_server: Server) -> None:
    """The analyst's own caps on all datasets are looked at first. No one learns who else refuses."""
    server = audited_server
    poor, rich, analyst = server.owner(0.5, 1e-4, "basic"), server.owner(5.0, 1e-4, "basic"), server.analyst()
    first, second = poor.dataset(), rich.dataset(spd(60, seed=6))
    poor.grant(first, analyst)
    rich.grant(second, analyst, epsilon=0.8, delta=1e-4)

    def both(epsilon: float) -> httpx.Response:
        privacy = {"epsilon": epsilon, "delta": 1e-6}
        about = [{"id": first}, {"id": second}]
        return analyst.post(
            "/v1/estimates/frechet-mean",
            headers={"Idempotency-Key": f"both {epsilon} {len(seen)}"},
            json={"dataset": about, "privacy": privacy, "reuse": False},
        )

    seen = list[bytes]()
    refused_by(both(0.9), "analyst")  # although the owner of the first has less left than that, too
    seen.append(both(0.7).content)
    rich.patch(f"/v1/owners/{rich.id}/budget", json={"frozen": True})
    seen.append(both(0.7).content)
    seen.append(both(0.3).content)
    poor.patch(f"/v1/owners/{poor.id}/budget", json={"frozen": True})
    seen.append(both(0.3).content)
    assert len(set(seen)) == 1
    assert first.encode() not in seen[0]


def test_a_cap_is_not_put_below_what_is_spent(server: Server) -> None:
    owner, analyst = server.owner(epsilon=5.0, delta=1e-4), server.analyst()
    dataset = owner.dataset()
    owner.grant(dataset, analyst)
    assert ask(analyst, dataset, 0.5).status_code == 200
    before = owner.ledger()
    for put in (
        lambda **limits: owner.grant(dataset, analyst, **limits),
        lambda **limits: cap(owner, dataset, **limits),
    ):
        problem(put(epsilon=0.4, delta=1e-5), 422, "invalid")
        assert put(epsilon=0.9, delta=1e-5).status_code == 200
        assert put(epsilon=0.7, delta=1e-5).status_code == 200  # lower, but not too low
    assert owner.ledger() == before  # the owner's own account did not move


def test_what_a_grant_spent_before_its_cap_counts(server: Server) -> None:
    owner, analyst = server.owner(epsilon=5.0, delta=1e-4), server.analyst()
    dataset = owner.dataset()
    assert owner.grant(dataset, analyst).json()["cap"] is None
    assert ask(analyst, dataset, 0.4).status_code == 200
    assert owner.grant(dataset, analyst, epsilon=0.5, delta=1e-5).status_code == 200
    refused_by(ask(analyst, dataset, 0.4), "analyst")
    # Nor does it begin anew with a grant that was revoked.
    assert owner.delete(f"/v1/datasets/{dataset}/grants/{analyst.id}").status_code == 204
    assert owner.grant(dataset, analyst, epsilon=0.5, delta=1e-5).status_code == 200
    refused_by(ask(analyst, dataset, 0.4), "analyst")
    assert ask(owner, dataset, 0.4).status_code == 200


def test_a_new_window_renews_the_budget_and_every_cap(server: Server) -> None:
    owner, analyst = server.owner(0.5, 1e-5, "basic"), server.analyst()
    dataset, path = owner.dataset(), f"/v1/owners/{owner.id}"
    owner.grant(dataset, analyst, epsilon=0.4, delta=1e-5)
    assert ask(analyst, dataset, 0.3).status_code == 200
    spent, entries = owner.budget(), owner.ledger()
    refused_by(ask(analyst, dataset, 0.3), "analyst")
    renewed = owner.patch(f"{path}/budget", json={"window": "new"}).json()
    assert (renewed["window"], renewed["queries"], renewed["spent"]["epsilon"]) == (2, 0, 0.0)
    assert renewed["limit"] == spent["limit"]
    assert ask(analyst, dataset, 0.3).status_code == 200
    assert owner.budget()["queries"] == 1
    # What was spent before stays where it was, to be read.
    assert owner.get(f"{path}/ledger", params={"window": 1}).json()["entries"] == entries
    assert len(owner.ledger()) == 2
    problem(owner.get(f"{path}/ledger", params={"window": 3}), 404, "not-found")
    refused_by(ask(analyst, dataset, 0.3), "analyst")  # the cap came along
    refused_by(ask(owner, dataset, 0.3), "owner")


@pytest.mark.both
def test_a_window_that_is_asked_for_twice_in_place_of_the_same_opens_once(server: Server) -> None:
    owner = server.owner()
    path, asked = f"/v1/owners/{owner.id}/budget", {"window": "new", "replaces": 1}
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: owner.patch(path, json=asked | {"epsilon": 2.0}), range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    for answer in answers:
        if answer.status_code == 409:
            assert problem(answer, 409, "window-replaced")["detail"].startswith("The present window is 2.")
    problem(owner.patch(path, json={"window": "new", "replaces": 3}), 409, "window-replaced")
    assert (owner.budget()["window"], owner.budget()["limit"]["epsilon"]) == (2, 2.0)
    assert owner.patch(path, json={"window": "new", "replaces": 2}).json()["window"] == 3
    # Without it each request opens one, as before.
    assert [owner.patch(path, json={"window": "new"}).json()["window"] for _ in range(2)] == [4, 5]
    for wrong in ({"replaces": 5}, {"window": "new", "replaces": 0}, {"window": "new", "replaces": "5"}):
        problem(owner.patch(path, json=wrong), 422, "invalid")
    assert owner.budget()["window"] == 5


def test_a_frozen_budget_stays_frozen_in_a_new_window(server: Server) -> None:
    owner = server.owner()
    dataset, path = owner.dataset(), f"/v1/owners/{owner.id}/budget"
    owner.patch(path, json={"frozen": True})
    assert owner.patch(path, json={"window": "new"}).json()["frozen"]
    problem(ask(owner, dataset, 0.1), 409, "account-frozen")
    assert not owner.patch(path, json={"frozen": False}).json()["frozen"]
    assert ask(owner, dataset, 0.1).status_code == 200
