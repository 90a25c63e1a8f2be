"""The platform's tokens: good ones open what a key would, and no other opens anything."""

import base64
import hashlib
import hmac
import json
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import example, given, settings
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey
from sqlalchemy import select
from structlog.testing import capture_logs

from privest_service import cached_probe
from privest_service.database import Database, now
from privest_service.problems import Unavailable
from privest_service.security import tokens
from privest_service.security.keys import SCOPES
from privest_service.security.models import SignIn
from privest_service.security.tokens import Tokens
from privest_service.settings import Settings
from testing.hostile import IN_BUFFERS, flooding
from testing.server import HANG_GUARD, Caller, Server, problem, until

ISSUER = "https://platform.example"
RSA, EC, STRANGER = RSAKey.generate_key(2048), ECKey.generate_key("P-256"), RSAKey.generate_key(2048)
for key in (RSA, EC, STRANGER):
    key.ensure_kid()


@pytest.fixture
def backend() -> str:
    """The database has no part in this but to hold owners."""
    return "sqlite"


NULL = object()
"""Stands for a claim that is present and null."""


class Issuer:
    """Serves a key set, and counts who asks for it."""

    def __init__(self) -> None:
        self.keys = [RSA, EC]
        self.asked, self.drips = 0, False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                self.send_response(200)
                self.end_headers()
                with suppress(ConnectionError):
                    while outer.drips:
                        self.wfile.write(b" ")
                        time.sleep(0.01)
                    self.wfile.write(json.dumps(KeySet(list(outer.keys)).as_dict()).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_address[1]}/keys"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Issuer]:
    # A busy machine may take longer for a local call than a service waits for an issuer.
    monkeypatch.setattr(cached_probe, "PATIENCE", HANG_GUARD)
    monkeypatch.setattr(tokens, "_SECONDS", HANG_GUARD)
    found = Issuer()
    yield found
    found.http.shutdown()


def claims(of: str, **changed: Any) -> dict[str, Any]:
    usual = {"iss": ISSUER, "aud": "privest", "sub": "ada", "exp": int(time.time()) + 600, "privest": of}
    told = {name: value for name, value in (usual | changed).items() if value is not None}
    return {name: None if value is NULL else value for name, value in told.items()}


def token(
    of: str, key: Any = RSA, alg: str = "RS256", header: dict[str, Any] | None = None, **changed: Any
) -> str:
    head = {"alg": alg, "kid": key.kid} | (header or {})
    return jwt.encode(head, claims(of, **changed), key, algorithms=[alg])


def unsigned(of: str, **header: object) -> str:
    parts = (json.dumps(part).encode() for part in ({"alg": "none"} | header, claims(of)))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."


def signed_with_the_public_key(of: str) -> str:
    """What a verifier takes for good that lets the header choose the algorithm."""
    head = {"alg": "HS256", "kid": RSA.kid}
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (head, claims(of)))
    said = b".".join(parts)
    mark = hmac.new(RSA.as_pem(private=False), said, hashlib.sha256).digest()
    return f"{said.decode()}.{base64.urlsafe_b64encode(mark).rstrip(b'=').decode()}"


