"""How a notice gets to whom it is for: a signed POST, an e-mail, a line of a file; no attempt takes long."""

import hashlib
import hmac
import json
import os
import smtplib
import socket
import ssl
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import closing, suppress
from email.message import EmailMessage
from http.client import HTTPConnection, HTTPException
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from threading import Thread, Timer
from time import time
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from privest_service.notices.schemas import NewFile, NewMail, NewStore, NewWebhook, Notice
from privest_service.notices.service import Attempt, opened, webhook_secret
from privest_service.settings import Settings

_SILENCE = 10.0
"""Seconds for which the other end may say nothing."""

_LONGEST = 20.0
"""Seconds that a webhook may take altogether: one that sends a byte now and then is cut off."""

_LONGEST_REPLIES = 2**16
"""Most bytes that a mail server may say in one session, or after its encryption began."""

_UNICAST = IPv6Network("2000::/3")
"""What IPv6 addresses of the Internet are in: of others some lead into this network, or to this machine."""

Networks = Iterable[IPv4Network | IPv6Network]


class NotSentError(Exception):
    """An attempt failed; its text says why, in words for the channel's holder."""


def ways_out(settings: Settings) -> list[str]:
    """The kinds of channels that this service can send on."""
    allowed = {"mail": settings.mail_server is not None, "file": settings.notice_dir is not None}
    return [kind for kind in ("webhook", "mail", "file", "object-store") if allowed.get(kind, True)]


Put = Callable[[str, str, str, bytes], None]
"""Writes an object: for an owner, by its connection of a name, under a key, with this content."""


def send(attempt: Attempt, settings: Settings, put: Put) -> None:
    """Deliver a notice.

    Args:
        attempt: what is delivered where.
        settings: of the ways out.
        put: the way into object stores; it raises NotSentError.

    Raises:
        NotSentError: it may not have arrived.
    """
    to = opened(attempt, settings.secret)
    if to is None:  # the service's secret is another
        raise NotSentError("This channel cannot be opened any more. Register it again.")
    try:
        if isinstance(to, NewWebhook):
            secret = webhook_secret(settings.secret, attempt.channel_id)
            _post(to, signed(attempt, secret, int(time())), attempt.body, settings.notice_networks)
        elif isinstance(to, NewMail):
            _mail(to, attempt.body, settings)
        elif isinstance(to, NewStore):
            owner = str(Notice.model_validate_json(attempt.body).owner)  # no others have stores
            # A name that nothing else has: what is there is never written over.
            key = f"privest-notices/{owner}/{attempt.id}.json"
            put(owner, to.connection, key, attempt.body.encode())
        else:
            _append(to, attempt.body, settings)
    except TimeoutError:
        raise NotSentError("It did not answer in time.") from None
    except ssl.SSLError:
        raise NotSentError("No secure connection could be made: its certificate may be wrong.") from None
    except (OSError, HTTPException, ValueError):
        raise NotSentError("It could not be reached.") from None


def signed(attempt: Attempt, secret: str, timestamp: int) -> dict[str, str]:
    """The headers of a webhook by the Standard Webhooks: id, time, and HMAC-SHA256 over both and the body."""
    key = b64decode(secret.removeprefix("whsec_"))
    content = f"{attempt.id}.{timestamp}.{attempt.body}".encode()
    mac = b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
    return {"webhook-id": attempt.id, "webhook-timestamp": str(timestamp), "webhook-signature": f"v1,{mac}"}


def _post(to: NewWebhook, headers: dict[str, str], body: str, allowed: Networks) -> None:
    """Post to an address that was looked up once and checked; no redirect is followed, no proxy asked."""
    url = urlsplit(to.url)
    host, port = url.hostname or "", url.port or {"https": 443, "http": 80}[url.scheme]
    found = _looked_up(host, port)
    _require_allowed(url.scheme, found, allowed)
    way = socket.create_connection((found[0], port), timeout=_SILENCE)
    if url.scheme == "https":
        context = ssl.create_default_context()
        way = context.wrap_socket(way, server_hostname=host, do_handshake_on_connect=False)
    watch = Timer(_LONGEST, _cut, [way])
    watch.daemon = True
    watch.start()
    with closing(way):
        try:
            if isinstance(way, ssl.SSLSocket):
                way.do_handshake()
            connection = HTTPConnection(host, port)
            connection.sock = way
            path = (url.path or "/") + (f"?{url.query}" if url.query else "")
            sent = {"Content-Type": "application/json", "User-Agent": "privest", "Connection": "close"}
            connection.request("POST", path, body.encode(), sent | headers)
            status = connection.getresponse().status
        finally:
            watch.cancel()
    if 300 <= status < 400:
        raise NotSentError(f"It answered {status}: redirects are not followed.")
    if not 200 <= status < 300:
        raise NotSentError(f"It answered {status}.")


