"""Analysts' pages, keys, and what owners' forms refuse."""

import re
from math import hypot

import pytest
from scipy.stats import norm

from privest.privacy.accounting import mu_for
from testing.scenes import Desk, analyst_called, answered, dataset_called, owner_called
from testing.server import ADMIN_KEY, Caller, Server


def test_an_analyst_sees_its_own_alone(site: Server) -> None:
    owner, dataset, analysts = _shared(site)
    desk = Desk(site, analysts[0].key)
    theirs = answered(analysts[1], dataset, epsilon=0.37)
    own = answered(analysts[0], dataset, epsilon=0.21)
    told = "".join(desk.get(path).text for path in ("/granted", f"/granted/{dataset}", "/answers", "/keys"))
    told += desk.get(f"/what-if?dataset={dataset}&epsilon=0.2&delta=1e-6").text
    assert own in told
    fingerprint = owner.get(f"/v1/datasets/{dataset}").json()["fingerprint"]
    for hidden in ("Zebedee", "Quillon", analysts[1].id, theirs, "0.37", fingerprint, owner.id, "2.75"):
        assert hidden not in told, hidden
    assert "1 question." in desk.get(f"/granted/{dataset}").text, "those of others are not counted"
    assert desk.get(f"/answers/{theirs}").status_code == 404
    for path in ("/ledger", "/analysts", "/datasets", "/budget", "/admin", f"/datasets/{dataset}"):
        assert desk.get(path).status_code == 403, path
    # A freeze is the owner's to know: to an analyst all reads as before.
    before = desk.get(f"/what-if?dataset={dataset}&epsilon=0.2&delta=1e-6").text
    assert owner.patch(f"/v1/owners/{owner.id}/budget", json={"frozen": True}).status_code == 200
    after = desk.get(f"/what-if?dataset={dataset}&epsilon=0.2&delta=1e-6").text
    key = re.compile(r'name="key" value="[^"]+"')
    assert key.sub("", after) == key.sub("", before)
    assert owner.delete(f"/v1/datasets/{dataset}/grants/{analysts[0].id}").status_code == 204
    assert dataset not in desk.get("/granted").text
    assert desk.get(f"/granted/{dataset}").status_code == 404


def _shared(site: Server) -> tuple[Caller, str, list[Caller]]:
    """An owner with a dataset that two analysts may ask about, each under a cap."""
    owner = owner_called(site, "Zebedee Trust", 2.75)
    dataset = dataset_called(owner, "Shared rows")
    analysts = [analyst_called(site, name) for name in ("Ida Moreau", "Quillon Vane")]
    for analyst in analysts:
        cap = {"epsilon": 1.0, "delta": 1e-5}
        assert owner.put(f"/v1/datasets/{dataset}/grants/{analyst.id}", json=cap).status_code == 200
    return owner, dataset, analysts


def test_a_form_sent_twice_asks_once(site: Server) -> None:
    owner, dataset, (analyst, _) = _shared(site)
    desk = Desk(site, analyst.key)
    asked = {"question": f"dataset={dataset}&epsilon=0.2&delta=1e-6", "key": "one page"}
    first, again = (desk.post("/what-if", asked).headers["location"] for _ in range(2))
    assert first == again
    other = desk.post("/what-if", asked | {"question": f"dataset={dataset}&epsilon=0.3&delta=1e-6"})
    assert other.status_code == 422, "another question under the key of the first"
    assert owner.budget()["queries"] == 1


# Keys


def test_a_key_is_shown_once_and_ends_with_the_one_that_issued_it(site: Server) -> None:
    owner = owner_called(site, "Keys")
    made = owner.post(f"/v1/owners/{owner.id}/keys", json={"scopes": ["read", "manage"]}).json()
    desk = Desk(site, made["key"])
    assert desk.post("/keys", {"scopes": "estimate"}).status_code == 403, "more than the session is for"
    assert desk.post("/keys").status_code == 422
    assert desk.post("/keys", {"scopes": "read", "days": "99999"}).status_code == 422
    page = desk.post("/keys", {"scopes": "read", "days": "2"}).text
    key = re.search(r'<code class="key">(pvo_[^<]+)</code>', page)
    assert key is not None
    assert key[1] not in desk.get("/keys").text
    issued = Caller(site, owner.id, key[1])
    assert issued.get("/v1/datasets").status_code == 200
    (listed,) = [
        each for each in owner.get(f"/v1/owners/{owner.id}/keys").json()["keys"] if each["scopes"] == ["read"]
    ]
    assert listed["expires_at"] is not None
    assert desk.post("/keys/revoke", {"key": made["id"]}).status_code == 303
    assert desk.get("/keys").headers["location"].endswith("/sign-in")
    assert issued.get("/v1/datasets").status_code == 401


