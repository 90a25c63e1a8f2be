"""Questions on datasets of sites: each charged by its own ledger, answered at the hub, and no row leaves."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privest_service.ledger.receipts import Receipt, signed_by
from privest_service.signing import Signer
from testing.server import LABELLED, books_balance, problem, spd, told_apart, until
from testing.sites import Sites, sites

COUNTS = (400, 700)
VECTORS, GAPS = {"kind": "vectors", "dim": 5}, {"kind": "partial-vectors", "dim": 5}
WIDE = {"kind": "points", "manifold": {"name": "euclidean", "dim": 10_000}, "radius": 1.0}


def near_a_plane(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 5)) * [1.0, 0.8, 0.05, 0.05, 0.05]


def with_gaps(n: int) -> np.ndarray:
    rows = near_a_plane(n, seed=n)
    rows[np.random.default_rng(n).random(rows.shape) < 0.3] = np.nan
    return rows


@pytest.fixture(scope="module")
def two(
    tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[str], str]
) -> Iterator[dict[str, Sites]]:
    """A hub and two sites that offer datasets of three kinds."""
    with sites(tmp_path_factory.mktemp("sites"), lambda: new_database("sqlite")) as them:
        yield {
            "points": them.offering([spd(n, seed=n) for n in COUNTS]),
            "vectors": them.offering([near_a_plane(n, n) for n in COUNTS], VECTORS),
            "labelled": them.offering([told_apart(n, apart=3.0) for n in COUNTS], LABELLED),
            "gaps": them.offering([with_gaps(n) for n in COUNTS], GAPS),
        }


CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("frechet-mean", "points", {}),
    ("frechet-mean", "points", {"delta": 0.0, "epsilon": 1.0}),
    ("frechet-mean", "points", {"solver": "rsgd", "rate": 0.5, "steps": 5}),
    ("robust-pca", "vectors", {"rank": 2}),
    ("robust-pca", "vectors", {"rank": 2, "local_steps": 3}),
    ("robust-pca", "vectors", {"rank": 2, "local_steps": 2, "server_step": 2.0, "turns": 2, "steps": 6}),
    ("logistic-regression", "labelled", {}),
    ("classifier-score", "labelled", {"coefficients": [1.0, 0.0], "intercept": 0.0}),
    ("matrix-completion", "gaps", {"rank": 2}),
    ("bounds", "points", {}),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "about", "options"), CASES)
def test_all_estimators_come_to_one_answer_which_every_ledger_is_charged_for(
    two: dict[str, Sites], kind: str, about: str, options: dict[str, Any]
) -> None:
    them = two[about]
    before = [site.owner.budget()["spent"]["epsilon"] for site in them.sites]
    answer = them.ask(kind, **options)
    assert answer.status_code == 200, answer.text
    job = answer.json()
    assert job["state"] == "committed", job
    for place, site in enumerate(them.sites):
        own = site.hub.get("/v1/jobs").json()["jobs"][0]["id"]
        there = site.hub.get(f"/v1/jobs/{own}").json()
        # The hub replays what the site ran: the same bits of the same noise.
        assert (there["estimate"], there["uncertainty"]) == (job["estimate"], job["uncertainty"])
        assert site.owner.budget()["spent"]["epsilon"] > before[place]
        told = job["sites"][place]
        assert (told["dataset"], told["state"]) == (them.datasets[place], "ended")
        receipt = Receipt.model_validate(told["receipt"])
        assert signed_by(receipt, Signer(site.server.signing_key.read_bytes()).public_key)
        assert receipt.statement.job == own
        here, there_charged = site.at_hub.ledger()[0], site.owner.ledger()[0]
        assert (here["epsilon"], here["mu_squared"]) == (
            there_charged["epsilon"],
            there_charged["mu_squared"],
        )


@pytest.mark.costly
@pytest.mark.parametrize(
    ("kind", "rows", "schema", "options"),
    [
        ("frechet-mean", [np.zeros((2, 10_000)), np.ones((60, 10_000))], WIDE, {}),
        ("robust-pca", [np.eye(60, 10_000)] * 2, {"kind": "vectors", "dim": 10_000}, {"rank": 2}),
    ],
)
def test_few_rows_and_many_columns(
    two: dict[str, Sites], kind: str, rows: list[np.ndarray], schema: dict[str, Any], options: dict[str, Any]
) -> None:
    """A site with two rows is one owner among others, and an answer may have some ten thousand numbers."""
    them = two["points"].offering(rows, schema)
    job = them.ask(kind, **options).json()
    assert job["state"] == "committed", job
    assert [told["state"] for told in job["sites"]] == ["ended"] * 2


def test_one_dataset_of_a_site_is_asked_about_alone(two: dict[str, Sites]) -> None:
    them = two["labelled"]
    job = them.ask("logistic-regression", about=[{"id": them.datasets[0]}]).json()
    assert job["state"] == "committed", job
    assert [told["state"] for told in job["sites"]] == ["ended"]
    own = them.sites[0].hub.get("/v1/jobs").json()["jobs"][0]["id"]
    assert them.sites[0].hub.get(f"/v1/jobs/{own}").json()["estimate"] == job["estimate"]
    for server in them.servers():
        assert books_balance(server)


def test_synthetic_rows_need_no_site(two: dict[str, Sites]) -> None:
    them = two["points"]
    job = them.ask(about=[{"id": each, "dummy": True} for each in them.datasets]).json()
    assert (job["state"], job["dummy"]) == ("committed", True)


@pytest.mark.costly
def test_datasets_here_and_at_sites_are_not_asked_about_together(two: dict[str, Sites]) -> None:
    them = two["points"]
    owner = them.hub.owner()
    here = owner.dataset()
    assert owner.grant(here, them.analyst).status_code == 200
    refused = problem(them.ask(about=[{"id": here}, {"id": them.datasets[0]}]), 422, "invalid")
    assert "some are here" in refused["detail"]


def test_what_the_hub_asks_is_held_to_its_grant_at_the_site(two: dict[str, Sites]) -> None:
    """The hub's own ledger would pay for it: the one that counts is the site's, which refuses, for nobody."""
    them = two["points"]
    site = them.sites[0]
    capped = site.offer(spd(60), epsilon=0.1, delta=1e-5)
    assert site.at_hub.grant(capped, them.analyst).status_code == 200
    before = [each.budget()["spent"] for each in (site.at_hub, site.owner, them.sites[1].owner)]
    job = them.ask(about=[{"id": capped}, {"id": them.datasets[1]}]).json()
    assert job["state"] == "voided", job
    assert job["sites"][0]["state"] == "refused"
    assert "cap" in job["sites"][0]["reason"]

    def given_back() -> bool:
        return before == [each.budget()["spent"] for each in (site.at_hub, site.owner, them.sites[1].owner)]

    assert until(given_back)


def test_a_question_waits_for_the_owner_at_the_site(two: dict[str, Sites]) -> None:
    them = two["points"]
    site = them.sites[0]
    careful = site.offer(spd(60), approval="required")
    assert site.at_hub.grant(careful, them.analyst).status_code == 200
    for decision, state in (("approve", "committed"), ("deny", "voided")):
        about = [{"id": careful}, {"id": them.datasets[1]}]
        asked = them.ask(about=about, wait=0, epsilon=0.2, reuse=False).json()["id"]
        (request,) = until(lambda: site.owner.get("/v1/requests").json()["requests"])
        assert them.analyst.get(f"/v1/jobs/{asked}").json()["state"] == "reserved"
        decided = site.owner.post(f"/v1/jobs/{request['job']}/decision", json={"decision": decision})
        assert decided.status_code == 200, decided.text
        assert them.analyst.ended(asked)["state"] == state


def test_a_question_that_is_withdrawn_at_the_hub_is_given_back_at_the_sites(two: dict[str, Sites]) -> None:
    them = two["points"]
    site = them.sites[0]
    careful = site.offer(spd(60), approval="required")
    assert site.at_hub.grant(careful, them.analyst).status_code == 200
    other = them.sites[1].owner
    until(lambda: all(entry["state"] not in ("reserved", "claimed") for entry in other.ledger()))
    before = other.budget()["spent"]
    asked = them.ask(about=[{"id": careful}, {"id": them.datasets[1]}], wait=0, reuse=False).json()["id"]
    until(lambda: other.budget()["spent"] != before)
    assert them.analyst.post(f"/v1/jobs/{asked}/withdrawal").status_code == 200
    until(lambda: other.budget()["spent"] == before)
    until(lambda: not site.owner.get("/v1/requests").json()["requests"])


def test_a_revoked_grant_withdraws_the_dataset_from_the_hub(two: dict[str, Sites]) -> None:
    site = two["points"].sites[0]
    offered = site.offer(spd(60))
    (here,) = [own for own, at_hub in site.known().items() if at_hub == offered]
    assert site.owner.delete(f"/v1/datasets/{here}/grants/{site.hub.id}").status_code == 204
    until(lambda: here not in site.known())


def test_a_hub_has_no_row(two: dict[str, Sites]) -> None:
    """All that a hub keeps of a site is in its database: planted numbers of rows are not in it."""
    them = two["vectors"]
    planted = np.full((50, 5), 0.123456789012345)
    dataset = them.sites[0].offer(planted, VECTORS)
    assert them.sites[0].at_hub.grant(dataset, them.analyst).status_code == 200
    about = [{"id": dataset}, {"id": them.datasets[1]}]
    assert them.ask("robust-pca", about=about, rank=2).json()["state"] == "committed"
    database = Path(them.hub.database_url.removeprefix("sqlite:///"))
    kept = b"".join(each.read_bytes() for each in database.parent.glob(f"{database.name}*"))
    marks = [planted[:1, :1].tobytes(), b"0.123456789012345"]
    assert not any(mark in kept for mark in marks)
    assert not any((them.hub.data_dir / "rows").rglob(f"{dataset}*"))
    there = (them.sites[0].server.data_dir / "rows").rglob("*.npy")
    assert any(marks[0] in each.read_bytes() for each in there)
