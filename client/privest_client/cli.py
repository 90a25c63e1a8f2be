"""The command line: `privest-client plan …` and its sisters."""

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from privest_client.client import Client
from privest_client.errors import InvalidRequest, PrivestError
from privest_client.operations import KINDS
from privest_client.reading import plain


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 1 for a refusal, 2 for a command that is none."""
    given = _parser().parse_args(arguments)
    try:
        client = Client.from_env(progress=sys.stderr.isatty())
    except PrivestError as error:
        _complain(error)
        return 2
    try:
        with client:
            _COMMANDS[given.command](client, given)
    except (PrivestError, OSError) as error:
        _complain(error)
        return 1
    return 0


def _complain(error: Exception) -> None:
    print(*map(plain, str(error).splitlines()), sep="\n", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="privest-client", description="Ask a Privest service; PRIVEST_URL and PRIVEST_KEY say which."
    )
    parser.add_argument("--version", action="version", version=f"privest-client {version('privest-client')}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("datasets", help="what may be asked about")
    budget = commands.add_parser("budget", help="what is spent and what is left")
    budget.add_argument("--owner", metavar="ID", help="by default the holder of the key")
    upload = commands.add_parser("upload", help="register a file")
    upload.add_argument("file", type=Path)
    upload.add_argument("--schema", required=True, metavar="JSON", help="what everybody may know")
    upload.add_argument("--name", help="for people")
    upload.add_argument("--rows-of", metavar="DATASET", help="id of a dataset of yours with the same rows")
    upload.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether the first line of a csv file names its columns; to be said where it holds numbers",
    )
    for name, about in (("plan", "the exact cost of a question; free"), ("estimate", "ask it, and pay")):
        ask = commands.add_parser(name, help=about)
        ask.add_argument("kind", choices=KINDS)
        ask.add_argument("dataset", nargs="+", metavar="DATASET", help="ids")
        ask.add_argument("--epsilon", type=float, required=True)
        ask.add_argument("--delta", type=float)
        ask.add_argument(
            "-o", dest="choices", action="append", default=[], metavar="NAME=VALUE", help="as rank=2"
        )
    commands.choices["estimate"].add_argument(
        "--key", help="by which it is charged once, however often it is asked"
    )
    return parser


def _datasets(client: Client, _: argparse.Namespace) -> None:
    table = Table("id", "name", "kind", "records")
    for each in client.datasets.list():
        cells = (each.id, each.name or "", each.kind, f"{each.n:,}")
        table.add_row(*(Text(plain(cell)) for cell in cells))  # in a `Text` no markup is read
    Console().print(table)


def _budget(client: Client, given: argparse.Namespace) -> None:
    print(client.budget(given.owner))


def _upload(client: Client, given: argparse.Namespace) -> None:
    schema = _json(given.schema, "--schema")
    made = client.datasets.upload(
        given.file, schema, name=given.name, header=given.header, rows_of=given.rows_of
    )
    print(f"{made.n:,} records are stored", file=sys.stderr)
    print(made.id)


def _plan(client: Client, given: argparse.Namespace) -> None:
    print(client.plan(given.kind, *_asked(given), **_choices(given)))


def _estimate(client: Client, given: argparse.Namespace) -> None:
    found = client.estimate(given.kind, *_asked(given), key=given.key, **_choices(given))
    told = found.job.model_dump_json(include={"id", "estimate", "uncertainty", "privacy"})
    print(json.dumps(json.loads(told), indent=2))  # in ASCII: a terminal shows every character and obeys none


def _asked(given: argparse.Namespace) -> tuple[Any]:
    return (given.dataset[0] if len(given.dataset) == 1 else given.dataset,)


def _choices(given: argparse.Namespace) -> dict[str, Any]:
    choices: dict[str, Any] = {"epsilon": given.epsilon, "delta": given.delta}
    for choice in given.choices:
        name, _, value = choice.partition("=")
        try:
            choices[name] = json.loads(value)
        except ValueError:
            choices[name] = value
    return choices


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidRequest(422, "invalid", f"{name} is not JSON") from None


_COMMANDS = {
    "datasets": _datasets,
    "budget": _budget,
    "upload": _upload,
    "plan": _plan,
    "estimate": _estimate,
}