def test_the_administrator_replaces_a_key_that_was_lost(site: Server) -> None:
    analyst, desk = analyst_called(site, "Forgetful"), Desk(site, ADMIN_KEY)
    page = desk.post(f"/admin/analysts/{analyst.id}/keys", {"scopes": "read"}).text
    key = re.search(r'<code class="key">(pva_[^<]+)</code>', page)
    assert key is not None
    assert Caller(site, analyst.id, key[1]).get("/v1/me").json()["id"] == analyst.id
    listed = analyst.get(f"/v1/analysts/{analyst.id}/keys").json()["keys"]
    lost = next(each["id"] for each in listed if len(each["scopes"]) > 1)
    assert desk.post(f"/admin/analysts/{analyst.id}/keys/revoke", {"key": lost}).status_code == 303
    assert analyst.get("/v1/me").status_code == 401
    for path in ("/admin/owners/own_none", "/admin/analysts/anl_none"):
        assert desk.get(path).status_code == 404


# Budgets, and what is learned


def test_a_budget_is_changed_only_by_whoever_is_sure(site: Server) -> None:
    owner = owner_called(site, "Budgets", 1.0)
    desk = Desk(site, owner.key)
    for sent in ({"epsilon": "2", "delta": "1e-5"}, {"epsilon": "0.5", "delta": "1e-5", "sure": "yes"}):
        assert desk.post("/budget", sent).status_code == 422
    assert desk.post("/budget/renew", {"replaces": "1"}).status_code == 422
    assert owner.budget()["limit"]["epsilon"] == 1.0
    assert owner.budget()["window"] == 1
    for status in (303, 409):  # the form of a page that is not of the present window any more
        assert desk.post("/budget/renew", {"replaces": "1", "sure": "yes"}).status_code == status
    assert owner.budget()["window"] == 2


def _learned(site: Server, owner: Caller) -> dict[str, list[float]]:
    """How often an attacker guesses right, now and at most, in percent, by who was answered."""
    rows = re.findall(
        r'data-label="From the answers to">(.*?)</tr>', Desk(site, owner.key).get("/analysts").text
    )
    return {
        name: [float(number) for number in re.findall(r"([\d.]+) %", row)]
        for row in rows
        for name in ("Ida Moreau", "Quillon Vane", "All together")
        if row.startswith(name)
    }


def test_what_is_learned_is_told_per_analyst_and_of_all(site: Server) -> None:
    owner, dataset, (analyst, other) = _shared(site)
    answered(analyst, dataset, epsilon=0.5)
    assert owner.delete(f"/v1/datasets/{dataset}/grants/{other.id}").status_code == 204
    told = _learned(site, owner)
    mu = owner.budget()["spent"]["mu"]
    now = 100 * norm.cdf(mu / 2)
    cap, whole = (100 * norm.cdf(mu_for(epsilon, 0.9e-5) / 2) for epsilon in (1.0, 2.75))
    assert told["Ida Moreau"] == pytest.approx([now, cap], abs=0.11)
    assert told["Quillon Vane"] == [50, 50], "of a grant that is revoked nothing more is learned"
    assert told["All together"] == pytest.approx([now, whole], abs=0.11)
    # A new window forgets none of the answers of before.
    assert owner.patch(f"/v1/owners/{owner.id}/budget", json={"window": "new"}).status_code == 200
    cap, whole = (100 * norm.cdf(hypot(mu, mu_for(epsilon, 0.9e-5)) / 2) for epsilon in (1.0, 2.75))
    told = _learned(site, owner)
    assert told["Ida Moreau"] == pytest.approx([now, cap], abs=0.11)
    assert told["All together"] == pytest.approx([now, whole], abs=0.11)


def test_only_numbers_make_an_owner(site: Server) -> None:
    desk, sent = Desk(site, ADMIN_KEY), {"name": "Odd", "epsilon": "1", "delta": "1e-6"}
    for wrong in (
        {"epsilon": "much"},
        {"delta": "1"},
        {"delta": "0"},
        {"name": " "},
        {"composition": "none"},
    ):
        answer = desk.post("/admin/owners", sent | wrong)
        assert answer.status_code == 422, wrong
        assert "pvo_" not in answer.text
    assert desk.post("/admin/analysts", {"name": ""}).status_code == 422
