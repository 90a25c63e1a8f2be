"""The command line: `privest serve`, `migrate`, `doctor`, `backup`, `restore`, `verify-ledger` and others."""

import argparse
import errno
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from privest_service.printable import escaped

if TYPE_CHECKING:
    from fastapi import FastAPI

    from privest_service.settings import Settings

T = TypeVar("T")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    # The threads are ours, over chunks of rows; BLAS reads this when numpy is first imported.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.command in ("serve", "migrate", "doctor", "backup", "restore", "leavers"):
        os.umask(0o077)  # the database, too, and copies of it are for nobody else on this machine
    try:
        run = {
            "serve": lambda: _serve(given.host, given.port),
            "migrate": lambda: _migrate(given.back_to),
            "doctor": _doctor,
            "backup": lambda: _backup(given.directory),
            "restore": lambda: _restore(given.directory, given.key),
            "leavers": lambda: _leavers(
                given.listing, given.subject, given.token_file, None if given.dry_run else given.at_most
            ),
            "demo": lambda: _demo(given.sites),
            "openapi": _openapi,
            "verify-ledger": lambda: _verify(given.export, given.key, given.heads, given.receipt),
        }
        return run[given.command]()
    except ValidationError as error:
        from privest_service.validation import rule_of  # noqa: PLC0415

        for fault in error.errors(include_input=False, include_url=False):
            name = "_".join(map(str, fault["loc"])).upper()
            print(f"PRIVEST_{name} {rule_of(fault)}", file=sys.stderr)
        return 2
    except (ValueError, OSError) as error:
        print(*map(escaped, str(error).splitlines()), sep="\n", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = argparse.ArgumentParser(
        prog="privest", description="Private statistical estimation, with a ledger."
    )
    parser.add_argument("--version", action="version", version=f"privest {version('privest')}")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="migrate the database, then answer requests")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8000)
    tables = commands.add_parser("migrate", help="bring the database to the present schema")
    tables.add_argument(
        "--back-to", metavar="RELEASE", help="or to that of a former release, with the service stopped"
    )
    commands.add_parser("doctor", help="look at all that the service needs, and say what to do")
    save = commands.add_parser("backup", help="copy ledger and rows, while the service runs")
    save.add_argument("directory", type=Path, help="new or empty")
    load = commands.add_parser("restore", help="make a service of a backup, where there is none")
    load.add_argument("directory", type=Path)
    leave = commands.add_parser("leavers", help="revoke keys and grants of people who are listed no more")
    leave.add_argument("listing", help="csv of all people, or address of a SCIM service, …/scim/v2")
    leave.add_argument(
        "--subject", default="userName", metavar="NAME", help="attribute that is `sub` in tokens"
    )
    leave.add_argument("--token-file", type=Path, metavar="FILE", help="token that the SCIM service asks for")
    leave.add_argument(
        "--at-most", type=int, default=10, metavar="N", help="people who may have left at a time"
    )
    leave.add_argument("--dry-run", action="store_true", help="say who has left, and change nothing")
    demo = commands.add_parser("demo", help="show the main job on real data")
    demo.add_argument("--sites", action="store_true", help="with rows that stay at three sites of a hub")
    commands.add_parser("openapi", help="print openapi.yaml")
    check = commands.add_parser("verify-ledger", help="check a ledger: the service's own, or an export")
    check.add_argument("--export", type=Path, metavar="FILE", help="JSON lines that an owner exported")
    for each in (check, load):
        each.add_argument(
            "--key",
            action="append",
            default=[],
            metavar="BASE64[=END]",
            help="public key to trust, noted earlier; of a retired one with its end, =2026-01-31T12:00Z",
        )
    check.add_argument(
        "--heads",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="signed heads, kept earlier: as fetched, as notices, or a report in HTML",
    )
    check.add_argument(
        "--receipt", type=Path, action="append", default=[], metavar="FILE", help="that an analyst holds"
    )
    return parser