def _looked_up(host: str, port: int) -> list[str]:
    """The addresses of a host, or TimeoutError where nobody tells them in time.

    The system's resolver takes no limit, so it is asked in a thread, which is left to it.
    """
    answer = Future[list[str]]()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answer.set_result([str(each[4][0]) for each in found])
        except (OSError, ValueError) as error:  # a name that is none is the latter
            answer.set_exception(error)

    Thread(target=ask, name="look-up", daemon=True).start()
    return answer.result(_SILENCE)


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _require_allowed(scheme: str, addresses: Iterable[str], allowed: Networks) -> None:
    """Whether all addresses of a host are public, or in networks that the operator allows.

    Without encryption only the latter may be reached.
    """
    networks = list(allowed)
    for address in map(ip_address, addresses):
        if any(address in network for network in networks):
            continue
        if scheme != "https" or not _is_public(address):
            raise NotSentError("Its address is not allowed: only https to public addresses is.")


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
        if address in IPv6Network("64:ff9b::/96"):  # what a translator sends on to an IPv4 address
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner:
            return _is_public(inner)
        if address not in _UNICAST:
            return False
    return address.is_global and not address.is_multicast


class _Replies:
    """What a mail server says, up to `_LONGEST_REPLIES` bytes; a reply may have any number of lines."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._left = file, _LONGEST_REPLIES

    def readline(self, size: int) -> bytes:
        line = self._file.readline(size)
        self._left -= len(line)
        if self._left < 0:
            raise OSError("the mail server says too much")
        return line

    def close(self) -> None:
        self._file.close()


class _Session(smtplib.SMTP):
    """A session with a mail server whose replies have an end."""

    def getreply(self) -> tuple[int, bytes]:
        """See `smtplib.SMTP`."""
        if self.file is None and self.sock is not None:
            self.file = _Replies(self.sock.makefile("rb"))
        return super().getreply()


class _EncryptedSession(_Session, smtplib.SMTP_SSL):
    """Such a session that is encrypted from the beginning."""


def _mail(to: NewMail, body: str, settings: Settings) -> None:
    """Hand an e-mail to the operator's server: the notice in words, and as it is in an attachment.

    With a name and a password the connection is encrypted, or nothing is sent.
    """
    if not settings.mail_server:
        raise NotSentError("This service sends no e-mail. Ask the operator.")
    url = urlsplit(settings.mail_server.get_secret_value())
    notice = Notice.model_validate_json(body)
    message = EmailMessage()
    message["From"], message["To"] = settings.mail_from, to.to
    message["Subject"] = f"Privest: {notice.type}"
    message["Message-ID"] = f"<{notice.id}@privest>"
    message.set_content(in_words(notice) + "\n")
    message.add_attachment(body.encode(), maintype="application", subtype="json", filename="notice.json")
    context = ssl.create_default_context()
    host, secure = url.hostname or "", url.scheme == "smtps"
    port = url.port or (465 if secure else 25)
    try:
        with closing(
            _EncryptedSession(host, port, timeout=_SILENCE, context=context)
            if secure
            else _Session(host, port, timeout=_SILENCE)
        ) as server:
            if url.username is not None:
                if not secure:
                    server.starttls(context=context)
                server.login(unquote(url.username), unquote(url.password or ""))
            server.send_message(message)
            with suppress(smtplib.SMTPException, OSError):  # it has it, whatever it says now
                server.quit()
    except smtplib.SMTPRecipientsRefused:
        raise NotSentError("The mail server refuses this address.") from None
    except smtplib.SMTPException:
        raise NotSentError("The mail server did not take it.") from None


def in_words(notice: Notice) -> str:
    """A notice as a text for people."""
    told = "\n".join(f"{name}: {json.dumps(value)}" for name, value in notice.facts.items())
    whose = f"owner {notice.owner}" if notice.owner else f"analyst {notice.analyst}"
    return f"{notice.type}, {whose}, {notice.at}\n\n{told}\n\nNotice {notice.id}"


def _append(to: NewFile, body: str, settings: Settings) -> None:
    """Add a line to a file of the owner's in the operator's directory; no link is followed at its end."""
    if settings.notice_dir is None:
        raise NotSentError("This service writes no notices into files. Ask the operator.")
    folder = Path(settings.notice_dir) / json.loads(body)["owner"]
    folder.mkdir(mode=0o700, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    with open(os.open(folder / f"{to.name}.jsonl", flags, 0o600), "ab") as file:  # noqa: PTH123
        file.write(body.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
