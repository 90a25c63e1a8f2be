"""People of a real identity provider: what their groups make them, and platforms that ask for them."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from privest_service import cached_probe
from privest_service.cli import main
from privest_service.database import Database
from privest_service.database.migrate import migrate
from privest_service.exports.export import ended, lines
from privest_service.exports.lines import JobLine, Line, ReceiptLine
from privest_service.exports.verify import verify
from privest_service.ledger import receipts
from privest_service.ledger.service import create_owner
from privest_service.ledger.units import Limits
from privest_service.problems import Unavailable
from privest_service.security import tokens
from privest_service.security.tokens import Tokens
from privest_service.settings import Settings
from privest_service.signing import Signer
from testing.identity_provider import IdentityProvider
from testing.server import HANG_GUARD, Caller, Server, private_key_pem, problem, until


@dataclass
class Lab:
    """A service behind a provider, an owner that a group holds, and a dataset of it."""

    provider: IdentityProvider
    server: Server
    owner: Caller
    dataset: str

    def person(self, name: str, platform: str = "jupyterhub") -> Caller:
        """A person who comes with a token of its own."""
        token = self.provider.token(name, platform)
        found = Caller(self.server, "", token)
        # The first token waits for the provider's keys, but not for long.
        answer = until(lambda: None if (told := found.get("/v1/me")).status_code == 503 else told)
        return Caller(self.server, answer.json().get("id", ""), token)

    def granted(self, name: str, **terms: Any) -> Caller:
        """A person whose analyst may ask about the dataset."""
        found = self.person(name)
        assert self.owner.grant(self.dataset, found, **terms).status_code in (200, 201)
        return found

    def platform(self, client: str = "jupyterhub", **asked: Any) -> Caller:
        """A service account, with a key that may ask for people."""
        account = self.server.analyst()
        body = {"on_behalf_of": {"client": client}, **asked}
        made = self.server.admin.post(f"/v1/analysts/{account.id}/keys", json=body)
        assert made.status_code == 201, made.text
        return Caller(self.server, account.id, made.json()["key"])


def asking_for(platform: Caller, token: str) -> Caller:
    """A service account that asks for the person of a token."""
    found = Caller(platform.server, platform.id, platform.key)
    found.headers = platform.headers | {"Privest-On-Behalf-Of": token}
    return found


def books(server: Server) -> list[Line]:
    signer = Signer(server.signing_key.read_bytes())
    database = Database(server.database_url, signer=signer)
    with database.read(snapshot=True) as session:
        told = list(lines(session))
    database.close()
    return told


def faults(server: Server, told: list[Line]) -> list[str]:
    return verify(told, [Signer(server.signing_key.read_bytes()).public_key]).faults


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    found = IdentityProvider(tmp_path_factory.mktemp("identity"))
    yield found
    found.stop()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[Lab]:
    place = tmp_path_factory.mktemp("lab")
    url = f"sqlite:///{place / 'lab.db'}"
    (place / "secret").write_bytes(secrets.token_bytes(32))
    (place / "signing.pem").write_bytes(private_key_pem())
    database = Database(url, signer=Signer((place / "signing.pem").read_bytes()))
    migrate(database)
    with database.write() as session:
        owner, key = create_owner(session, "The clinic", Limits.of(3.0, 1e-5, "gdp"))
    database.close()
    groups = json.dumps({"clinic": owner.id, "admins": "admin", "stats": "analyst"})
    server = Server(place, url, **provider.settings, token_groups=groups)
    held = Caller(server, owner.id, key)
    yield Lab(provider, server, held, held.dataset())
    server.stop()


def test_a_group_makes_a_person_an_analyst_who_may_do_nothing_yet(lab: Lab) -> None:
    ada = lab.person("ada")
    assert ada.get("/v1/me").json() == {"role": "analyst", "id": ada.id}
    assert lab.person("ada").id == ada.id, "the same person is the same analyst"
    problem(ada.estimate(lab.dataset), 404, "not-found")
    listed = lab.server.admin.get("/v1/analysts").json()["analysts"]
    (own,) = [each for each in listed if each["subject"] == "ada"]
    assert (own["id"], own["name"]) == (ada.id, "Ada of the lab")


def test_the_first_group_of_the_settings_counts_and_no_group_is_nobody(lab: Lab) -> None:
    bob, root = lab.person("bob"), lab.person("root")
    assert bob.get("/v1/me").json() == {"role": "owner", "id": lab.owner.id}
    assert root.get("/v1/me").json()["role"] == "admin"
    problem(lab.person("cyd").get("/v1/me"), 401, "unauthenticated")
    made = root.post("/v1/analysts", json={"name": "A reader"}).json()
    acts = lab.server.admin.get("/v1/acts", params={"kind": "analyst.created"}).json()["acts"]
    (created,) = [act for act in acts if act["subject"] == made["id"]]
    assert created["person"] == "root"
    theirs = f"/v1/analysts/{made['id']}/keys"
    assert root.post(theirs).status_code == 201
    assert {key["person"] for key in root.get(theirs).json()["keys"]} == {None}, "keys of others are not hers"


def test_a_platform_asks_for_a_person_and_all_records_name_both(lab: Lab) -> None:
    ada, platform = lab.granted("ada", epsilon=0.5, delta=1e-5), lab.platform()
    asked = asking_for(platform, ada.key)
    assert asked.get("/v1/me").json() == {"role": "analyst", "id": ada.id}
    answer = asked.estimate(lab.dataset, epsilon=0.2)
    assert answer.status_code == 200, answer.text
    job = answer.json()
    assert job["state"] == "committed"
    assert (job["person"], job["through"]) == ("ada", platform.id)
    told = ada.get(f"/v1/jobs/{job['id']}/receipt").json()["statement"]
    assert (told["person"], told["through"]) == ("ada", platform.id)
    entry = next(each for each in lab.owner.ledger() if each["job"] == job["id"])
    assert (entry["submitter"], entry["person"], entry["through"]) == (ada.id, "ada", platform.id)
    # The person's cap counts, through whichever door it comes; the account has no grant to lend.
    problem(asked.estimate(lab.dataset, epsilon=0.21), 409, "budget-exceeded")
    problem(ada.estimate(lab.dataset, epsilon=0.21), 409, "budget-exceeded")
    problem(platform.estimate(lab.dataset, epsilon=0.01), 404, "not-found")
    again = ada.estimate(lab.dataset, epsilon=0.2).json()
    assert again["id"] == job["id"], "the person has the answer, and pays once"


def test_a_platform_asks_for_analysts_alone(lab: Lab) -> None:
    platform = lab.platform()
    asked = asking_for(platform, lab.provider.token("bob"))
    assert asked.get("/v1/me").json()["role"] == "analyst", "who is an owner too comes as an owner by itself"
    for nobody in ("root", "cyd"):
        problem(asking_for(platform, lab.provider.token(nobody)).get("/v1/me"), 401, "unauthenticated")


def test_only_the_platform_that_a_token_was_issued_to_may_ask_with_it(lab: Lab) -> None:
    ada, other = lab.person("ada"), lab.platform("superset")
    refused = asking_for(other, ada.key).get("/v1/me")
    assert "another client" in problem(refused, 403, "forbidden")["detail"]
    assert asking_for(other, lab.provider.token("ada", "superset")).get("/v1/me").status_code == 200
    problem(asking_for(lab.server.analyst(), ada.key).get("/v1/me"), 403, "forbidden")
    problem(asking_for(lab.server.admin, ada.key).get("/v1/me"), 403, "forbidden")
    for forged in (
        "",
        "ada",
        "e30.e30.",
        f"{ada.key}x",
        ada.key.rpartition(".")[0] + ".",
        f"{ada.key},{ada.key}",
    ):
        problem(asking_for(lab.platform(), forged).get("/v1/me"), 401, "unauthenticated")


def test_only_the_administrator_makes_a_key_that_asks_for_others(lab: Lab) -> None:
    ada, asks = lab.person("ada"), {"on_behalf_of": {"client": "jupyterhub"}}
    problem(ada.post(f"/v1/analysts/{ada.id}/keys", json=asks), 403, "forbidden")
    problem(lab.owner.post(f"/v1/owners/{lab.owner.id}/keys", json=asks), 403, "forbidden")
    problem(lab.server.admin.post(f"/v1/owners/{lab.owner.id}/keys", json=asks), 403, "forbidden")
    platform = lab.platform()
    problem(platform.post(f"/v1/analysts/{platform.id}/keys", json=asks), 403, "forbidden")
    plain = platform.post(f"/v1/analysts/{platform.id}/keys", json={}).json()["key"]
    problem(asking_for(Caller(lab.server, platform.id, plain), ada.key).get("/v1/me"), 403, "forbidden")
    turned = platform.post(f"/v1/analysts/{platform.id}/keys", json={"rotate": True}).json()["key"]
    assert asking_for(Caller(lab.server, platform.id, turned), ada.key).get("/v1/me").status_code == 200


def test_a_platform_asks_for_no_more_than_its_key_is_for(lab: Lab) -> None:
    ada, reader = lab.granted("ada", epsilon=0.5, delta=1e-5), lab.platform(scopes=["read"])
    asked = asking_for(reader, ada.key)
    assert asked.plan(lab.dataset).status_code == 200
    problem(asked.estimate(lab.dataset), 403, "forbidden")
    problem(asked.post(f"/v1/analysts/{ada.id}/keys"), 403, "forbidden")
    problem(
        asking_for(lab.platform(), ada.key).post(f"/v1/analysts/{ada.id}/keys", json={"rotate": True}),
        422,
        "invalid",
    )


def test_a_session_has_a_key_of_the_persons_that_ends_and_goes_with_the_platforms(lab: Lab) -> None:
    eve = lab.granted("eve")
    body = {"on_behalf_of": {"client": "jupyterhub", "key_seconds": 20 * 86_400}}
    account = lab.server.analyst()
    issue = f"/v1/analysts/{account.id}/keys"
    problem(lab.server.admin.post(issue, json=body), 422, "invalid")
    # Canaille's tokens last ten days, so that a session may last longer only with more than that.
    short, long = (
        lab.server.admin.post(
            issue, json={"on_behalf_of": {"client": "jupyterhub", "key_seconds": each}}
        ).json()
        for each in (0, 86_400)
    )
    asked = asking_for(Caller(lab.server, account.id, short["key"]), eve.key)
    own = f"/v1/analysts/{eve.id}/keys"
    problem(asked.post(own, json={"expires_in": 11 * 86_400}), 403, "forbidden")
    spawned = asked.post(own, json={"expires_in": 3600, "scopes": ["read", "estimate"]}).json()
    session = Caller(lab.server, eve.id, spawned["key"])
    job = session.estimate(lab.dataset).json()
    assert (job["person"], job["through"]) == ("eve", account.id)
    (listed,) = [each for each in eve.get(own).json()["keys"] if each["id"] == spawned["id"]]
    assert (listed["person"], listed["through"], listed["on_behalf_of"]) == ("eve", account.id, None)
    assert lab.server.admin.delete(f"{issue}/{short['id']}").status_code == 204
    problem(session.get("/v1/me"), 401, "unauthenticated")
    assert asking_for(Caller(lab.server, account.id, long["key"]), eve.key).get("/v1/me").status_code == 200


def test_whoever_has_left_is_refused_at_every_door(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    eve, ada, platform = lab.granted("eve"), lab.person("ada"), lab.platform()
    own = f"/v1/analysts/{eve.id}/keys"
    spawned = asking_for(platform, eve.key).post(own, json={"expires_in": 3600}).json()
    session = Caller(lab.server, eve.id, spawned["key"])
    assert session.get("/v1/me").status_code == 200
    lab.provider.dismiss("eve")
    assert eve.get("/v1/me").status_code == 200, "the token is good yet: nobody told us"
    opens = tmp_path / "scim-token"
    opens.write_text(lab.provider.scim_token())
    for name, value in {
        "ADMIN_KEY": "x" * 16,
        "DATABASE_URL": lab.server.database_url,
        "SECRET_FILE": str(lab.server.directory / "secret"),
        "SIGNING_KEY_FILE": str(lab.server.signing_key),
    }.items():
        monkeypatch.setenv(f"PRIVEST_{name}", value)
    asked = ["leavers", lab.provider.scim, "--token-file", str(opens)]
    assert main([*asked, "--at-most", "0"]) == 2
    assert main([*asked, "--dry-run"]) == 0
    assert session.get("/v1/me").status_code == 200
    assert main(asked) == 0
    assert "left: eve" in capsys.readouterr().out
    for door in (eve, session, asking_for(platform, eve.key)):
        problem(door.get("/v1/me"), 401, "unauthenticated")
    assert ada.get("/v1/me").status_code == 200
    grants = lab.owner.get("/v1/grants").json()["grants"]
    assert eve.id not in {each["analyst"] for each in grants}
    problem(lab.server.admin.post(own), 422, "invalid")
    acts = lab.server.admin.get("/v1/acts", params={"kind": "person.left"}).json()["acts"]
    assert [act["details"]["person"] for act in acts] == ["eve"]
    (act,) = lab.owner.get("/v1/acts", params={"kind": "grant.revoked"}).json()["acts"][:1]
    assert "identity provider" in act["reason"]
    assert main(asked) == 0, "once more changes nothing"
    assert faults(lab.server, books(lab.server)) == []


@pytest.mark.parametrize("named", ["person", "through"])
def test_the_verifier_holds_charges_receipts_and_jobs_to_one_person(lab: Lab, named: str) -> None:
    ada, platform = lab.granted("ada"), lab.platform()
    job = asking_for(platform, ada.key).estimate(lab.dataset, epsilon=0.05).json()["id"]
    told, signer = books(lab.server)[:-1], Signer(lab.server.signing_key.read_bytes())
    assert faults(lab.server, list(ended(told, signer))) == []

    def other(line: Line) -> Line:
        if isinstance(line, JobLine) and line.job == job:
            return line.model_copy(update={named: "somebody else"})
        return line

    found = faults(lab.server, list(ended(map(other, told), signer)))
    assert found == [f"job {job} is told to be of somebody else than the person for whom it was charged"]

    def unnamed(line: Line) -> Line:
        # Whoever has the key signs what it likes: the charge is sealed with the person all the same.
        if isinstance(line, ReceiptLine) and line.receipt.statement.job == job:
            changed = line.receipt.statement.model_copy(update={named: None})
            return ReceiptLine(receipt=receipts._signed(signer, changed))
        return line

    found = faults(lab.server, list(ended(map(unnamed, told), signer)))
    assert found
    assert set(found) == {f"the receipt of {job} does not name the person for whom its job was charged"}


def test_a_group_that_a_person_is_out_of_opens_nothing_from_the_next_token_on(lab: Lab) -> None:
    bob = lab.person("bob")
    assert bob.get("/v1/me").json()["role"] == "owner"
    lab.provider.take_out("bob", "clinic")
    assert lab.person("bob").get("/v1/me").json()["role"] == "analyst"


@pytest.mark.costly
def test_keys_that_the_provider_changes_are_followed_and_a_silence_is_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_probe, "PATIENCE", HANG_GUARD)
    monkeypatch.setattr(tokens, "_SECONDS", HANG_GUARD)
    clock = [1000.0]
    first = IdentityProvider(tmp_path)
    before = first.token("ada")
    first.stop()
    second = IdentityProvider(tmp_path, first.address)  # which makes itself another key
    after = second.token("ada")
    settings: Any = {"token_groups": {"stats": "analyst"}, "token_algorithms": ("RS256", "RS512")}
    found = Tokens(
        Settings(admin_key="x" * 16, token_issuer=first.issuer, token_keys=first.keys, **settings)  # pyright: ignore
    )
    monkeypatch.setattr(tokens.time, "monotonic", lambda: clock[0])
    told = found.read(after)
    assert told is not None
    assert (told.person, told.held, told.clients) == ("ada", ("analyst",), {"jupyterhub"})
    assert told.until > datetime.now(UTC) + timedelta(minutes=1)
    assert found.read(before) is None, "whose key was withdrawn"
    monkeypatch.undo()
    second.stop()
    monkeypatch.setattr(tokens.time, "monotonic", lambda: clock[0])
    clock[0] += 3500
    assert found.read(after), "keys are good for an hour without the provider"
    clock[0] += 200
    with pytest.raises(Unavailable):
        found.read(after)
