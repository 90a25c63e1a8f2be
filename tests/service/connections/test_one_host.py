"""Object stores and web servers that send whoever asks elsewhere: the service never goes there."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from privest_service.connections import sources
from privest_service.connections.schemas import NEW_CONNECTION
from privest_service.upload_errors import RefusedUploadError
from testing.hostile import IN_BUFFERS
from testing.server import until

ROWS = b"1,2\n3,4\n"

Answer = Callable[[BaseHTTPRequestHandler], None]


class Web:
    """A web server on this machine, and what it was asked."""

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.asked = asked = list[str]()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                asked.append(f"{self.command} {self.path}")
                answer(self)

            do_GET = do_HEAD = do_PUT = do_POST = _answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls:
            self.http.socket = tls.wrap_socket(self.http.socket, server_side=True)
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def web() -> Iterator[Callable[..., Web]]:
    with ExitStack() as stack:

        def make(answer: Answer, tls: ssl.SSLContext | None = None) -> Web:
            made = Web(answer, tls)
            stack.callback(made.http.server_close)
            stack.callback(made.http.shutdown)
            return made

        yield make


def gives(content: bytes) -> Answer:
    """Answers everything with this."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.send_header("Last-Modified", "Mon, 02 Jan 2023 00:00:00 GMT")
        request.send_header("ETag", '"1"')
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)

    return answer