BAD: dict[str, Callable[[str], str]] = {
    "expired": lambda of: token(of, exp=int(time.time()) - 1),
    "without an end": lambda of: token(of, exp=None),
    "not yet good": lambda of: token(of, nbf=int(time.time()) + 600),
    "of another issuer": lambda of: token(of, iss="https://elsewhere.example"),
    "without an issuer": lambda of: token(of, iss=None),
    "for somebody else": lambda of: token(of, aud="other"),
    "for nobody": lambda of: token(of, aud=None),
    "without a subject": lambda of: token(of, sub=None),
    "of a stranger's key": lambda of: token(of, key=STRANGER),
    "of a stranger's key under a known name": lambda of: token(of, key=STRANGER, header={"kid": RSA.kid}),
    "of another algorithm than allowed": lambda of: token(of, key=RSA, alg="PS256"),
    "not signed": unsigned,
    "of which a number is critical": lambda of: unsigned(of, alg="RS256", kid=RSA.kid, crit=1),
    "of which a list is critical": lambda of: unsigned(of, alg="RS256", kid=RSA.kid, crit=[[]]),
    "signed with the public key": signed_with_the_public_key,
    "with a key of its own": lambda of: token(
        of, key=STRANGER, header={"kid": RSA.kid, "jwk": STRANGER.as_dict(private=False)}
    ),
    "with an address of keys": lambda of: token(
        of, key=STRANGER, header={"kid": RSA.kid, "jku": "http://127.0.0.1:9/keys"}
    ),
    "with an address of certificates": lambda of: token(
        of, key=STRANGER, header={"kid": RSA.kid, "x5u": "http://127.0.0.1:9/certificates"}
    ),
    "changed": lambda of: token(of)[:-6] + "AAAAAA",
    "of nobody here": lambda _: token("own_0000"),
    "of no text": lambda _: token(["own_0000"]),  # pyright: ignore[reportArgumentType]
    "of nobody at all": lambda _: token(None),  # pyright: ignore[reportArgumentType]
    "with an end beyond time": lambda of: token(of, exp=1e300),
    "of a name with NUL": lambda of: token(f"{of}\0"),
    "of half a character": lambda of: signed({"alg": "ES256", "kid": EC.kid}, claims(f"{of}\ud800")),
    "of no printable name": lambda of: token(f"{of}\n"),
    "of a name that is too long": lambda of: token(of * 99),
    "that tells of a logout": lambda of: token(of, header={"typ": "logout+jwt"}),
    "for a person's name": lambda of: token(of, header={"typ": "application/id+jwt"}),
}


TYPES: dict[Any, bool] = {
    "JWT": True,
    "jwt": True,
    "at+jwt": True,
    "AT+JWT": True,
    "application/at+jwt": True,
    "Application/JWT": True,
    "secevent+jwt": False,
    "application/application/jwt": False,
    "": False,
    "jwt ": False,
    "text/jwt": False,
}


@pytest.fixture
def server(start_server: Callable[..., Server], issuer: Issuer) -> Server:
    return start_server(token_issuer=ISSUER, token_keys=issuer.address)


def test_a_token_opens_what_a_key_does(server: Server, issuer: Issuer) -> None:
    owner, analyst = server.owner(), server.analyst()
    dataset = owner.dataset()
    owner.grant(dataset, analyst)
    as_owner = Caller(server, owner.id, token(owner.id, aud=["other", "privest"]))
    as_analyst = Caller(server, analyst.id, token(analyst.id, EC, "ES256"))
    budget = f"/v1/owners/{owner.id}/budget"
    until(lambda: as_owner.get(budget).status_code == 200)  # the first waits for the issuer, but not for long
    assert as_owner.budget() == owner.budget()
    assert as_analyst.estimate(dataset).status_code == 200
    problem(as_analyst.get(budget), 403, "forbidden")
    for name, bad in BAD.items():
        answer = Caller(server, owner.id, bad(owner.id)).get(f"/v1/owners/{owner.id}/budget")
        assert problem(answer, 401, "unauthenticated"), name
    assert "eyJ" not in server.log.read_text()


ISSUED: dict[str, tuple[dict[str, Any], bool]] = {
    "to the client": ({"azp": "hub"}, True),
    "to the client, as RFC 9068 says it": ({"client_id": "hub"}, True),
    "to the client, said twice": ({"azp": "hub", "client_id": "hub"}, True),
    "to whom only its audience names": ({"aud": ["privest", "hub"]}, True),
    "to another client": ({"azp": "other"}, False),
    "to another client, for this one to read": ({"azp": "other", "aud": ["privest", "hub"]}, False),
    "to two clients": ({"azp": "other", "client_id": "hub"}, False),
    "to the service": ({"azp": "privest"}, False),
    "to nobody that it names": ({}, False),
    "to no text": ({"azp": ["hub"]}, False),
}


