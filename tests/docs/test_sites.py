"""What docs/sites.md shows is run as it stands, by a hub and two sites, each in a folder of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import numpy as np
import pytest

from privest_service.cli import main
from privest_service.demo import server as services
from testing import ROOT
from testing.commands import run
from testing.nursery import launch
from testing.pages import shell as printed
from testing.server import ADMIN_KEY, HANG_GUARD, Process, Server, books_balance, csv_of, until

BIN = Path(sys.executable).parent
PAGE = (ROOT / "docs/sites.md").read_text()
SHELL = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SERVE, WORDS, OWNER_AT_HUB, AT_SITE, SETTINGS, OFFER, ANALYST, GRANT, CONTAINERS = SHELL
(PYTHON,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def shell(folder: Path, hub: Server, site: Server | None, *blocks: str) -> str:
    """Run blocks of the page in a folder, after the words that they need; return what they print."""
    script = "\n".join([WORDS, *blocks]).replace("choose-a-long-secret", ADMIN_KEY)
    script = script.replace("http://127.0.0.1:8000", hub.url)
    return printed(script if site is None else script.replace("http://127.0.0.1:9000", site.url), folder)


@contextmanager
def served(folder: Path, **settings: Any) -> Iterator[Server]:
    folder.mkdir(exist_ok=True)
    server = Server(folder, f"sqlite:///{folder / 'privest.db'}", **settings)
    try:
        yield server
    finally:
        server.stop()


def site_of(folder: Path, hub: Server, rows: np.ndarray, stack: ExitStack) -> Server:
    """Whatever the page says of one site: at the hub, here, and at the hub again."""
    with served(folder) as before:
        shell(folder, hub, None, OWNER_AT_HUB)
        shell(folder, hub, before, AT_SITE)
    told = shell(folder, hub, None, SETTINGS, "env").splitlines()
    given = dict(line.split("=", 1) for line in told if line.startswith("PRIVEST_HUB_"))
    settings = {name.removeprefix("PRIVEST_").lower(): value for name, value in given.items()}
    assert set(settings) == {"hub_url", "hub_key", "hub_analyst"}
    site = stack.enter_context(served(folder, **settings))
    (folder / "patients.csv").write_bytes(csv_of(rows).split(b"\n", 1)[1])
    address = AT_SITE.splitlines()[0]
    shell(folder, hub, site, address, OFFER)
    hub_address = OWNER_AT_HUB.splitlines()[0]
    listed = "call $(field key < owner.json) $HUB/v1/datasets"
    until(lambda: '"at_site":"ds_' in shell(folder, hub, None, hub_address, listed))
    shell(folder, hub, None, hub_address, GRANT)
    return site


@pytest.mark.costly
def test_the_page_leads_from_nothing_to_a_joint_estimate(tmp_path: Path) -> None:
    assert "privest serve" in SERVE  # as `served` does
    assert "deploy/site" in CONTAINERS
    rng = np.random.default_rng(0)
    with served(tmp_path / "hub") as hub, ExitStack() as stack:
        shell(tmp_path, hub, None, OWNER_AT_HUB.splitlines()[0], ANALYST)
        sites = list[Server]()
        for place in range(2):
            folder = tmp_path / f"site{place}"
            folder.mkdir()
            rows = rng.standard_normal((500, 5)) * [1.0, 0.8, 0.05, 0.05, 0.05]
            sites.append(site_of(folder, hub, rows, stack))
        names = dict[str, Any]()
        with chdir(tmp_path):
            exec(compile(PYTHON.replace("http://127.0.0.1:8000", hub.url), "docs/sites.md", "exec"), names)  # noqa: S102
        assert np.array(names["job"].basis).shape == (5, 2)
        assert np.linalg.norm(np.array(names["job"].basis)[:2]) > 1.2
        for server in (hub, *sites):
            assert books_balance(server)


STORY = ("North School", "all three", "held against", "Four ledgers", "the hub")


@pytest.mark.costly
def test_the_demo_tells_the_whole_story(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, and its services are forked: below they are started as everybody starts them."""

    def start(command: Sequence[str], env: Mapping[str, str], stdout: TextIO, **_: object) -> Process:
        return launch(command, env, stdout.buffer)

    def ended(
        command: Sequence[str], env: Mapping[str, str], **_: object
    ) -> "subprocess.CompletedProcess[str]":
        return run(command, env)

    monkeypatch.setattr(services, "subprocess", SimpleNamespace(Popen=start, run=ended))
    monkeypatch.setenv("COLUMNS", "120")  # else its tables break lines
    assert main(["demo", "--sites"]) == 0
    told = capsys.readouterr().out
    assert not [part for part in STORY if part not in told]
    assert told.count("0 faults") == 4


@pytest.mark.prove
@pytest.mark.long
def test_so_does_the_command_that_the_page_names() -> None:
    told = subprocess.run(
        ["make", "demo-sites"],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=3 * HANG_GUARD,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert not [part for part in STORY if part not in told.stdout]
