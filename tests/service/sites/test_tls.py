"""A site over TLS: who vouches for the hub, what the site shows of itself, and proxies between the two."""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from privest_service.sites.link import Hub, UnreachableError
from privest_service.sites.schemas import SiteQuestions
from testing.wire import Wire

KEY = "pvo_that-only-the-hub-may-read"
ASKED = "/v1/sites/questions"
NONE = {"questions": [], "mark": ""}


@dataclass
class Authority:
    """Vouches for others by certificates, which it keeps in a folder."""

    folder: Path
    name: str
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self.file = self._written(self.name, self.key, x509.BasicConstraints(ca=True, path_length=None))

    def certificate(self, name: str, address: str = "127.0.0.1") -> Path:
        """A file of somebody's certificate, for an address, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        file = self._written(name, key, x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]))
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        file.write_bytes(file.read_bytes() + secret)
        return file

    def _written(self, name: str, key: ec.EllipticCurvePrivateKey, says: x509.ExtensionType) -> Path:
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(says, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
            )
            .sign(self.key, SHA256())
        )
        file = self.folder / f"{name}.pem"
        file.write_bytes(made.public_bytes(Encoding.PEM))
        return file


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


class TlsServer(HTTPServer):
    """Answers as a hub without questions, to callers who show a certificate of its authority."""

    def __init__(self, certificate: Path, authority: Path) -> None:
        self.callers = list[tuple[str, str | None]]()
        seen = self.callers

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                assert isinstance(self.connection, ssl.SSLSocket)
                shown = self.connection.getpeercert() or {}
                names = {name: value for ((name, value),) in shown["subject"]}  # pyright: ignore
                seen.append((names["commonName"], self.headers["authorization"]))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(NONE).encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its parameter's name
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_cert_chain(certificate)
        self.url = f"https://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        plain, address = super().get_request()
        return self._context.wrap_socket(plain, server_side=True), address

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


@pytest.fixture
def hub(authority: Authority) -> Iterator[TlsServer]:
    server = TlsServer(authority.certificate("hub"), authority.file)
    yield server
    server.stop()


def asked(to: Hub) -> object:
    link = to.link()
    try:
        return link.asked(SiteQuestions, "GET", ASKED).model_dump()
    finally:
        link.close()


def test_a_hub_is_believed_by_the_pinned_authority_and_sees_the_sites_certificate(
    hub: TlsServer, authority: Authority
) -> None:
    own = authority.certificate("city-hospital")
    assert asked(Hub(hub.url, KEY, str(authority.file), str(own))) == NONE
    assert hub.callers == [("city-hospital", f"Bearer {KEY}")]


def test_a_hub_for_whom_nobody_vouches_is_told_nothing(
    hub: TlsServer, authority: Authority, tmp_path: Path
) -> None:
    own = authority.certificate("site")
    (tmp_path / "elsewhere").mkdir()
    other = Authority(tmp_path / "elsewhere", "authority")  # of the same name, with another key
    for authorities in (None, str(other.file)):
        with pytest.raises(UnreachableError):
            asked(Hub(hub.url, KEY, authorities, str(own)))
    assert hub.callers == []


def test_a_certificate_for_another_address_is_none_of_the_hub(authority: Authority) -> None:
    elsewhere = TlsServer(authority.certificate("hub", "192.0.2.1"), authority.file)
    with pytest.raises(UnreachableError):
        asked(Hub(elsewhere.url, KEY, str(authority.file), str(authority.certificate("site"))))
    assert elsewhere.callers == []
    elsewhere.stop()


def test_a_site_without_a_certificate_is_not_let_in_where_one_is_asked_for(
    hub: TlsServer, authority: Authority
) -> None:
    with pytest.raises(UnreachableError):
        asked(Hub(hub.url, KEY, str(authority.file)))
    assert hub.callers == []


class Proxy:
    """An HTTP proxy, which leads through what it cannot read, and notes where to."""

    def __init__(self) -> None:
        self.led_to, self.wires = list[str](), list[Wire]()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                caller = self._listening.accept()[0]
                head = bytearray()
                while not head.endswith(b"\r\n\r\n"):
                    head += caller.recv(1)
                method, there, _ = head.split(b"\r\n")[0].decode().split()
                self.led_to.append(f"{method} {there}")
                caller.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                host, port = there.split(":")
                self.wires.append(Wire((host, int(port))))
                self.wires[-1].carry(caller)

    def stop(self) -> None:
        self._listening.close()
        for wire in self.wires:
            wire.cut()


def test_a_proxy_leads_to_the_hub_and_reads_nothing(
    hub: TlsServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy()
    monkeypatch.setenv("https_proxy", proxy.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    own = authority.certificate("site")
    to = Hub.through_proxies(hub.url, KEY, str(authority.file), str(own))
    monkeypatch.undo()  # a worker has no such environment: it is told
    assert asked(Hub(**json.loads(to.as_json()))) == NONE
    assert proxy.led_to == [f"CONNECT 127.0.0.1:{hub.server_port}"]
    (wire,) = proxy.wires
    assert len(wire.all) > 1000
    assert KEY.encode() not in wire.all
    assert ASKED.encode() not in wire.all
    proxy.stop()
