"""Every command that the README shows is run, in order, against a service that it starts itself."""

import os
import re
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from testing import ROOT
from testing.pages import PAGES_OF_CALLS
from testing.server import HANG_GUARD, free_address, until


def blocks(page: str = "README.md") -> list[str]:
    """The shell blocks of the README, or of another page."""
    return re.findall(r"^```sh\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[str]:
    """Lines of a block without comments."""
    return [line.split("  #")[0].strip() for line in block.splitlines() if line.split("  #")[0].strip()]


def test_there_are_three_blocks() -> None:
    two_commands, serve, calls = blocks()
    assert commands(two_commands) == ["make demo", "make test"]  # the second is what runs this test
    assert len(commands(serve)) == 1
    assert "frechet-mean" in calls


@pytest.mark.long
def test_demo_tells_the_whole_story() -> None:
    demo = commands(blocks()[0])[0]
    told = subprocess.run(
        demo.split(), cwd=ROOT, capture_output=True, text=True, timeout=HANG_GUARD, check=False
    )
    assert told.returncode == 0, told.stderr
    parts = ("Means of ordinary columns", "95 % interval", "Private Fréchet means", "The bill", "HTTP 409")
    places = [told.stdout.index(part) for part in parts]
    assert places == sorted(places)  # it begins with ordinary columns
    assert "budget-exceeded" in told.stdout
    number, interval = r"[\d.,]+%?", r"([\d.,]+)%? to ([\d.,]+)%?"
    lines = re.findall(
        rf"^│   (\w+) .*│ +{number} │ +{number} │ +{interval} │ +({number}) │$", told.stdout, re.M
    )
    assert [name for name, *_ in lines] == ["age", "bmi", "malignant", "area"]
    for _, low, high, true in lines:
        assert float(low.replace(",", "")) < float(high.replace(",", ""))
        assert float(true.strip("%").replace(",", "")) > 0
    assert re.search(r"│   area +│ +none │ unknown │ .* │ +none │", told.stdout)  # no bounds, no interval


@pytest.mark.costly
def test_every_call_works_as_shown(tmp_path: Path) -> None:
    _, serve, calls = blocks()
    further = [block for page in PAGES_OF_CALLS for block in blocks(page)]  # they go on in the same shell
    environment = os.environ | {"PRIVEST_DATA_DIR": str(tmp_path / "data"), "PRIVEST_WORKERS": "1"}
    address = free_address()
    with (tmp_path / "log").open("w") as log:
        service = subprocess.Popen(
            ["bash", "-c", f"exec env {commands(serve)[0]} PORT={address.rpartition(':')[2]}"],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        await_ready(f"http://{address}/readyz", tmp_path / "log")
        # Before the owner changes its key and deletes its rows.
        calls, last = calls.split("# the owner reads the bill")
        path = f'PATH="{ROOT / ".venv" / "bin"}:$PATH"'
        script = "\n".join(["set -eu", path, calls, *further, "#" + last])
        script = script.replace("127.0.0.1:8000", address)
        # A plain POSIX shell: what runs in it runs in bash and zsh. Each answer that fails ends a pipe empty.
        done = subprocess.run(
            ["sh", "-c", script],
            cwd=tmp_path,
            env=os.environ | {"TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=HANG_GUARD,
            check=False,
        )
    finally:
        os.killpg(service.pid, signal.SIGTERM)
        service.wait(timeout=HANG_GUARD)
    assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "log").read_text()
    assert '"state":"committed"' in done.stdout
    assert re.search(r" receipts?: 0 faults", done.stdout)
    assert not list(tmp_path.glob("*.json")), "keys and answers are left where the commands were called"


def test_every_call_of_the_interface_is_shown() -> None:
    """One curl of each call: path by path, with the identifiers replaced. Sites make theirs by themselves."""
    shown = re.sub(
        r"\$\w+", "{}", "".join([blocks()[2], *(block for page in PAGES_OF_CALLS for block in blocks(page))])
    )
    interface = (ROOT / "openapi.yaml").read_text()
    paths = re.findall(r"^  (/v1/(?!sites/)\S+):$", interface, re.MULTILINE)
    missing = [path for path in paths if not mentioned(re.sub(r"\{\w+\}", "{}", path), shown)]
    assert not missing


def mentioned(path: str, shown: str) -> bool:
    # Plans of all kinds work alike, and keys of owners and of analysts; one of each is shown.
    path = re.sub(r"/v1/estimates/[\w-]+/plan", "/v1/estimates/frechet-mean/plan", path)
    path = path.replace("/v1/analysts/{}/keys", "/v1/owners/{}/keys")
    return re.search(re.escape(path) + '(?=[\\s?)"])', shown) is not None


def await_ready(url: str, log: Path) -> None:
    def ready() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=HANG_GUARD):  # noqa: S310 - an address of this machine
                return True
        except OSError:  # refused or reset: not ready
            return False

    try:
        until(ready)
    except TimeoutError:
        pytest.fail(log.read_text())