def test_a_platform_asks_with_good_tokens_of_its_own_client_alone(server: Server) -> None:
    person, owner, account = server.analyst(), server.owner(), server.analyst()
    may = {"on_behalf_of": {"client": "hub"}}
    key = server.admin.post(f"/v1/analysts/{account.id}/keys", json=may).json()["key"]

    def asked(given: str) -> httpx.Response:
        return Caller(server, "", key).get("/v1/me", headers={"Privest-On-Behalf-Of": given})

    first = token(person.id, azp="hub")
    until(lambda: asked(first).status_code == 200)  # which waits for the issuer, but not for long
    for name, (issued, good) in ISSUED.items():
        answer = asked(token(person.id, **issued))
        assert (answer.status_code, answer.json().get("id")) == ((200, person.id) if good else (403, None)), (
            name
        )
    for name, bad in BAD.items():
        # One that is for nobody here is well signed, and was not issued to the client.
        assert asked(bad(person.id)).status_code == (403 if name == "of nobody here" else 401), name
    problem(asked(token(owner.id, azp="hub")), 401, "unauthenticated")
    problem(asked(token(person.id, azp="hub", scope="privest:estimate")), 403, "forbidden")
    assert Caller(server, "", key).get("/v1/me").json()["id"] == account.id, "by itself it is itself"


SCOPED: dict[str, tuple[Any, set[str]]] = {
    "none of ours": ("openid profile", set()),
    "one": ("openid privest:read", {"read"}),
    "two": ("privest:manage privest:read", {"read", "manage"}),
    "one that there is not": ("privest:everything privest:", set()),
    "without the prefix": ("read manage", set()),
    "in another case": ("Privest:read PRIVEST:MANAGE", set()),
    "empty": ("", set()),
    "a list": (["privest:read", "privest:manage"], set()),
    "null": (NULL, set()),
    "not said": (None, {"read", "manage"}),
}


def test_a_token_is_for_what_its_scopes_name_and_so_are_keys_from_it(server: Server) -> None:
    owner, end = server.owner(), int(time.time()) + 600
    budget = f"/v1/owners/{owner.id}/budget"
    for name, (scope, expected) in SCOPED.items():
        caller = Caller(server, owner.id, token(owner.id, scope=scope))
        answers = {"read": caller.get(budget), "manage": caller.patch(budget, json={})}
        assert {each for each, answer in answers.items() if answer.status_code == 200} == expected, name
        for each in answers.keys() - expected:
            assert each in problem(answers[each], 403, "forbidden")["detail"], name
    with httpx.Client(base_url=server.url) as browser:
        key = token(owner.id, scope="privest:read")
        assert browser.post("/dashboard/sign-in", data={"key": key}).status_code == 303
        page = browser.get("/dashboard")
        assert page.status_code == 200
        mark = page.text.partition('name="token" value="')[2].partition('"')[0]
        refused = browser.post("/dashboard/freeze", data={"token": mark, "frozen": "yes"})
        assert refused.status_code == 403
        assert "scope manage" in refused.text
    assert not owner.budget()["frozen"]
    caller = Caller(server, owner.id, token(owner.id, exp=end, scope="privest:manage privest:data"))
    made = caller.post(f"/v1/owners/{owner.id}/keys").json()
    assert made["scopes"] == ["data", "manage"]
    assert datetime.fromisoformat(made["expires_at"]).timestamp() == end
    longer = caller.post(f"/v1/owners/{owner.id}/keys", json={"expires_in": 3600})
    problem(longer, 403, "forbidden")


