"""Names that reach a terminal: shown as they are, or with escapes, and never obeyed."""

from collections.abc import Callable
from io import BytesIO, StringIO

import pytest
from rich.console import Console

from privest_client import Client, showing
from privest_client.cli import main
from privest_client.data import Upload
from privest_client.reading import plain
from privest_service.database import Database
from privest_service.datasets.models import Dataset
from testing.server import Caller, Server, spd

SPD3 = {"kind": "points", "manifold": {"name": "spd", "dim": 3}, "radius": 1.0}
MARKUP = ("[/x]", "[link=https://example.org]here[/link]", "[bold]", "a\\[b")
STORED = "old\x9b31m\u202ename\u200b"
"""A name as it could be given before names were printable alone."""


@pytest.fixture
def command(
    server: Server, owner: Caller, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Run a command as in a wide terminal with colours; returns its status and all that it printed."""
    for name, value in (
        ("PRIVEST_URL", server.url),
        ("PRIVEST_KEY", owner.key),
        ("FORCE_COLOR", "1"),
        ("COLUMNS", "300"),
    ):
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> tuple[int, str]:
        status = main(arguments)
        return status, "".join(capsys.readouterr())

    return run


def _renamed(server: Server, dataset: str, name: str) -> None:
    database = Database(server.database_url)
    database.run(lambda session: setattr(session.get_one(Dataset, dataset), "name", name))
    database.close()


def test_names_of_datasets_are_listed_as_they_are(
    server: Server, client: Client, command: Callable[..., tuple[int, str]]
) -> None:
    for n, name in enumerate(MARKUP, 9):
        client.datasets.upload(spd(n), SPD3, name=name)
    old = client.datasets.upload(spd(20), SPD3, name="old")
    _renamed(server, old.id, STORED)
    status, said = command("datasets")
    shown = client.datasets.get(old.id)
    _renamed(server, old.id, "old")  # the verifier sees the other name
    assert status == 0
    for name in (*MARKUP, "old\\u009b31m\\u202ename\\u200b"):
        assert name in said
    assert not [each for each in ("\x9b", "\u202e", "\u200b", "\x1b]8") if each in said]
    assert "old\\u009b31m\\u202ename\\u200b" in repr(shown)
    assert STORED not in shown._repr_html_()


def test_what_a_refusal_says_is_not_obeyed(command: Callable[..., tuple[int, str]]) -> None:
    status, said = command("budget", "--owner", "own_\x9b31m\u202e")
    assert status == 1
    assert not [each for each in ("\x9b", "\u202e") if each in said]


def test_a_bar_shows_the_name_of_a_file_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    written = StringIO()
    terminal = Console(file=written, force_terminal=True, width=200)
    monkeypatch.setattr(showing, "Console", lambda **_: terminal)
    file = Upload("[/x]\u202e.csv", BytesIO(b"1"), 1)
    with showing.progress_of_upload(file, True) as sent:
        sent(1)
    with showing.progress_of_job("[/x]", True) as told:
        told("claimed")
    assert "[/x]\\u202e.csv" in written.getvalue()
    assert "[/x]: running" in written.getvalue()


def test_a_text_is_plain() -> None:
    assert plain("Bäume 木 10\u00a0000") == "Bäume 木 10\u00a0000"
    assert plain("a\nb\x1b[1m\u2028\ufeff") == "a\\u000ab\\u001b[1m\\u2028\\ufeff"
