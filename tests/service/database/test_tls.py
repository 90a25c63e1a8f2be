"""PostgreSQL elsewhere proves who it is before it is told anything, a name or a password least of all."""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from sqlalchemy import make_url, text

from privest_service.connections import sources
from privest_service.connections.schemas import NEW_CONNECTION
from privest_service.database import Database
from privest_service.database.postgresql import verified
from privest_service.problems import DatabaseUnavailable
from privest_service.upload_errors import RefusedUploadError

NAME = "db.example"
TLS_ASKED = struct.pack("!ii", 8, 80877103)


class Pretender:
    """Takes connections as PostgreSQL does, with TLS or without, and notes what it is told."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.told = list[bytes]()
        self._context = context
        self._listens = socket.create_server(("127.0.0.1", 0))
        self.port = self._listens.getsockname()[1]
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        while True:
            try:
                connection, _ = self._listens.accept()
            except OSError:
                return
            threading.Thread(target=self._meet, args=(connection,), daemon=True).start()

    def _meet(self, connection: socket.socket) -> None:
        try:
            said = connection.recv(4000)
            while said == TLS_ASKED:
                connection.sendall(b"S" if self._context else b"N")
                if self._context:
                    connection = self._context.wrap_socket(connection, server_side=True)
                said = connection.recv(4000)
            if said:
                self.told.append(said)
        except OSError:
            pass
        finally:
            connection.close()

    def close(self) -> None:
        self._listens.close()


@pytest.fixture
def pretender() -> Iterator[Callable[[ssl.SSLContext | None], Pretender]]:
    made = list[Pretender]()

    def make(context: ssl.SSLContext | None) -> Pretender:
        made.append(Pretender(context))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[ssl.SSLContext, Path]]:
    """A server's certificate for a name, and the file to trust it by."""

    def make(name: str) -> tuple[ssl.SSLContext, Path]:
        key, nobody = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
        made = (
            x509.CertificateBuilder()
            .subject_name(nobody)
            .issuer_name(nobody)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(datetime.now(UTC) - timedelta(days=1))
            .not_valid_after(datetime.now(UTC) + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=True)
            .sign(key, SHA256())
        )
        place = tmp_path_factory.mktemp("tls")
        (place / "cert.pem").write_bytes(made.public_bytes(Encoding.PEM))
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (place / "key.pem").write_bytes(secret)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(place / "cert.pem", place / "key.pem")
        return context, place / "cert.pem"

    return make


def ask_as_service(url: str) -> None:
    database = Database(url, patience=5.0)
    try:
        with pytest.raises(DatabaseUnavailable), database.read() as session:
            session.execute(text("SELECT 1"))
    finally:
        database.close()


def ask_as_source(url: str) -> None:
    connection = NEW_CONNECTION.validate_python({"name": "x", "kind": "database", "url": url})
    with pytest.raises(RefusedUploadError):
        sources.fetch(connection, "rows", "/nonexistent", 1000, "/nonexistent")


@pytest.mark.parametrize("ask", [ask_as_service, ask_as_source])
def test_nothing_is_said_to_a_server_that_does_not_prove_who_it_is(
    ask: Callable[[str], None],
    pretender: Callable[[ssl.SSLContext | None], Pretender],
    certificates: Callable[[str], tuple[ssl.SSLContext, Path]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # no certificates of ours there
    good, trusted = certificates(NAME)
    other, trusted_too = certificates("other.example")

    def told(context: ssl.SSLContext | None, more: str = "", name: str = NAME) -> list[bytes]:
        server = pretender(context)
        at = f"{name}:{server.port}/x?hostaddr=127.0.0.1&connect_timeout=5"
        ask(f"postgresql://somebody:hunter2@{at}{more}")
        return server.told

    assert told(None) == []  # without TLS
    assert told(good) == []  # signed by nobody that is known
    assert told(other, f"&sslrootcert={trusted_too}") == []  # another's
    (said,) = told(good, f"&sslrootcert={trusted}")
    assert b"somebody" in said
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    assert len(told(good)) == 1  # what the system trusts
    # A mode that the URL names itself counts, and so does the way within this machine.
    monkeypatch.delenv("SSL_CERT_FILE")
    assert len(told(None, "&sslmode=disable")) == 1
    assert len(told(other, "&sslmode=require")) == 1
    assert len(told(None, name="localhost")) == 1


@pytest.mark.parametrize(
    ("at", "mode"),
    [
        ("db.example/x", "verify-full"),
        ("10.0.0.1:5432/x", "verify-full"),
        ("[2001:db8::1]/x", "verify-full"),
        ("localhost.example/x", "verify-full"),
        ("/x?host=db.example", "verify-full"),
        ("/x?host=localhost:5432&host=db.example:5433", "verify-full"),
        ("/x?host=127.0.0.1,db.example", "verify-full"),
        ("localhost/x?hostaddr=10.0.0.1", "verify-full"),
        ("/x?service=elsewhere", "verify-full"),
        ("db.example/x?sslmode=disable", "disable"),
        ("db.example/x?sslmode=verify-ca", "verify-ca"),
        ("/x", None),
        ("localhost/x", None),
        ("127.1.2.3:5432/x", None),
        ("[::1]:5432/x", None),
        ("/x?host=/run/postgresql", None),
        ("/x?host=@abstract", None),
        ("/x?host=localhost:5432&host=127.0.0.1:5433", None),
    ],
)
def test_which_servers_have_to(at: str, mode: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGHOSTADDR", "PGSSLROOTCERT"):
        monkeypatch.delenv(name, raising=False)
    found = verified(make_url(f"postgresql://me@{at}"))
    assert found.query.get("sslmode") == mode
    assert (mode == "verify-full") == ("sslrootcert" in found.query)


def test_the_environment_names_servers_and_certificates_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db.example")
    monkeypatch.setenv("PGSSLROOTCERT", "/some/roots.pem")
    found = verified(make_url("postgresql://me@/x"))
    assert dict(found.query) == {"sslmode": "verify-full"}