def test_a_token_opens_a_session_that_ends_with_it(server: Server) -> None:
    owner, analyst = server.owner(), server.analyst()
    end = int(time.time()) + 600
    short = token(owner.id, exp=end)
    with httpx.Client(base_url=server.url) as browser:
        assert browser.post("/dashboard/sign-in", data={"key": short}).status_code == 303
        assert "How much is left" in browser.get("/dashboard").text
        assert short not in str(browser.cookies)
        database = Database(server.database_url)
        with database.write() as session:
            (held,) = session.scalars(select(SignIn)).all()
            assert held.expires_at.timestamp() == end
            held.expires_at = now()
        database.close()
        assert browser.get("/dashboard").headers["location"] == "/dashboard/sign-in"
    # A proxy of the platform lets through to a page with a token of the visitor's.
    with httpx.Client(base_url=server.url) as browser:
        first = browser.get("/dashboard", headers={"Authorization": f"Bearer {token(owner.id)}"})
        assert first.status_code == 200
        assert browser.get("/dashboard/ledger").status_code == 200
    with httpx.Client(base_url=server.url) as browser:
        for path, how in (("/dashboard", "get"), ("/dashboard/freeze", "post")):
            answer = browser.request(how, path, headers={"Authorization": f"Bearer {unsigned(owner.id)}"})
            assert answer.headers["location"] == "/dashboard/sign-in"
        head = {"Authorization": f"Bearer {token(owner.id)}"}
        assert browser.post("/dashboard/freeze", headers=head).status_code == 303  # a form needs a session
        assert not owner.budget()["frozen"]
        led = browser.get("/dashboard", headers={"Authorization": f"Bearer {token(analyst.id, exp=end)}"})
        assert led.headers["location"] == "/dashboard/granted"
        assert browser.get("/dashboard/ledger").status_code == 403
        mark = browser.get("/dashboard/keys").text.partition('name="token" value="')[2].partition('"')[0]
        asked = {"token": mark, "scopes": "read"}
        assert browser.post("/dashboard/keys", data=asked | {"days": "1"}).status_code == 403
        assert browser.post("/dashboard/keys", data=asked).status_code == 200
    issued = analyst.get(f"/v1/analysts/{analyst.id}/keys").json()["keys"]
    ends = [datetime.fromisoformat(each["expires_at"]).timestamp() for each in issued if each["expires_at"]]
    assert ends == [end], "a key that a token issued on a page ends with it"


def reads(keys: str) -> Tokens:
    return Tokens(Settings(admin_key="x" * 16, token_issuer=ISSUER, token_keys=keys))  # pyright: ignore[reportArgumentType]


def redirects_to(address: str) -> type[BaseHTTPRequestHandler]:
    """Answers everything with another address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", address)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def test_keys_that_nobody_here_can_read_leave_the_others_good(tmp_path: Path) -> None:
    known, place = EC.as_dict(private=False), tmp_path / "keys.json"
    others = [
        known | {"crv": "brainpoolP256r1", "kid": "q"},
        known | {"x": "AA", "kid": "r"},
        {"kid": "s"},
        7,
    ]
    place.write_text(json.dumps({"keys": [*others, known]}))
    found = reads(str(place))
    assert found.read(token("own_1", EC, "ES256"))
    assert found.read(token("own_1", STRANGER)) is None


def signed(header: dict[str, Any], claims: object) -> str:
    """Any header and claims, well signed."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims)]
    mark = EC.private_key.sign(b".".join(parts), ECDSA(SHA256()))
    pair = b"".join(number.to_bytes(32, "big") for number in decode_dss_signature(mark))
    return b".".join([*parts, base64.urlsafe_b64encode(pair).rstrip(b"=")]).decode()


@pytest.fixture(scope="module")
def known_keys(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    place = tmp_path_factory.mktemp("keys") / "keys.json"
    place.write_text(json.dumps({"keys": [EC.as_dict(private=False)]}))
    return reads(str(place))


def test_a_token_is_of_a_type_that_opens_something(known_keys: Tokens) -> None:
    head = {"alg": "ES256", "kid": EC.kid}
    assert known_keys.read(signed(head, claims("own_1"))), "the type may be left out"
    for kind, good in TYPES.items():
        assert bool(known_keys.read(signed(head | {"typ": kind}, claims("own_1")))) == good, kind
    for kind in (None, 1, ["JWT"], {"JWT": 1}):
        assert known_keys.read(signed(head | {"typ": kind}, claims("own_1"))) is None, kind


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"aud": "another service"}, id="audience"),
        pytest.param({"iss": "https://elsewhere.example"}, id="issuer"),
        pytest.param({"exp": 0}, id="over"),
        pytest.param({"nbf": 2**40}, id="too early"),
        *(pytest.param({name: None}, id=f"no {name}") for name in ("aud", "iss", "exp", "sub")),
    ],
)
def test_a_token_that_is_for_somebody_else_or_over_is_not_good(
    known_keys: Tokens, changed: dict[str, Any]
) -> None:
    assert known_keys.read(token("own_1", EC, "ES256"))
    assert known_keys.read(token("own_1", EC, "ES256", **changed)) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=5), part, max_size=3),
    max_leaves=6,
)
ODD = st.sampled_from(["\0", "own_\0", "\ud800", "\udfff own", "", "own_1\n", 2**70, -(2**70), 1e308])
CLAIMS = st.sampled_from(["iss", "aud", "sub", "exp", "nbf", "iat", "jti", "scope", "privest"])
HEADS = st.sampled_from(["typ", "cty", "crit", "kid", "jku", "jwk", "x5c", "b64", "zip"])