def sends_to(place: str, *, status: int = 302, after_head: bool = False) -> Answer:
    """Answers everything with another address, or only what follows a look at the size."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        if after_head and request.command == "HEAD":
            return gives(ROWS)(request)
        request.send_response(status)
        request.send_header("Location", place)
        request.send_header("Content-Length", "0")
        return request.end_headers()

    return answer


@pytest.fixture
def fetched(tmp_path: Path) -> Callable[..., bytes]:
    """What is fetched of an object store with these options."""

    def fetch(url: str, **options: Any) -> bytes:
        target = tmp_path / "target"
        target.write_bytes(b"")
        given = {"name": "x", "kind": "object-store", "url": url, "options": options}
        connection = NEW_CONNECTION.validate_python(given)
        sources.check(connection, str(tmp_path))
        assert sources.fetch(connection, "rows.csv", str(target), 1000, str(tmp_path)) == "csv"
        return target.read_bytes()

    return fetch


S3 = {"aws_region": "us-east-1", "allow_http": True}
KEYS = {"aws_access_key_id": "key-of-tests", "aws_secret_access_key": "x"}


@pytest.mark.few(3)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("after_head", [False, True])
@pytest.mark.parametrize("store", ["http", "s3", "s3 that anybody may read"])
def test_no_redirect_leads_anywhere(
    web: Callable[..., Web], fetched: Callable[..., bytes], status: int, after_head: bool, store: str
) -> None:
    inside = web(gives(ROWS))
    door = web(sends_to(f"{inside.url}/latest/rows.csv", status=status, after_head=after_head))
    url, options = door.url, {"allow_http": True}
    if store != "http":
        url, options = "s3://bucket", {"aws_endpoint": door.url, **S3}
        options |= KEYS if store == "s3" else {"aws_skip_signature": True}
    with pytest.raises(RefusedUploadError) as refused:
        fetched(url, **options)
    assert refused.value.faults[0].rule == "could not be read: the object store did not give this object"
    assert door.asked
    assert inside.asked == []


def test_what_gives_no_redirect_is_read(web: Callable[..., Web], fetched: Callable[..., bytes]) -> None:
    open_to_all = web(gives(ROWS))
    assert fetched(f"{open_to_all.url}/deep", allow_http=True) == ROWS
    assert {each.split()[1] for each in open_to_all.asked} == {"/deep/rows.csv"}
    assert fetched("s3://bucket/deep", aws_endpoint=open_to_all.url, **S3, **KEYS) == ROWS


def test_an_answer_without_end_is_broken_off(web: Callable[..., Web], fetched: Callable[..., bytes]) -> None:
    """The client reads an error whole before anybody can measure it."""
    sent = list[int]()

    def endless(request: BaseHTTPRequestHandler) -> None:
        if request.command == "HEAD":
            return gives(ROWS)(request)
        request.send_response(404)
        request.send_header("Connection", "close")
        request.end_headers()
        count = 0
        with suppress(OSError):
            while count < 2**32:
                request.wfile.write(b" " * 2**16)
                count += 2**16
        sent.append(count)
        request.close_connection = True
        return None

    store = web(endless)
    with pytest.raises(RefusedUploadError):
        fetched(store.url, allow_http=True)
    until(lambda: len(sent) == sum(each.startswith("GET") for each in store.asked))
    assert sent
    assert max(sent) < IN_BUFFERS


def test_a_server_that_ends_no_connection_is_read(
    web: Callable[..., Web], fetched: Callable[..., bytes]
) -> None:
    def stays(request: BaseHTTPRequestHandler) -> None:
        gives(ROWS)(request)
        request.close_connection = False

    assert fetched(web(stays).url, allow_http=True) == ROWS


def test_a_redirect_to_the_same_host_stays_there(
    web: Callable[..., Web], fetched: Callable[..., bytes]
) -> None:
    def moved(request: BaseHTTPRequestHandler) -> None:
        (gives(ROWS) if request.path == "/new.csv" else sends_to("/new.csv"))(request)

    assert fetched(web(moved).url, allow_http=True) == ROWS


def test_credentials_come_from_elsewhere_before_the_store_is_asked(
    web: Callable[..., Web], fetched: Callable[..., bytes], tmp_path: Path
) -> None:
    given = {
        "AccessKeyId": "x",
        "SecretAccessKey": "y",
        "Token": "z",
        "Expiration": (datetime.now(UTC) + timedelta(hours=1)).isoformat(),
    }
    gives_keys, store = web(gives(json.dumps(given).encode())), web(gives(ROWS))
    place = {"aws_container_credentials_full_uri": f"{gives_keys.url}/keys"}
    token = tmp_path / "token"
    token.write_text("t")
    place["aws_container_authorization_token_file"] = str(token)
    assert fetched("s3://bucket", aws_endpoint=store.url, **S3, **place) == ROWS
    assert gives_keys.asked


@contextmanager
def proxy() -> Iterator[tuple[str, list[str]]]:
    """A plain proxy that asks for its password, and what it was asked for."""
    asked = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            if self.headers.get("Proxy-Authorization") != "Basic bWU6cEBzcw==":  # me:p@ss
                return self.send_error(407)
            asked.append(self.path)
            url = urlsplit(self.path)
            behind = HTTPConnection(url.netloc)
            behind.request(self.command, url.path, headers={"Connection": "close"})
            found = behind.getresponse()
            self.send_response(found.status)
            for name, value in found.getheaders():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(found.read())
            return behind.close()

        do_GET = do_HEAD = _pass_on  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://me:p%40ss@127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("by", ["option", "environment"])
def test_the_way_goes_on_through_a_proxy_that_is_named(
    web: Callable[..., Web], fetched: Callable[..., bytes], by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, inside = web(gives(ROWS)), web(gives(ROWS))
    door = web(sends_to(f"{inside.url}/rows.csv"))
    with proxy() as (address, asked):
        options: dict[str, Any] = {"allow_http": True}
        if by == "option":
            options["proxy_url"] = address
        else:
            monkeypatch.setenv("http_proxy", address.removeprefix("http://"))
        assert fetched(store.url, **options) == ROWS
        assert asked[0] == f"{store.url}/rows.csv"
        count = len(asked)
        with pytest.raises(RefusedUploadError):
            fetched(door.url, **options)
        assert inside.asked == []
        if by == "option":
            assert len(asked) > count
            assert fetched(store.url, **options, proxy_excludes="127.0.0.1") == ROWS
            assert not [each for each in asked[count:] if each.startswith(store.url)]


@pytest.mark.parametrize("url", ["https://127.0.0.1:1", "socks5://127.0.0.1:1", "ftp://127.0.0.1:1"])
def test_a_proxy_of_another_kind_is_refused(fetched: Callable[..., bytes], url: str) -> None:
    with pytest.raises(RefusedUploadError) as refused:
        fetched("https://127.0.0.1:9", proxy_url=url)
    assert refused.value.faults[0].rule == "must have a proxy that looks like http://host:port"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, str]:
    """This machine's own, and what trusts it."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=True)
        .sign(key, SHA256())
        .public_bytes(Encoding.PEM)
    )
    place = tmp_path_factory.mktemp("tls") / "both.pem"
    place.write_bytes(made + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place)
    return context, made.decode()


@pytest.mark.costly
@pytest.mark.parametrize("inside_has_tls", [False, True])
def test_no_redirect_leads_anywhere_under_tls(
    web: Callable[..., Web],
    fetched: Callable[..., bytes],
    certificate: tuple[ssl.SSLContext, str],
    inside_has_tls: bool,
) -> None:
    context, trusted = certificate
    store = web(gives(ROWS), context)
    options = {"root_certificate": trusted, "allow_http": True}
    assert fetched(store.url, **options) == ROWS
    inside = web(gives(ROWS), context if inside_has_tls else None)
    door = web(sends_to(f"{inside.url}/rows.csv", after_head=True), context)
    with pytest.raises(RefusedUploadError):
        fetched(door.url, **options)
    assert door.asked
    assert inside.asked == []
