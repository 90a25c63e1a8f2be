"""The try-out behind a platform: its parts name each other rightly, and a person's token opens the service.

No registry of images can be reached where this is tested, so neither Keycloak nor Grafana is started here. In
the place of Keycloak a stand-in answers. It makes tokens by the mappers of the realm's file.
"""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from cryptography import x509
from joserfc import jwt
from joserfc.jwk import RSAKey

from privest_service.security.keys import SCOPES
from privest_service.settings import Settings
from testing import ROOT
from testing.container import SETTINGS
from testing.server import ADMIN_KEY, Server

HERE = ROOT / "deploy/try-out"
BASE = yaml.safe_load((ROOT / "compose.yaml").read_text())
ADDED = yaml.safe_load((HERE / "compose.yaml").read_text())
SERVICES = ADDED["services"]
REALM = json.loads((HERE / "realm.json").read_text())
ENVIRONMENT = SERVICES["privest"]["environment"]


@pytest.fixture
def backend() -> str:
    """Who calls says nothing of databases."""
    return "sqlite"


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A copy of what the try-out's scripts need, prepared as its page says."""
    place = tmp_path / "try-out"
    shutil.copytree(HERE, place / "deploy/try-out")
    (place / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/make-secrets", place / "scripts")
    for _ in range(2):  # the second time it replaces nothing
        subprocess.run([place / "deploy/try-out/prepare"], check=True, capture_output=True)
    return place


# The parts


def test_what_is_added_is_bounded_and_named_by_digests() -> None:
    for name, service in SERVICES.items():
        if name == "privest":
            continue
        assert re.fullmatch(r"[\w:./-]+@\$\{[A-Z]+_DIGEST:\?.+\}", service["image"]), name
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "healthcheck" in service
        assert service["networks"] == ["try-out"], "the database is not for it"
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_every_file_that_is_mounted_is_there_and_every_secret_is_made(prepared: Path) -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            assert (ROOT / volume.partition(":")[0]).exists(), volume
        assert set(service.get("secrets", ())) <= set(ADDED["secrets"])
    for secret in ADDED["secrets"].values():
        assert (prepared / secret["file"]).stat().st_size > 0
    (password,) = re.findall(r"^TRY_OUT_PASSWORD=(\w{32})$", (prepared / ".env").read_text(), re.MULTILINE)
    assert password
    certificate = x509.load_pem_x509_certificate(
        (prepared / "deploy/secrets/identity_certificate").read_bytes()
    )
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {
        urlsplit(ENVIRONMENT[name]).hostname for name in ("PRIVEST_TOKEN_ISSUER", "PRIVEST_TOKEN_KEYS")
    } == set(names.get_values_for_type(x509.DNSName))


def test_the_service_is_told_of_the_realm_and_prometheus_of_the_service() -> None:
    ours = {name: value for name, value in ENVIRONMENT.items() if name.startswith("PRIVEST_")}
    assert set(ours) <= SETTINGS
    given = {name.removeprefix("PRIVEST_").lower(): value for name, value in ours.items()}
    assert Settings(admin_key=ADMIN_KEY, **given)  # pyright: ignore[reportArgumentType]
    provider = SERVICES["identity"]["environment"]
    assert ENVIRONMENT["PRIVEST_TOKEN_ISSUER"] == f"{provider['KC_HOSTNAME']}/realms/{REALM['realm']}"
    scraped = yaml.safe_load((HERE / "prometheus.yml").read_text())
    (job,) = scraped["scrape_configs"]
    port = ENVIRONMENT["PRIVEST_METRICS_ADDRESS"].rpartition(":")[2]
    assert (job["job_name"], job["static_configs"]) == ("privest", [{"targets": [f"privest:{port}"]}])
    mounted = [volume.split(":") for volume in SERVICES["prometheus"]["volumes"]]
    rules = {Path(inside).name for outside, inside, _ in mounted if outside.endswith("alerts.yaml")}
    assert set(scraped["rule_files"]) == rules
    (source,) = yaml.safe_load((HERE / "datasource.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (boards,) = yaml.safe_load((HERE / "dashboards.yaml").read_text())["providers"]
    assert f"./deploy/chart/observability:{boards['options']['path']}:ro" in SERVICES["grafana"]["volumes"]


def test_its_images_are_pinned_by_the_script_that_pins_the_others() -> None:
    script = (ROOT / "scripts/pin-images").read_text()
    (pattern,) = re.findall(r"sed -n '(s/.*/p)' Dockerfile", script)
    names = subprocess.run(
        ["sed", "-n", pattern, ROOT / "compose.yaml", HERE / "compose.yaml"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    variables = {name.partition(" ")[0] for name in names if name}
    assert variables == {"POSTGRES_DIGEST", "KEYCLOAK_DIGEST", "PROMETHEUS_DIGEST", "GRAFANA_DIGEST"}


# A person


class Provider:
    """A stand-in for Keycloak: people, their attributes, and tokens by the mappers of the realm's client."""

    def __init__(self, key: RSAKey) -> None:
        self.key, (self.person,) = key, REALM["users"]
        (self.client,) = REALM["clients"]

    def token(self, asked: dict[str, str]) -> str:
        """A token of the administrator, or of the person."""
        if asked["client_id"] == "admin-cli":
            return "admin"
        assert asked == {
            "grant_type": "password",
            "client_id": self.client["clientId"],
            "username": self.person["username"],
            "password": self.person["credentials"][0]["value"],
        }
        claims: dict[str, Any] = {"iss": ENVIRONMENT["PRIVEST_TOKEN_ISSUER"], "exp": int(time.time()) + 300}
        claims["scope"] = " ".join(self.client["defaultClientScopes"])
        for mapper in self.client["protocolMappers"]:
            config = mapper["config"]
            assert config["access.token.claim"] == "true"
            if mapper["protocolMapper"] == "oidc-sub-mapper":
                claims["sub"] = "1b4e28ba"
            elif mapper["protocolMapper"] == "oidc-audience-mapper":
                claims["aud"] = config["included.custom.audience"]
            else:
                (claims[config["claim.name"]],) = self.person["attributes"][config["user.attribute"]]
        return jwt.encode({"alg": "RS256", "typ": "JWT", "kid": "1"}, claims, self.key)


@contextmanager
def provided(provider: Provider) -> Iterator[str]:
    """The stand-in's address."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response_only(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _body(self) -> str:
            return self.rfile.read(int(self.headers["Content-Length"])).decode()

        def do_POST(self) -> None:
            asked = {name: value for name, (value,) in parse_qs(self._body()).items()}
            self._answer({"access_token": provider.token(asked)})

        def do_GET(self) -> None:
            assert self.headers["Authorization"] == "Bearer admin"
            self._answer([provider.person | {"id": "1b4e28ba"}])

        def do_PUT(self) -> None:
            assert (self.path, self.headers["Authorization"]) == (
                "/admin/realms/privest/users/1b4e28ba",
                "Bearer admin",
            )
            provider.person = json.loads(self._body())
            self._answer({})

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.costly
def test_a_person_of_the_realm_is_an_analyst_of_the_service(
    prepared: Path, start_server: Callable[..., Server], tmp_path: Path
) -> None:
    key = RSAKey.generate_key(2048, {"kid": "1"})
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    admin_key = (prepared / "deploy/secrets/privest_admin_key").read_text()
    server = start_server(
        token_issuer=ENVIRONMENT["PRIVEST_TOKEN_ISSUER"],
        token_keys=tmp_path / "keys.json",
        admin_key=admin_key,
    )
    provider = Provider(key)
    with provided(provider) as identity:
        command = [prepared / "deploy/try-out/first-person", identity, server.url]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["role"], [told["id"]]) == ("analyst", provider.person["attributes"]["privest"])
    assert {f"{Settings.model_fields['token_scope_prefix'].default}{scope}" for scope in SCOPES} == set(
        _scopes()
    )


def _scopes() -> list[str]:
    """The scopes that the realm gives the platform's client, each of which it declares."""
    (client,) = REALM["clients"]
    declared = {each["name"] for each in REALM["clientScopes"]}
    assert set(client["defaultClientScopes"]) <= declared
    return client["defaultClientScopes"]


def test_what_is_added_takes_the_place_of_nothing_but_the_service() -> None:
    assert set(SERVICES) & set(BASE["services"]) == {"privest"}
    assert not set(ADDED["networks"]) & set(BASE["networks"])
    assert not set(ADDED["secrets"]) & set(BASE["secrets"])