@settings(deadline=None, max_examples=400)
@given(
    changed=st.dictionaries(CLAIMS, JSON | ODD, max_size=4),
    heads=st.dictionaries(HEADS, JSON | ODD, max_size=2),
)
@example(changed={"privest": "own_\0"}, heads={})
@example(changed={"privest": "\ud800"}, heads={})
@example(changed={"exp": float("nan")}, heads={})
@example(changed={"exp": "soon"}, heads={})
@example(changed={"nbf": [1]}, heads={})
@example(changed={"aud": {"privest": 1}}, heads={})
@example(changed={}, heads={"crit": 1})
def test_whatever_a_token_holds_it_is_good_or_not(
    known_keys: Tokens, changed: dict[str, Any], heads: dict[str, Any]
) -> None:
    told = known_keys.read(signed({"alg": "ES256", "kid": EC.kid} | heads, claims("own_1") | changed))
    if told is not None:
        assert re.fullmatch(r"[ -~]{0,40}", told.principal_id)
        assert told.until > now()
        assert told.scopes <= set(SCOPES)


@pytest.mark.parametrize("claims", ["[" * 100_000, '{"a":' * 100_000, "7", "null", '"x"', "\udc80", ""])
def test_what_is_no_claims_at_all_is_not_good(known_keys: Tokens, claims: str) -> None:
    head = json.dumps({"alg": "ES256", "kid": EC.kid}).encode()
    parts = [
        base64.urlsafe_b64encode(part).rstrip(b"=")
        for part in (head, claims.encode(errors="surrogateescape"))
    ]
    mark = EC.private_key.sign(b".".join(parts), ECDSA(SHA256()))
    pair = b"".join(number.to_bytes(32, "big") for number in decode_dss_signature(mark))
    assert known_keys.read(b".".join([*parts, base64.urlsafe_b64encode(pair)]).decode().rstrip("=")) is None


def test_an_rsa_key_that_is_too_short_is_not_used(tmp_path: Path) -> None:
    place = tmp_path / "keys.json"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # joserfc has a word about it, too
        short = RSAKey.generate_key(1024)
        short.ensure_kid()
        place.write_text(json.dumps({"keys": [each.as_dict(private=False) for each in (short, RSA)]}))
        found = reads(str(place))
        with capture_logs() as told:
            assert found.read(token("own_1"))
        assert [each["event"] for each in told] == ["a key of the platform is too short and not used"]
        assert found.read(token("own_1", short)) is None