def _serve(host: str, port: int) -> int:
    # While it starts, or waits for another's migration; uvicorn hands the signal back when it has ended. Else
    # the first process of a container would ignore it, and anywhere else a proper end would look like a kill.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with _loading():
        import structlog  # noqa: PLC0415 - each command imports what it needs
        import uvicorn  # noqa: PLC0415

        from privest_service.estimates.engine import Engine  # noqa: PLC0415
        from privest_service.proxy_middleware import LONGEST_HEAD, seen_from_outside  # noqa: PLC0415
        from privest_service.slow_clients import PacedProtocol  # noqa: PLC0415

        # Threads that compute hand over ten times as soon as they would: everybody waits for the event loop.
        sys.setswitchinterval(0.0005)
        settings = _settings()
        listening = _bound(host, port)
        app = _application(settings)

    log = structlog.get_logger()

    class Server(uvicorn.Server):
        """Claims no further job from the moment that it is told to end, while callers still wait."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                log.info("listening", at=[":".join(map(str, each.getsockname()[:2])) for each in listening])

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if parts := getattr(app.state, "parts", None):
                parts[Engine].drain()
            super().handle_exit(sig, frame)

    log.info("starting", host=host, port=port)
    Server(
        uvicorn.Config(
            seen_from_outside(app, settings.root_path, settings.trusted_proxies),
            http=partial(PacedProtocol, settings.patience),  # pyright: ignore[reportArgumentType]
            ws="none",
            h11_max_incomplete_event_size=LONGEST_HEAD,
            proxy_headers=False,
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=30,
            # Longer than clients and ingresses keep one (httpx 5 s, nginx 60 s): the side that sends next
            # must be the one that ends it. Else a request may meet a connection that is just being closed.
            timeout_keep_alive=75,
        )
    ).run(listening)
    log.info("ended")
    return 0


@contextmanager
def _loading() -> Iterator[None]:
    """Look for no garbage, a fifth of all work here, and never in what was loaded, as it stays."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _application(settings: "Settings") -> "FastAPI":
    """The application on an up-to-date database, with logs, metrics and traces as they are set."""
    from privest_service.app import create_app  # noqa: PLC0415
    from privest_service.telemetry import logs, metrics, traces  # noqa: PLC0415

    _ = settings.secret, settings.signer  # made now or refused in words, not at the first upload
    _bring_up_to_date(settings)
    for name in [name for name in os.environ if name.startswith("PRIVEST_")]:
        del os.environ[name]  # which no process that is started from here needs to see
    logs.configure()  # no sooner: until here whoever starts the service is told in full what is wrong
    traces.configure()
    if settings.metrics_address:
        metrics.serve(settings.metrics_address)
    return create_app(settings)


def _bring_up_to_date(settings: "Settings") -> None:
    """Migrate the database, unless there is nothing to do: the role that serves need not be able to."""
    from privest_service.database import Database  # noqa: PLC0415
    from privest_service.database.migrate import is_current, migrate  # noqa: PLC0415

    database = Database(settings.url)
    if not is_current(database):
        migrate(database, reader=settings.reading_role)
    database.close()


def _bound(host: str, port: int) -> list[socket.socket]:
    """Sockets on every address of a host, which do not listen yet: until then nobody is kept waiting.

    Raises:
        ValueError: the port is in use, or there is no such address.
    """
    bound = list[socket.socket]()
    try:
        for family, kind, protocol, _, address in dict.fromkeys(
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        ):
            opened = socket.socket(family, kind, protocol)
            bound.append(opened)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            opened.bind(address)
    except OSError as error:
        for opened in bound:
            opened.close()
        if error.errno == errno.EADDRINUSE:
            raise ValueError(
                f"Port {port} of {host} is in use. End what listens there, or choose another with --port."
            ) from None
        raise ValueError(f"Cannot listen on port {port} of {host}: {error.strerror or error}") from None
    return bound


def _migrate(release: str | None) -> int:
    from privest_service.database import Database  # noqa: PLC0415
    from privest_service.database.migrate import migrate  # noqa: PLC0415

    settings = _settings()
    if release is not None:
        from privest_service.rollback import go_back  # noqa: PLC0415

        waited = go_back(settings, release)
        print(f"The tables are those of {release}. {_count(waited, 'waiting job')} given back, uncharged.")
        return 0
    database = Database(settings.migration_url or settings.url)
    migrate(database, settings.running_role, settings.reading_role)
    database.close()
    return 0


def _doctor() -> int:
    from privest_service.doctor import examine, report  # noqa: PLC0415

    found = examine(os.environ)
    print(*map(escaped, report(found).splitlines()), sep="\n")
    return int(any(each.state == "fix" for each in found))


