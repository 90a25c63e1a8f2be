"""Acts over HTTP: each with who, with which key and why; nobody reads another's."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from testing.server import Caller, Server, problem


def told(caller: Caller, **asked: Any) -> list[dict[str, Any]]:
    """All acts that a caller reads, oldest first."""
    found, cursor = list[dict[str, Any]](), None
    while True:
        page = caller.get("/v1/acts", params={**asked, **({"cursor": cursor} if cursor else {})}).json()
        found += page["acts"]
        if (cursor := page["next"]) is None:
            return found[::-1]


def test_an_owners_life_is_told(server: Server) -> None:
    owner, analyst = server.owner(epsilon=1.0), server.analyst()
    why = {"headers": {"Privest-Reason": "für die Studie".encode()}}
    mine = f"/v1/owners/{owner.id}"
    dataset = owner.dataset()
    owner.put(f"/v1/datasets/{dataset}/grants/{analyst.id}", json={"epsilon": 0.5, "delta": 1e-6}, **why)
    owner.put(f"/v1/datasets/{dataset}/cap", json={"epsilon": 0.7, "delta": 1e-6})
    assert owner.put(f"/v1/datasets/{dataset}/cap", json={"epsilon": 0.7, "delta": 1e-6}).status_code == 200
    problem(analyst.estimate(dataset, epsilon=0.9), 409, "budget-exceeded")
    owner.patch(f"{mine}/budget", json={"frozen": True}, **why)
    server.admin.patch(f"{mine}/budget", json={"frozen": False, "window": "new", "epsilon": 2.0})
    key = owner.post(f"{mine}/keys", json={"scopes": ["read"], "expires_in": 60}).json()
    owner.delete(f"{mine}/keys/{key['id']}")
    owner.delete(f"/v1/datasets/{dataset}/grants/{analyst.id}")
    owner.delete(f"/v1/datasets/{dataset}")
    acts = told(owner)
    own = [(act["kind"], act["role"]) for act in acts]
    assert own == [
        *(("owner.created", "admin"), ("budget.set", "admin"), ("key.issued", "admin")),
        *(("dataset.made", "owner"), ("grant.made", "owner"), ("cap.set", "owner")),
        *(("question.refused", "analyst"), ("budget.frozen", "owner"), ("budget.unfrozen", "admin")),
        *(("budget.renewed", "admin"), ("budget.raised", "admin")),
        *(("key.issued", "owner"), ("key.revoked", "owner")),
        *(("grant.revoked", "owner"), ("dataset.deleted", "owner")),
    ]
    by_kind = {act["kind"]: act for act in acts}
    grant, refused = by_kind["grant.made"], by_kind["question.refused"]
    assert grant["reason"] == by_kind["budget.frozen"]["reason"] == "für die Studie"
    assert by_kind["cap.set"]["reason"] is None
    assert (grant["principal"], grant["subject"]) == (owner.id, dataset)
    who = {"analyst": analyst.id, "analyst_name": "An analyst"}
    assert grant["details"] == who | {"epsilon": 0.5, "delta": 1e-6}
    assert refused["principal"] == analyst.id
    assert {refused["details"][name] for name in ("estimate", "epsilon", "by")} == {
        *("frechet-mean", 0.9, "analyst"),
    }
    assert key["key"] not in str(acts)
    assert grant["key"] not in (None, key["id"])
    assert [act["seq"] for act in acts] == list(range(1, len(acts) + 1))
    # Looked for.
    assert [act["seq"] for act in told(owner, kind="key.issued", limit=1)] == [3, 12]
    assert {act["role"] for act in told(owner, actor=analyst.id)} == {"analyst"}
    assert [act["kind"] for act in told(owner, text="STUDIE")] == ["grant.made", "budget.frozen"]
    assert told(owner, since=acts[5]["at"], until=acts[7]["at"]) == acts[5:7]
    assert told(owner, text="100%_") == []
    # By names, which acts tell as ids: an analyst's, as whoever acted and as what a grant is about.
    assert {act["kind"] for act in told(owner, text="N ANALYST")} == {
        "grant.made",
        "grant.revoked",
        "question.refused",
    }


def test_what_a_grant_refuses_is_told_and_floods_nobody(server: Server) -> None:
    owner, analyst = server.owner(epsilon=1.0), server.analyst()
    datasets = [owner.dataset(), owner.dataset()]
    for dataset in datasets:
        owner.grant(dataset, analyst, kinds=["frechet-mean"], max_epsilon=0.2)
    spent = owner.budget()
    problem(analyst.estimate(datasets[0], epsilon=0.3, delta=1e-6), 403, "grant-refuses")
    body = {"dataset": [{"id": each} for each in datasets], "privacy": {"epsilon": 0.4, "delta": 1e-6}}
    both = analyst.post("/v1/estimates/frechet-mean", json=body, headers={"Idempotency-Key": "both"})
    problem(both, 403, "grant-refuses")
    body = {"dataset": {"id": datasets[0]}, "privacy": {"epsilon": 0.1}}
    other = analyst.post("/v1/estimates/bounds", json=body, headers={"Idempotency-Key": "bounds"})
    problem(other, 403, "grant-refuses")
    of_price = {"estimate": "frechet-mean", "by": "grant", "delta": 1e-6}
    acts = told(owner, kind="question.refused")
    assert [(act["principal"], act["subject"], act["details"]) for act in acts] == [
        (analyst.id, datasets[0], of_price | {"epsilon": 0.3, "several": False}),
        (analyst.id, datasets[0], of_price | {"epsilon": 0.4, "several": True}),
        # Not even planned, and so without a price.
        (analyst.id, datasets[0], {"estimate": "bounds", "by": "grant", "several": False}),
    ]
    for _ in range(9):
        problem(analyst.estimate(datasets[1], epsilon=0.3, delta=1e-6), 403, "grant-refuses")
    # At most five in a minute are told in full, and so ten in what may be parts of two.
    moments = [
        datetime.fromisoformat(act["at"])
        for act in told(owner, kind="question.refused")
        if "further" not in act["details"]
    ]
    assert all(
        later - earlier > timedelta(minutes=1) for earlier, later in zip(moments, moments[10:], strict=False)
    )
    assert owner.budget() == spent


def test_nobody_reads_of_others(server: Server) -> None:
    one, other, analyst = server.owner(), server.owner(), server.analyst()
    assert {act["subject"] for act in told(one)} == {one.id}
    assert one.id not in str(told(other))
    mine = told(analyst)
    assert [(act["kind"], act["subject"]) for act in mine] == [
        (kind, analyst.id) for kind in ("analyst.created", "key.issued")
    ]
    # Places in the chain of the service told an analyst how much is done for others.
    assert told(analyst, limit=1) == mine
    page = analyst.get("/v1/acts", params={"limit": 1}).json()
    assert page["next"] == "2"
    assert {(act["seq"], act["prev"], act["hash"]) for act in mine} == {(0, "", "")}
    of_service = told(server.admin, text=analyst.id)
    assert [act["kind"] for act in of_service] == ["analyst.created", "key.issued"]
    assert told(server.admin, text=one.id) == []


@pytest.mark.parametrize("backend", ["sqlite"])
def test_reasons_are_one_line_of_text(server: Server) -> None:
    owner = server.owner()
    for reason in (b"\xff", b"a\x1bb", "a\u202eb".encode(), b"x" * 501):
        answer = owner.patch(
            f"/v1/owners/{owner.id}/budget", json={"frozen": True}, headers={"Privest-Reason": reason}
        )
        assert answer.status_code in (400, 422), reason
        assert "control" not in str(told(owner))
    assert owner.budget()["frozen"] is False
    huge = owner.patch(
        f"/v1/owners/{owner.id}/budget", json={"frozen": True}, headers={"Privest-Reason": b"x" * 10**6}
    )
    assert huge.status_code >= 400
    for cursor in ("0", "-1", "x", str(2**63)):
        assert owner.get("/v1/acts", params={"cursor": cursor}).status_code == 422
    assert owner.get("/v1/acts", params={"cursor": 10**9}).json()["acts"][0]["seq"] == 3