def test_keys_are_fetched_from_where_the_settings_say_and_nowhere_else(issuer: Issuer) -> None:
    away = HTTPServer(("127.0.0.1", 0), redirects_to(issuer.address))
    threading.Thread(target=away.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    with pytest.raises(Unavailable):
        reads(f"http://127.0.0.1:{away.server_address[1]}/keys").read(token("own_1"))
    away.shutdown()
    away.server_close()
    assert issuer.asked == 0


def test_keys_are_looked_for_again_and_are_good_for_an_hour_without(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(tokens.time, "monotonic", lambda: clock[0])
    found = reads(issuer.address)
    assert found.read(token("own_1"))
    issuer.keys = [EC]
    clock[0] += 299
    assert found.read(token("own_1"))
    clock[0] += 1
    assert found.read(token("own_1")) is None  # withdrawn
    assert found.read(token("own_1", EC, "ES256"))
    assert issuer.asked == 2
    issuer.http.shutdown()
    issuer.http.server_close()
    clock[0] += 3599
    assert found.read(token("own_1", EC, "ES256"))
    clock[0] += 1
    with pytest.raises(Unavailable):
        found.read(token("own_1", EC, "ES256"))


def test_an_issuer_without_an_end_is_not_waited_for(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    real, late = time.monotonic, [0.0]
    monkeypatch.setattr(tokens.time, "monotonic", lambda: real() + late[0])
    found = reads(issuer.address)
    assert found.read(token("own_1"))
    issuer.drips, late[0] = True, 300.0
    monkeypatch.setattr(cached_probe, "PATIENCE", 0.1)
    monkeypatch.setattr(tokens, "_SECONDS", 600.0)
    with capture_logs() as told, ThreadPoolExecutor(5) as pool:
        assert all(pool.map(found.read, [token("own_1")] * 5))
        assert not told  # they did not wait until it was given up
        late[0] += 1200.0
        until(lambda: told)
    issuer.drips = False
    assert issuer.asked == 2


def test_within_a_minute_the_issuer_is_asked_once_whoever_comes(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens.time, "monotonic", lambda: 1000.0)
    found = reads(issuer.address)
    assert found.read(token("own_1"))
    assert found.read(token("anl_1", EC, "ES256"))
    taken = [name for name, bad in BAD.items() if found.read(bad("own_1"))]
    assert taken == ["of nobody here"]  # which the service refuses, as it has no such owner
    assert issuer.asked == 1


def test_new_keys_are_found_and_asked_for_at_most_once_a_minute(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(tokens.time, "monotonic", lambda: clock[0])
    issuer.keys = [EC]
    found = reads(issuer.address)
    assert found.read(token("own_1", EC, "ES256"))
    assert found.read(token("own_1")) is None
    issuer.keys = [RSA]
    assert found.read(token("own_1")) is None
    assert issuer.asked == 1
    clock[0] += 60
    told = found.read(token("own_1"))
    assert told is not None
    assert told.principal_id == "own_1"
    assert found.read(token("own_1", EC, "ES256")) is None  # withdrawn
    assert issuer.asked == 2
    issuer.http.shutdown()
    issuer.http.server_close()
    clock[0] += 60
    assert found.read(token("own_1", STRANGER)) is None
    assert found.read(token("own_1"))  # what was known stays known


def test_without_keys_tokens_are_unavailable_and_keys_are_not(start_server: Callable[..., Server]) -> None:
    server = start_server(token_issuer=ISSUER, token_keys="http://127.0.0.1:9/keys")  # noqa: S106
    owner = server.owner()
    assert owner.budget()
    problem(Caller(server, owner.id, token(owner.id)).get("/v1/datasets"), 503, "unavailable")


@pytest.mark.parametrize(
    "given",
    [
        {"token_issuer": ISSUER},
        {"token_keys": "keys.json"},
        {"token_issuer": ISSUER, "token_keys": "http://platform.example/keys"},
        {"token_issuer": ISSUER, "token_keys": "keys.json", "token_algorithms": ("HS256",)},
        {"token_issuer": ISSUER, "token_keys": "keys.json", "token_algorithms": ("none",)},
        {"token_issuer": ISSUER, "token_keys": "keys.json", "token_algorithms": ()},
    ],
)
def test_settings_that_would_trust_anybody_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"(?i)token"):
        Settings(admin_key="0123456789abcdef", **given)  # pyright: ignore


def test_of_a_key_set_no_more_is_read_than_a_bound() -> None:
    for headers in ({}, {"Content-Encoding": "gzip"}, {"Content-Length": str(2**40)}):
        with flooding(headers) as flood, pytest.raises(ValueError, match=r"compressed|too long"):
            tokens.fetch_key_set(flood.url)
        (sent,) = flood.sent
        assert sent < IN_BUFFERS


def test_keys_of_this_machine_are_asked_of_no_proxy(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert reads(issuer.address).read(token("own_1"))
