"""A release: the same wheels each time, a bill of what is inside, and an installation without a network."""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.machinery import SourceFileLoader
from importlib.metadata import distribution
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from testing import ROOT
from testing.operators_tools import CHART, DIGEST, helm

PAGE = (ROOT / "docs/offline.md").read_text()
KEY, MAKING, VERIFYING, INSTALLING = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

DOCKER = """#!/bin/sh
case $1 in
  save) echo an image > "$4" ;;
  create) echo container ;;
  export) tar --create --directory "$IMAGE" opt var ;;
esac
"""
"""A stand-in, as no Docker engine is here. `scripts/prove-image` builds, packs and lists the real image."""


@pytest.fixture(scope="module")
def script() -> Any:
    """`scripts/make-sbom`, which is loaded where a test asks for it: it takes seconds."""
    spec = spec_from_loader("make_sbom", SourceFileLoader("make_sbom", str(ROOT / "scripts/make-sbom")))
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def image(root: Path, *packages: str) -> Path:
    """The root directory of an image with these of Python's packages, and two of Debian's."""
    place = root / "opt/privest/lib/python3.13/site-packages"
    for name in packages:
        found = distribution(name)
        metadata = next(file for file in found.files or () if file.name == "METADATA").locate()
        (place / Path(str(metadata)).parent.name).mkdir(parents=True)
        shutil.copy(str(metadata), place / Path(str(metadata)).parent.name)
    status = root / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    installed = "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.41-12\n"
    removed = "Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n"
    status.write_text(f"{installed}\n{removed}")
    return root


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `scripts/make-release` makes of this commit, as the page says, with its public key beside it."""
    directory = tmp_path_factory.mktemp("release")
    (directory / "bin").mkdir()
    (directory / "bin/docker").write_text(DOCKER)
    (directory / "bin/docker").chmod(0o755)
    environment = os.environ | {
        "PATH": f"{directory / 'bin'}:{os.environ['PATH']}",
        "IMAGE": str(image(directory / "image", "privest", "numpy", "pebble")),
    }
    subprocess.run(["sh", "-euc", KEY], cwd=directory, check=True, capture_output=True)
    # The build of the image is not for here, and the script is found in the checkout.
    (make,) = (line for line in MAKING.splitlines() if line.startswith("scripts/make-release"))
    command = [each.replace("/srv", str(directory)) for each in shlex.split(make)]
    done = subprocess.run(
        [ROOT / command[0], *command[1:]],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.copy(directory / "release.pub", directory / "release")
    return directory / "release"


def components(document: Path) -> dict[str, dict[str, Any]]:
    """The components of a CycloneDX document, by name."""
    return {each["name"]: each for each in json.loads(document.read_text())["components"]}


# What is in it


@pytest.mark.costly
def test_the_sums_are_of_all_files_and_signed_and_a_changed_byte_is_found(
    release: Path, tmp_path: Path
) -> None:
    def verify(where: Path) -> int:
        return subprocess.run(
            ["sh", "-euc", VERIFYING], cwd=where, capture_output=True, check=False
        ).returncode

    assert verify(release) == 0
    sums = dict(line.split("  ")[::-1] for line in (release / "SHA256SUMS").read_text().splitlines())
    there = {f"./{path.relative_to(release)}" for path in release.rglob("*") if path.is_file()}
    assert set(sums) == there - {"./SHA256SUMS", "./SHA256SUMS.sig", "./release.pub"}
    copy = tmp_path / "copy"
    shutil.copytree(release, copy, copy_function=os.link)
    chart = next(copy.glob("*.tgz"))
    content = bytearray(chart.read_bytes())
    content[len(content) // 2] ^= 1
    chart.unlink()
    chart.write_bytes(content)
    assert verify(copy) != 0
    # Sums that fit the change are not signed.
    text = (copy / "SHA256SUMS").read_text()
    (copy / "SHA256SUMS").unlink()
    changed = hashlib.sha256(content).hexdigest()
    (copy / "SHA256SUMS").write_text(text.replace(sums[f"./{chart.name}"], changed))
    assert verify(copy) != 0


@pytest.mark.costly
def test_every_wheel_is_pinned_by_its_digest_and_one_of_the_locks(release: Path) -> None:
    house = release / "wheelhouse"
    pinned = dict(
        re.findall(
            r"^(\S+)==\S+ --hash=sha256:(\w{64})$", (house / "requirements.txt").read_text(), re.MULTILINE
        )
    )
    wheels = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in house.glob("*.whl")}
    assert sorted(wheels.values()) == sorted(pinned.values())
    locked = (ROOT / "uv.lock").read_text()
    of_ours = {path.name.partition("-")[0] for path, digest in wheels.items() if digest not in locked}
    assert of_ours == {"privest", "privest_client", "autodp"}, "autodp is published as sources alone"
    assert "`autodp` is published as sources alone" in PAGE


@pytest.mark.costly
def test_the_wheel_holds_every_file_of_the_sources(release: Path) -> None:
    """Templates, migrations and all else that it runs from, as no module that is missing would be told of."""
    (wheel,) = (release / "wheelhouse").glob("privest-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        there = {name for name in packed.namelist() if ".dist-info/" not in name}
    sources = ["core/privest", "core/privest_papers", "service/privest_service", "migrations"]
    tracked = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD", *sources],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    compiled = {"privest/libkernels.so", "privest/manifolds/liblogarithms.so"}
    packages = re.compile(r"^(core|service)/|^(?=migrations/)")
    wanted = {packages.sub(lambda m: "" if m[1] else "privest_service/", name) for name in tracked}
    assert there - compiled == wanted


@pytest.mark.costly
def test_other_bytes_the_second_time_end_it(tmp_path: Path) -> None:
    """A build that notes the moment of it, as a fault planted in a copy of the project."""
    copy = tmp_path / "copy"
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, copy], check=True)
    with (copy / "hatch_build.py").open("a") as file:
        file.write(
            "        import uuid\n        (root / 'core/privest/built').write_text(str(uuid.uuid4()))\n"
        )
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(copy)]
    subprocess.run([*git, "add", "--all"], check=True)
    subprocess.run(
        [*git, "commit", "--quiet", "--no-verify", "--message", "A build that notes its moment"], check=True
    )
    (copy / ".venv").symlink_to(Path(sys.prefix))
    (copy / ".uv").symlink_to(ROOT / ".uv")
    done = subprocess.run(
        [copy / "scripts/make-release", tmp_path / "out"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert re.search(r"Binary files \S+/privest-\S+\.whl and \S+ differ", done.stdout), (
        done.stdout + done.stderr
    )


@pytest.mark.costly
def test_the_chart_is_packed_as_helm_takes_it(release: Path) -> None:
    (chart,) = release.glob("privest-chart-*.tgz")
    command = [helm(), "template", "privest", chart, "--set", f"image.digest={DIGEST}"]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.count("kind: Deployment")
        == 1
    )
    with tarfile.open(chart) as packed:
        files = {each.name for each in packed.getmembers() if each.isfile()}
    tracked = subprocess.run(
        ["git", "ls-files", "."], cwd=CHART, capture_output=True, text=True, check=True
    ).stdout.split()
    assert files == {f"privest/{each}" for each in tracked}


# What is inside


@pytest.mark.costly
def test_the_wheels_bill_names_all_that_is_installed_with_digests_licences_and_who_needs_whom(
    release: Path,
) -> None:
    told = components(release / "privest-wheel.cdx.json")
    carried = (release / "wheelhouse/requirements.txt").read_text()
    wheels = re.findall(r"^(\S+)==(\S+)", carried, re.MULTILINE)
    installed = {canonicalize_name(name): version for name, version in wheels}
    assert {name: each["version"] for name, each in told.items()} | {
        "privest": installed["privest"]
    } == installed
    for name, each in told.items():
        assert each["licenses"], name
        assert each["purl"] == f"pkg:pypi/{name}@{each['version']}"
        assert each.get("hashes") or name == "privest-client", name
    document = json.loads((release / "privest-wheel.cdx.json").read_text())
    needs = {each["ref"]: each.get("dependsOn", []) for each in document["dependencies"]}
    direct = {
        each.partition("@")[0].removeprefix("pkg:pypi/")
        for each in needs[document["metadata"]["component"]["purl"]]
    }
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[\[>=; ]", each)[0] for each in asked["dependencies"]}
    assert names <= direct
    assert needs[told["numpy"]["purl"]] == []


@pytest.mark.costly
def test_the_images_bill_names_pythons_packages_and_debians(release: Path) -> None:
    told = components(release / "privest-image.cdx.json")
    assert set(told) == {"numpy", "pebble", "libc6", "python"}  # which writes itself Pebble
    assert told["libc6"]["purl"] == "pkg:deb/debian/libc6@2.41-12?arch=amd64"
    assert told["python"]["version"] == "3.13"


def test_a_licence_that_does_not_go_with_ours_ends_it(script: Any, tmp_path: Path) -> None:
    root = image(tmp_path, "privest", "numpy")
    planted = root / "opt/privest/lib/python3.13/site-packages/evil-1.0.dist-info"
    planted.mkdir()
    (planted / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: evil\nVersion: 1.0\nLicense-Expression: GPL-3.0-only\n"
    )
    with pytest.raises(script.UnknownLicence, match=r"evil: GPL-3\.0-only"):
        script.of_image(root)


def test_the_same_parts_give_the_same_bytes_and_others_another_number(script: Any) -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    first = script.written(script.of_lock(lock))
    assert script.written(script.of_lock(lock)) == first
    more = script.of_lock(lock)
    more.components.add(script.own("privest", "9"))
    assert json.loads(script.written(more))["serialNumber"] != json.loads(first)["serialNumber"]


# Without a network


@pytest.mark.prove
def test_the_page_leads_to_a_charged_query_without_a_network(release: Path, tmp_path: Path) -> None:
    alone = ["unshare", "--net", "--", "bash", "-euc"]
    if subprocess.run([*alone, "ip link set lo up"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespace can be made here: it takes root, and iproute2")
    subprocess.run([ROOT / "scripts/make-secrets", tmp_path / "secrets"], check=True, capture_output=True)
    for name in ("privest_database_url", "privest_migration_url"):
        (tmp_path / "secrets" / name).unlink()  # here SQLite keeps the ledger
    followed = INSTALLING.replace("/opt/privest", str(tmp_path / "privest"))
    assert followed.count("pip install ") == 1
    followed = followed.replace("pip install ", "pip install --no-compile ")  # which takes as long again
    serve = f"""
        ! curl --silent --max-time 5 https://pypi.org
        {tmp_path}/privest/bin/privest serve --port 8000 > {tmp_path}/log 2>&1 &
        service=$!
        trap 'kill $service 2> {tmp_path}/gone || :' EXIT
        until curl --silent --fail --output {tmp_path}/ready http://127.0.0.1:8000/readyz; do
          kill -0 $service; sleep 0.2
        done
        {ROOT}/scripts/first-query http://127.0.0.1:8000 {tmp_path}/secrets
        kill $service; wait $service
        {tmp_path}/privest/bin/privest verify-ledger
    """
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PRIVEST_DATA_DIR": str(tmp_path / "data"),
        "PRIVEST_WORKERS": "1",
        "PRIVEST_SECRETS_DIR": str(tmp_path / "secrets"),
        "PRIVEST_SECRET_FILE": str(tmp_path / "secrets/secret"),
        "PRIVEST_SIGNING_KEY_FILE": str(tmp_path / "secrets/signing_key"),
    }
    done = subprocess.run(
        [*alone, "ip link set lo up\n" + VERIFYING + followed + serve],
        cwd=release,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told[-4000:]
    assert " 0 to mend" in told
    assert "1 receipt: 0 faults" in told
