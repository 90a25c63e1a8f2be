"""What `privest doctor` finds: each fault is planted, and nothing secret is said of any."""

import json
import os
import re
import secrets
import ssl
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Thread

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from sqlalchemy import text, update

import privest_service.doctor.here as here_module
from privest_service.acts.models import Act
from privest_service.database import Database
from privest_service.doctor import Finding, examine
from privest_service.settings import Settings
from testing.server import ADMIN_KEY, Server, free_address, private_key_pem

PASSWORD = "a-password-that-nobody-may-see"  # noqa: S105 - planted


@pytest.fixture
def backend() -> str:
    """Most of what is looked at is no database."""
    return "sqlite"


@pytest.fixture
def settings(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets settings, beside those of a service that is well."""
    directory = tmp_path / "secrets"
    directory.mkdir(mode=0o700)
    (directory / "privest_admin_key").write_text(ADMIN_KEY)
    (directory / "secret").write_bytes(secrets.token_bytes(32))
    (directory / "signing_key").write_bytes(private_key_pem())
    for path in directory.iterdir():
        path.chmod(0o600)
    for name in [name for name in os.environ if name.startswith("PRIVEST_")]:
        monkeypatch.delenv(name)

    def give(**given: object) -> None:
        for name, value in given.items():
            monkeypatch.setenv(f"PRIVEST_{name.upper()}", str(value))

    give(
        data_dir=tmp_path / "data",
        database_url=database_url,
        secrets_dir=directory,
        secret_file=directory / "secret",
        signing_key_file=directory / "signing_key",
        worker_memory=2**28,
        workers=1,
        max_dataset_bytes=2**20,
        max_upload_bytes=2**20,
    )
    monkeypatch.setitem(Settings.model_config, "secrets_dir", str(directory))  # read when it is imported
    return give


def found(state: str) -> list[str]:
    """What is told in one state, and what to do about it."""
    return [f"{each.part}: {each.what}. {each.do}" for each in _all() if each.state == state]


def _all() -> list[Finding]:
    told = examine(os.environ)
    words = " ".join(each.what + each.do for each in told)
    assert ADMIN_KEY not in words
    assert PASSWORD not in words
    return told


def one(state: str) -> str:
    """The one thing in one state."""
    (told,) = found(state)
    return told


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_service_that_is_well_has_nothing_to_mend(settings: Callable[..., None], backend: str) -> None:
    assert found("fix") == []
    expected = {"versions", "settings", "secrets", "disk", "memory", "database"}
    assert expected <= {each.part for each in _all() if each.state == "ok"}
    if backend == "postgresql":
        assert "database: the service's role is a superuser" in "\n".join(found("look"))  # the tests' own
        assert "clock: agrees with the database's. " in found("ok")


# Settings


def test_a_setting_that_is_none_is_told_with_the_one_that_was_meant(settings: Callable[..., None]) -> None:
    settings(worker=3)
    assert (
        one("look")
        == "settings: PRIVEST_WORKER is no setting, and is passed over. Did you mean PRIVEST_WORKERS?"
    )


def test_a_file_of_the_secrets_directory_that_is_no_setting_is_told(
    settings: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "secrets/privest_admin_kye").touch(0o600)
    assert "privest_admin_kye in PRIVEST_SECRETS_DIR is no setting" in one("look")


def test_of_settings_that_break_rules_the_rule_is_told_and_not_the_value(
    settings: Callable[..., None],
) -> None:
    settings(workers="many", engine=PASSWORD)
    told = found("fix")
    assert any(each.startswith("settings: PRIVEST_WORKERS must be a whole number") for each in told)
    assert any(each.startswith("settings: PRIVEST_ENGINE must be local") for each in told)
    assert {each.part for each in _all()} == {"versions", "settings"}


def test_secrets_in_the_environment_are_told(settings: Callable[..., None]) -> None:
    settings(admin_key=ADMIN_KEY, database_url=f"postgresql://privest:{PASSWORD}@127.0.0.1:1/privest")
    told = found("look")
    assert any("PRIVEST_ADMIN_KEY is in the environment" in each for each in told)
    assert any("PRIVEST_DATABASE_URL is in the environment" in each for each in told)
    assert any("database: PostgreSQL does not answer" in each for each in found("fix"))


# Secrets


def test_files_that_others_may_read_or_change_are_told(settings: Callable[..., None], tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    (directory / "secret").chmod(0o620)
    assert f"{directory / 'secret'} can be changed by others" in one("fix")
    (directory / "secret").chmod(0o604)
    assert found("fix") == [], "nobody else can enter the directory"
    directory.chmod(0o711)
    for parent in directory.parents:  # those of pytest are closed
        if parent.stat().st_uid == os.getuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o001)
    assert f"{directory / 'secret'} can be read by everybody here" in one("fix")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda path: (path / "secret").write_bytes(b"short"), "must hold at least 32 bytes"),
        (lambda path: (path / "secret").unlink(), "PRIVEST_SECRET_FILE does not name a file"),
        (
            lambda path: (path / "signing_key").write_bytes(b"none"),
            "PRIVEST_SIGNING_KEY_FILE names a file that",
        ),
    ],
)
def test_key_files_that_are_none_are_told(
    settings: Callable[..., None], tmp_path: Path, spoil: Callable[[Path], object], told: str
) -> None:
    spoil(tmp_path / "secrets")
    assert told in one("fix")


def test_another_signing_key_than_the_ledgers_is_told(
    settings: Callable[..., None], start_server: Callable[..., Server], tmp_path: Path
) -> None:
    key = tmp_path / "secrets/signing_key"
    server = start_server(signing_key_file=key)
    server.owner()
    server.stop()
    assert found("fix") == []
    key.write_bytes(private_key_pem())
    assert "signed by another key" in one("fix")


# The database, clocks and disk


def test_a_database_without_tables_or_with_others_is_told(
    settings: Callable[..., None], tmp_path: Path
) -> None:
    settings(database_url=f"sqlite:///{tmp_path}/new.db")
    assert found("fix") == []
    assert not (tmp_path / "new.db").exists(), "it makes nothing"
    (tmp_path / "new.db").touch(0o600)
    assert one("fix") == "database: it has no tables yet. Run privest migrate."


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_tables_of_another_version_are_told(settings: Callable[..., None], database_url: str) -> None:
    database = Database(database_url)
    with database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    database.close()
    assert "its tables are of another version" in one("fix")


def test_a_clock_behind_the_ledger_is_told(
    settings: Callable[..., None], start_server: Callable[..., Server], database_url: str, tmp_path: Path
) -> None:
    server = start_server(signing_key_file=tmp_path / "secrets/signing_key")
    server.owner()
    server.stop()
    database = Database(database_url)
    with database.write() as session:
        session.execute(text("DROP TRIGGER IF EXISTS acts_no_update"))
        for (name,) in session.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).all():
            session.execute(text(f"DROP TRIGGER {name}"))
        session.execute(update(Act).values(at=datetime.now(UTC) + timedelta(hours=1)))
    database.close()
    assert "clock: is behind the newest act in the ledger" in one("fix")


def test_a_full_disk_and_too_little_memory_are_told(
    settings: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings(max_upload_bytes=2**60, max_dataset_bytes=2**61)
    assert "has no room for two of the largest uploads" in one("fix")
    settings(max_upload_bytes=2**20)
    assert "not for the largest rows" in one("look")
    settings(max_dataset_bytes=2**20)
    bound = tmp_path / "memory.max"
    bound.write_text(f"{2**30}\n")
    monkeypatch.setattr(here_module, "_CGROUP", bound)
    assert "workers may take 1.8 GiB together, and 1.0 GiB are there" in one("look")
    bound.write_text("max\n")
    assert found("look") == []


# The platform, and certificates


class _KeySet(BaseHTTPRequestHandler):
    late = timedelta()

    def do_GET(self) -> None:
        self.send_response_only(200)
        self.send_header("Date", format_datetime(datetime.now(UTC) + self.late))
        self.end_headers()
        self.wfile.write(json.dumps({"keys": [{}, {}]}).encode())

    def log_message(self, *_: object) -> None: ...


def test_the_platforms_keys_and_clock_are_looked_at(settings: Callable[..., None], tmp_path: Path) -> None:
    settings(token_issuer="https://id.example", token_keys=f"http://{free_address()}/keys")  # noqa: S106
    assert re.match("platform: PRIVEST_TOKEN_KEYS has no key set: Connection refused", one("fix"))
    with HTTPServer(("127.0.0.1", 0), _KeySet) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        settings(token_keys=f"http://127.0.0.1:{server.server_port}/keys")
        assert found("fix") == []
        assert {"platform: PRIVEST_TOKEN_KEYS has 2 keys. ", "clock: agrees with the platform's. "} <= set(
            found("ok")
        )
        _KeySet.late = timedelta(hours=1)
        assert re.match(r"clock: is 3\d\d\d s behind the platform's", one("fix"))
        server.shutdown()
    (tmp_path / "empty.json").write_text('{"keys": []}')
    settings(token_keys=tmp_path / "empty.json")
    assert "has an empty key set" in one("fix")


def test_groups_of_people_stand_for_somebody(
    settings: Callable[..., None], start_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = start_server(signing_key_file=tmp_path / "secrets/signing_key")
    there = server.owner().id
    server.stop()
    groups = {"clinic": there, "ops": "admin", "all": "analyst"}
    settings(token_groups=json.dumps(groups))
    assert "PRIVEST_TOKEN_GROUPS is set, and nobody's tokens are taken" in one("look")
    (tmp_path / "keys.json").write_text('{"keys": [{}]}')
    settings(token_issuer="https://id.example", token_keys=tmp_path / "keys.json")  # noqa: S106
    assert found("fix") == []
    told = "platform: PRIVEST_TOKEN_GROUPS knows 3 groups in the claim 'groups'; of administrators: 'ops'. "
    assert told in found("ok")
    settings(token_groups=json.dumps(groups | {"lab": "own_none"}))
    assert one("fix").startswith("platform: the group 'lab' stands for own_none, which is no owner here. ")


def certificate(days: int) -> tuple[bytes, bytes]:
    """A certificate of this machine's loopback address that ends in so many days, and its key, in PEM."""
    key, name = Ed25519PrivateKey.generate(), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hub")])
    end, address = datetime.now(UTC) + timedelta(days=days), x509.IPAddress(ip_address("127.0.0.1"))
    built = x509.CertificateBuilder(name, name, key.public_key(), 1, end - timedelta(400), end)
    signed = built.add_extension(x509.SubjectAlternativeName([address]), critical=False).sign(key, None)
    own = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return signed.public_bytes(Encoding.PEM), own


@pytest.mark.parametrize(
    ("days", "state", "told"),
    [(-1, "fix", "ended on"), (10, "look", "ends on"), (300, "ok", "is good until")],
)
def test_the_end_of_a_certificate_is_told(
    settings: Callable[..., None], tmp_path: Path, days: int, state: str, told: str
) -> None:
    path = tmp_path / "hub.pem"
    path.write_bytes(certificate(days)[0])
    settings(hub_ca_file=path)
    assert any(
        each.startswith("certificates: what PRIVEST_HUB_CA_FILE holds " + told) for each in found(state)
    )
    path.write_text("none")
    assert "PRIVEST_HUB_CA_FILE holds no certificate" in one("fix")


def test_the_certificate_that_the_hub_shows_is_looked_at(
    settings: Callable[..., None], tmp_path: Path
) -> None:
    shown, key = certificate(300)
    file = tmp_path / "hub.pem"
    file.write_bytes(shown + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with HTTPServer(("127.0.0.1", 0), _KeySet) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        settings(hub_url=f"https://127.0.0.1:{server.server_port}", hub_key=PASSWORD, hub_analyst="anl_1")
        assert "the server of PRIVEST_HUB_URL shows none that is good: self-signed" in one("fix")
        settings(hub_ca_file=file)
        assert any("that of the server of PRIVEST_HUB_URL is good until" in each for each in found("ok"))
        server.shutdown()


# The command


def test_the_command_prints_a_report_and_its_status_says_whether_anything_is_to_mend(
    settings: Callable[..., None],
) -> None:
    def run() -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("privest")), "doctor"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = run()
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.endswith(" 0 to mend\n")
    settings(worker_memory=1)
    done = run()
    assert (done.returncode, done.stderr) == (1, "")
    assert "fix   settings     PRIVEST_WORKER_MEMORY must be at least 268435456" in done.stdout
