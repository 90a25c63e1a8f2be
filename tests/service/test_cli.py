"""What the commands say of themselves: versions, names, and what is missing."""

import gc
import os
import re
import socket
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import metadata, version
from pathlib import Path

import pytest
import yaml

import benchmarks.peers
from benchmarks.__main__ import NAMES
from benchmarks.__main__ import main as run_benchmarks
from privest_client.cli import main as run_client
from privest_service import cli
from privest_service.cli import main
from testing import ROOT
from testing.commands import PRIVEST
from testing.commands import run as run_command


@pytest.mark.parametrize(("run", "package"), [(main, "privest"), (run_client, "privest-client")])
def test_the_version_is_told(
    run: Callable[[list[str]], int], package: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{package} {version('privest')}\n"


def test_there_is_one_version_and_the_changelog_has_it() -> None:
    """pyproject.toml is the source; the client's own names the same, as both come from one checkout."""
    named = [
        tomllib.loads((ROOT / place / "pyproject.toml").read_text())["project"]["version"]
        for place in (".", "client")
    ]
    interface = yaml.load((ROOT / "openapi.yaml").read_text(), yaml.CSafeLoader)["info"]["version"]
    assert {*named, interface} == {version("privest")}
    changes = (ROOT / "CHANGELOG.md").read_text()
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", changes, re.MULTILINE)
    assert released[0] == version("privest")


def test_every_package_carries_its_licence() -> None:
    texts = {(ROOT / place / "LICENSE").read_text() for place in (".", "client")}
    assert len(texts) == 1
    for package in ("privest", "privest-client"):
        told = metadata(package)
        assert told["License-Expression"] == "Apache-2.0"
        assert told.get_all("License-File") == ["LICENSE"]


def test_a_demo_without_what_it_needs_says_what_brings_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for missing in ("httpx", "rich"):
        with monkeypatch.context() as patched:
            for loaded in [name for name in sys.modules if name.startswith("privest_service.demo")]:
                patched.delitem(sys.modules, loaded)
            # A part that other tests loaded would be found without the whole.
            for loaded in [name for name in sys.modules if name.startswith(f"{missing}.")]:
                patched.delitem(sys.modules, loaded)
            patched.setitem(sys.modules, missing, None)
            assert main(["demo"]) == 2
        said = capsys.readouterr().err
        assert "pip install 'privest[demo]'" in said
        assert missing in said


def test_a_port_in_use_is_told_before_anything_is_begun(tmp_path: Path) -> None:
    environment = os.environ | {"PRIVEST_ADMIN_KEY": "x" * 16, "PRIVEST_DATA_DIR": str(tmp_path / "data")}
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = run_command([PRIVEST, "serve", "--port", port], environment)
    assert done.returncode == 2
    assert (
        done.stderr
        == f"Port {port} of 127.0.0.1 is in use. End what listens there, or choose another with --port.\n"
    )
    assert not (tmp_path / "data").exists()


def test_an_address_of_nobody_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVEST_ADMIN_KEY", "x" * 16)
    monkeypatch.setenv("PRIVEST_DATA_DIR", str(tmp_path / "data"))
    assert main(["serve", "--host", "192.0.2.1"]) == 2
    assert "Cannot listen on port 8000 of 192.0.2.1" in capsys.readouterr().err
    monkeypatch.delenv("PRIVEST_ADMIN_KEY")
    assert main(["serve"]) == 2
    assert capsys.readouterr().err == "PRIVEST_ADMIN_KEY is missing\n"


def test_benchmarks_are_listed_and_chosen_by_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = list[str]()
    for name in NAMES:
        monkeypatch.setattr(f"benchmarks.{name}.main", lambda name=name: run.append(name))
    with pytest.raises(SystemExit) as ended:
        run_benchmarks(["--help"])
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert ", ".join(NAMES) in said
    with pytest.raises(SystemExit) as ended:
        run_benchmarks(["planing"])
    assert ended.value.code == 2
    assert "there is no benchmark planing" in capsys.readouterr().err
    assert not run
    assert run_benchmarks(["planning", "coverage"]) == 0
    assert run == ["planning", "coverage"]
    assert run_benchmarks([]) == 0
    assert tuple(run[2:]) == NAMES


def test_garbage_is_looked_for_once_all_is_loaded() -> None:
    with cli._loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    with suppress(ValueError), cli._loading():
        raise ValueError("the port is in use")
    assert gc.isenabled()


def test_peers_find_the_uv_that_make_brings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(benchmarks.peers, "_HERE", tmp_path / "project" / "benchmarks" / "peers")
    with pytest.raises(SystemExit, match="make install"):
        benchmarks.peers.call("script.py")
    brought = tmp_path / "project" / ".uv" / "bin" / "uv"
    brought.parent.mkdir(parents=True)
    brought.write_text("#!/bin/sh\necho '{\"found\": true}'\n")
    brought.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert benchmarks.peers.call("script.py") == {"found": True}


def test_keys_of_a_first_hour_are_no_part_of_what_is_sent() -> None:
    """Git ignores these files, and the list of what a package holds leaves them out."""
    left = ("me.json", "owner.json", "keys.json", "platform.pem", "points.csv", "first.py")
    ignored = subprocess.run(
        ["git", "check-ignore", *left], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ignored.stdout.split() == list(left)


@pytest.mark.prove
def test_packages_hold_sources_alone_and_work(tmp_path: Path) -> None:
    """Built beside the leavings of a first hour, without git; then installed where there is nothing else."""
    uv = benchmarks.peers._uv()
    project = tmp_path / "project"
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, names.split("\0")):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_bytes((ROOT / name).read_bytes())
    (project / ".gitignore").unlink()
    for name in ("me.json", "owner.json", "platform.pem", "privest-data/secret"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("SECRET")
    subprocess.run([uv, "build", "--quiet"], cwd=project, check=True)
    (source,), (wheel,) = (list((project / "dist").glob(f"*.{end}")) for end in ("tar.gz", "whl"))
    with tarfile.open(source) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert tops == {
        *("core", "service", "migrations"),
        *("README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "PKG-INFO"),
    }
    with zipfile.ZipFile(wheel) as packed:
        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in packed.namelist())
        assert {name.split("/")[0].partition("-")[0] for name in packed.namelist()} == {
            "privest",
            "privest_papers",
            "privest_service",
        }
    fresh = tmp_path / "fresh"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, fresh], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", fresh / "bin" / "python"]
    subprocess.run([*install, wheel], check=True)
    without = subprocess.run([fresh / "bin" / "privest", "demo"], capture_output=True, text=True, check=False)
    assert without.returncode == 2
    assert without.stderr.endswith("pip install 'privest[demo]' brings it\n")
    subprocess.run([*install, f"{wheel}[demo]"], check=True)
    told = subprocess.run(
        [fresh / "bin" / "privest", "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "The bill" in told.stdout