def _backup(directory: Path) -> int:
    from privest_service.backup import backup  # noqa: PLC0415

    datasets = backup(_settings(), directory)
    print(f"The ledger and the rows of {_count(datasets, 'dataset')} are in {directory}.")
    print("The key files are not in it. Keep a copy of them elsewhere.")
    return 0


def _restore(directory: Path, keys: list[str]) -> int:
    from privest_service.backup import restore  # noqa: PLC0415

    faults = restore(_settings(), directory, keys)
    for fault in faults:
        print(escaped(fault))
    print(
        "Nothing was restored, because this ledger does not verify. Try another backup."
        if faults
        else "Restored. Every budget is charged in full and frozen. Every key is revoked. "
        "docs/ledger.md says what to do next."
    )
    return 1 if faults else 0


def _leavers(listing: str, subject: str, token_file: Path | None, at_most: int | None) -> int:
    """Follow a list of people, unless too many have left; without a number, only compare."""
    from privest_service.database import Database  # noqa: PLC0415
    from privest_service.leavers import service  # noqa: PLC0415
    from privest_service.leavers.listing import read  # noqa: PLC0415

    settings = _settings()
    listed = read(listing, subject, token_file and token_file.read_text().strip())
    database = Database(settings.url, signer=settings.signer)
    found = service.compare(database, listed)
    for words, people in (("left", found.left), ("returned", found.returned)):
        for person in people:
            print(escaped(f"{words}: {person}"))
    told = f"{len(found.left)} of {_count(found.known, 'known person', 'known people')} left"
    if at_most is not None and len(found.left) > at_most:
        raise ValueError(f"{told}, more than --at-most {at_most}. Nothing was changed. Is the list whole?")
    if at_most is not None:
        service.follow(database, found)
    database.close()
    print(f"{told}: {_count(found.keys, 'key')} and {_count(found.grants, 'grant')} revoked")
    return 0


def _demo(with_sites: bool) -> int:
    try:
        from privest_service.demo import sites, story  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise ValueError(
            f"The demo needs {missing.name}, which is not installed: pip install 'privest[demo]'"
        ) from None
    return (sites if with_sites else story).main()


def _openapi() -> int:
    from privest_service.openapi import document  # noqa: PLC0415

    sys.stdout.write(document())
    return 0


def _verify(export: Path | None, keys: list[str], kept: list[Path], shown: list[Path]) -> int:
    from privest_service.exports.export import lines  # noqa: PLC0415
    from privest_service.exports.lines import kept_heads, read  # noqa: PLC0415
    from privest_service.exports.verify import verify  # noqa: PLC0415
    from privest_service.ledger.receipts import Receipt  # noqa: PLC0415

    published = [heads for path in kept for heads in _read(path, kept_heads, "signed heads")]
    receipts = [_read(path, Receipt.model_validate_json, "a receipt") for path in shown]
    if export is not None:
        if not keys:
            raise ValueError(
                "An export is verified with a public key that you noted earlier. Give it with --key."
            )
        with export.open() as file:
            report = verify(read(file), keys, published, receipts)
    else:
        from privest_service.database import Database  # noqa: PLC0415
        from privest_service.database.migrate import require_current  # noqa: PLC0415

        settings = _settings()
        database = Database(settings.url, signer=settings.signer)
        require_current(database)
        with database.read(snapshot=True) as session:
            report = verify(lines(session), [settings.signer.public_key, *keys], published, receipts)
        database.close()
    for fault in report.faults:
        print(escaped(fault))
    for each in report.unsealed:
        print(escaped(f"no act tells {each}"))
    print(
        f"{_count(report.accounts, 'account')}, {_count(report.entries, 'entry', 'entries')}, "
        f"{_count(report.acts, 'act')}, {_count(report.receipts, 'receipt')}: "
        f"{_count(len(report.faults), 'fault')}"
    )
    return 1 if report.faults else 0


def _count(number: int, one: str, more: str = "") -> str:
    """A number and its noun, in the singular or the plural."""
    return f"{number} {one if number == 1 else more or one + 's'}"


def _read(path: Path, read: Callable[[str], T], what: str) -> T:
    """A document from a file."""
    try:
        return read(path.read_text())
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} does not hold {what}. Name the file as it was downloaded.") from None


def _settings() -> "Settings":
    from privest_service.settings import Settings  # noqa: PLC0415

    return Settings()  # pyright: ignore[reportCallIssue] - from the environment
