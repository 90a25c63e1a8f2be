"""Pages on questions about several datasets: of its own part to each owner, whole to one who asked."""

import numpy as np

from testing.scenes import Desk
from testing.server import Server

VECTORS = {"kind": "vectors", "dim": 4}


def rows(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((500, 4)) * [3.0, 2.0, 0.1, 0.1]


def test_an_owner_reads_of_its_own_part_alone(site: Server) -> None:
    owners, analyst = [site.owner(epsilon=3.0) for _ in range(2)], site.analyst()
    datasets = [owner.dataset(rows(i), VECTORS) for i, owner in enumerate(owners)]
    for owner, dataset in zip(owners, datasets, strict=True):
        owner.grant(dataset, analyst)
    body = {"dataset": [{"id": it} for it in datasets], "privacy": {"epsilon": 0.7}, "rank": 2}
    headers = {"Idempotency-Key": "k", "Prefer": "wait=240"}
    job = analyst.post("/v1/estimates/robust-pca", headers=headers, json=body).json()
    assert job["state"] == "committed"
    desk = Desk(site, owners[0].key)
    entry = desk.get("/ledger/2")
    assert entry.status_code == 200
    assert "obust PCA" in entry.text
    assert "truly signed" in entry.text
    assert "this does not hold" not in entry.text
    for path in ("", "/ledger", "/ledger/2", "/analysts", "/answers", f"/datasets/{datasets[0]}"):
        page = desk.get(path, follow_redirects=True)
        assert page.status_code == 200
        for other in (owners[1].id, datasets[1], job["id"]):
            assert other not in page.text, path
    assert desk.get(f"/answers/{job['id']}").status_code == 404


def test_an_owner_reads_the_answer_to_its_own_question_on_two_datasets(site: Server) -> None:
    owner = site.owner(epsilon=3.0)
    datasets = [owner.dataset(rows(i), VECTORS) for i in range(2)]
    body = {"dataset": [{"id": it} for it in datasets], "privacy": {"epsilon": 0.7}, "rank": 2}
    headers = {"Idempotency-Key": "k", "Prefer": "wait=240"}
    job = owner.post("/v1/estimates/robust-pca", headers=headers, json=body).json()
    desk = Desk(site, owner.key)
    listed = desk.get("/answers").text
    assert listed.count(f'/answers/{job["id"]}"') == 1
    assert "Several datasets" in listed
    page = desk.get(f"/answers/{job['id']}").text
    assert "Loadings" in page
    assert all(dataset in page for dataset in datasets)
    for part in {entry["job"] for entry in owner.ledger() if entry["job"]}:
        assert part not in listed
        assert desk.get(f"/answers/{part}").status_code == 404
