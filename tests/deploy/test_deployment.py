"""What deploys the service agrees with what it deploys: image, ports, probes, settings, user, time to end."""

import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from sqlalchemy import make_url

from privest_service.database.postgresql import verified
from privest_service.settings import Settings
from testing import ROOT
from testing.container import DATA, DOCKERFILE, PORT, SETTINGS, UID, instructions, listed, paths
from testing.server import shutdown_grace

JOB_TIMEOUT = Settings.model_fields["job_timeout"].default


def seconds(duration: str) -> int:
    """Seconds of a duration as compose writes it."""
    return sum(int(n) * {"m": 60, "s": 1}[unit] for n, unit in re.findall(r"(\d+)([ms])", duration))


COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
OURS = {name: service for name, service in COMPOSE["services"].items() if service["image"] == "privest"}


# The image


def test_the_image_runs_the_service_itself_as_a_user_without_a_name_to_look_up() -> None:
    assert listed("CMD") == ["privest", "serve", "--host", "0.0.0.0", "--port", str(PORT)]  # noqa: S104 - inside
    assert UID >= 10000
    assert not instructions("ENTRYPOINT")
    assert instructions("WORKDIR") == [DATA]


def test_its_health_is_asked_where_it_listens() -> None:
    asked = listed("HEALTHCHECK")[-1]
    address, path = re.findall(r"http://([\w.:]+)(/\w+)", asked)[0]
    assert address == f"127.0.0.1:{PORT}"
    assert path in paths()


def test_its_settings_are_settings() -> None:
    named = set(re.findall(r"PRIVEST_\w+", " ".join(instructions("ENV"))))
    assert named == {"PRIVEST_DATA_DIR"}
    assert f"PRIVEST_DATA_DIR={DATA}" in instructions("ENV")[-1]
    assert not re.search(r"KEY|SECRET|PASSWORD|TOKEN", " ".join(instructions("ENV") + instructions("ARG")))


def test_all_stages_stand_on_one_base_and_the_same_python() -> None:
    *bases, last = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(set(bases)) == 1
    assert last == "scratch", "what is stripped of the base would stay in a layer below"
    python = re.findall(r"^python:(\d+\.\d+)-", bases[0])[0]
    assert set(re.findall(r"/lib/python(\d+\.\d+)/", DOCKERFILE)) == {python}


def test_bases_are_named_by_digests_and_nothing_is_built_without() -> None:
    (base,) = set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) - {"scratch"}
    assert re.fullmatch(r"python:[\w.-]+@\$\{PYTHON_DIGEST\}", base)
    assert re.findall(r"^ARG .*$", DOCKERFILE, re.MULTILINE) == ["ARG PYTHON_DIGEST"], "it has no default"
    for service in OURS.values():
        assert re.fullmatch(r"\$\{PYTHON_DIGEST:\?.+\}", service["build"]["args"]["PYTHON_DIGEST"])
    for name, service in COMPOSE["services"].items():
        if name not in OURS:
            assert re.fullmatch(r"[\w:.-]+@\$\{\w+_DIGEST:\?.+\}", service["image"]), name


DOCKER = """#!/bin/sh
[ "$1 $2 $3" = "buildx imagetools inspect" ] && [ "$5 $6" = "--format {{.Manifest.Digest}}" ] || exit 1
grep "^$4 " "$DIGESTS" | cut -d ' ' -f 2
"""


def test_digests_are_looked_up_and_noted_all_or_none(tmp_path: Path) -> None:
    for file in ("Dockerfile", "compose.yaml", "scripts/pin-images"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/docker").write_text(DOCKER)
    (tmp_path / "bin/docker").chmod(0o755)
    known, noted = tmp_path / "digests", tmp_path / ".env"
    noted.write_text("PRIVEST_PORT=9000\nPYTHON_DIGEST=sha256:old\n")
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "DIGESTS": str(known)}

    def pinned() -> int:
        script = tmp_path / "scripts/pin-images"
        return subprocess.run([script], env=environment, capture_output=True, check=False).returncode

    python, postgres = ("python:3.13-slim-trixie sha256:" + "a" * 64, "postgres:17-trixie sha256:" + "b" * 64)
    for content in (python, postgres, f"{python}\n{postgres[:-1]}", f"{python}\n{postgres}0"):
        known.write_text(f"{content}\n")
        before = noted.read_text()
        assert pinned() != 0, content
        assert noted.read_text() == before
    known.write_text(f"{python}\n{postgres}\n")
    for _ in range(2):
        assert pinned() == 0
        assert noted.read_text().splitlines() == [
            "PRIVEST_PORT=9000",
            f"PYTHON_DIGEST=sha256:{'a' * 64}",
            f"POSTGRES_DIGEST=sha256:{'b' * 64}",
        ]


def test_the_context_of_a_build_is_what_the_build_copies() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    let_in = {line[1:] for line in lines if line.startswith("!")}
    copied = set[str]()
    for arguments in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
        copied |= set(arguments.split()[:-1])
    assert let_in == copied
    # And no file of the project is kept out of it.
    files = subprocess.run(
        ["git", "ls-files", *let_in], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    kept_out = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    assert files
    assert not [file for file in files for part in file.split("/") for out in kept_out if fnmatch(part, out)]


# Compose


def test_all_containers_are_confined() -> None:
    for service in COMPOSE["services"].values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "healthcheck" in service or service is OURS["privest"]  # which has the image's own
        assert "stop_grace_period" in service or "worker" in service["profiles"]


def test_compose_names_settings_ports_and_places_that_there_are() -> None:
    service = OURS["privest"]
    tls = {name for name in service["environment"] if name.startswith("DASK_DISTRIBUTED__COMM__")}
    assert set(service["environment"]) - tls <= SETTINGS
    assert all(tls <= set(OURS[other]["environment"]) for other in ("scheduler", "worker"))
    assert service["ports"][0].rpartition(":")[2] == str(PORT)
    assert f"data:{DATA}" in service["volumes"]
    assert f"data:{DATA}" in OURS["worker"]["volumes"]
    secrets = {service["environment"][name] for name in ("PRIVEST_SECRET_FILE", "PRIVEST_SIGNING_KEY_FILE")}
    directory = service["environment"]["PRIVEST_SECRETS_DIR"]
    assert secrets <= {f"{directory}/{name}" for name in service["secrets"]}


def test_the_workers_are_where_the_engine_looks() -> None:
    scheduler = OURS["scheduler"]["command"]
    port = scheduler[scheduler.index("--port") + 1]
    assert f"tls://scheduler:{port}" in OURS["worker"]["command"]
    assert f"PRIVEST_ENGINE=dask+tls://scheduler:{port} " in (ROOT / "compose.yaml").read_text()
    assert f"'127.0.0.1', {port})" in OURS["scheduler"]["healthcheck"]["test"][-1]
    own = next(
        part.partition("=")[2] for part in OURS["worker"]["command"] if part.startswith("--worker-port")
    )
    assert f"'127.0.0.1', {own})" in OURS["worker"]["healthcheck"]["test"][-1]
    assert "--extra dask" in DOCKERFILE


def test_the_image_can_send_traces() -> None:
    synced = [line for line in DOCKERFILE.splitlines() if "uv sync" in line]
    assert len(synced) == 2
    assert all("--extra otel" in line for line in synced)


def test_secrets_are_files_that_the_script_makes(tmp_path: Path) -> None:
    script = ROOT / "scripts/make-secrets"
    subprocess.run([script, tmp_path / "secrets"], check=True, capture_output=True)
    made = {path.name: path.read_bytes() for path in (tmp_path / "secrets").iterdir()}
    roles = made.pop("roles.sql")
    assert {f"deploy/secrets/{name}" for name in made} == {
        each["file"] for each in COMPOSE["secrets"].values()
    }
    assert set(COMPOSE["secrets"]) == set(made)
    assert (
        "./deploy/secrets/roles.sql:/docker-entrypoint-initdb.d/roles.sql:ro"
        in (COMPOSE["services"]["database"]["volumes"])
    )
    for service in COMPOSE["services"].values():
        assert set(service.get("secrets", ())) <= set(made)
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    # The service takes them, and nothing replaces them.
    probe = "from privest_service.settings import Settings as S; s = S(); s.secret, s.signer; print(s.url)"
    environment = {
        "PRIVEST_SECRETS_DIR": str(tmp_path / "secrets"),
        "PRIVEST_SECRET_FILE": str(tmp_path / "secrets/secret"),
        "PRIVEST_SIGNING_KEY_FILE": str(tmp_path / "secrets/signing_key"),
    }
    url = subprocess.run(
        [sys.executable, "-c", probe], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()
    # Each role has the password of its own URL, and the superuser another.
    passwords = {made["postgres_password"].decode()}
    for role, told in (("privest_run", url), ("privest_migrate", made["privest_migration_url"].decode())):
        found = make_url(told)
        assert (found.username, found.host, found.database) == (role, "database", "privest")
        assert f"CREATE ROLE {role} LOGIN PASSWORD '{found.password}';" in roles.decode()
        assert dict(found.query) == {"sslmode": "disable"}  # compose's own network leads nowhere else
        passwords.add(str(found.password))
    assert len(passwords) == 3
    assert COMPOSE["networks"]["database"] == {"internal": True}
    made["roles.sql"] = roles
    elsewhere = tmp_path / "elsewhere"
    subprocess.run([script, elsewhere, "postgres.example"], check=True, capture_output=True)
    for name in ("privest_database_url", "privest_migration_url"):
        found = make_url((elsewhere / name).read_text())
        assert verified(found).query["sslmode"] == "verify-full"
        assert found.host == "postgres.example"
    subprocess.run([script, tmp_path / "secrets"], check=True, capture_output=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "secrets").iterdir()} == made
    assert (
        subprocess.run(["git", "check-ignore", "-q", "deploy/secrets/x"], cwd=ROOT, check=False).returncode
        == 0
    )


def test_what_serves_has_no_way_to_make_tables_and_what_makes_them_is_ended_first() -> None:
    name = "privest_migration_url"
    assert [each for each, service in OURS.items() if name in service.get("secrets", ())] == ["migrate"]
    assert OURS["migrate"]["command"] == ["privest", "migrate"]
    assert OURS["migrate"]["restart"] == "no"
    assert OURS["privest"]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}


def test_whatever_stands_in_front_can_be_named() -> None:
    """Without this setting all callers share the proxy's address, and bad keys lock the administrator out."""
    name = "PRIVEST_TRUSTED_PROXIES"
    assert OURS["privest"]["environment"][name] == f"${{{name}:-}}"


# A site apart from its hub


def test_what_makes_a_compose_service_a_site_is_what_it_needs_to_know() -> None:
    site = yaml.safe_load((ROOT / "deploy/site/compose.yaml").read_text())
    ((name, added),) = site["services"].items()
    assert name in OURS
    assert set(added["environment"]) == {"PRIVEST_HUB_URL", "PRIVEST_HUB_ANALYST"}
    assert all(re.fullmatch(rf"\$\{{{each}:\?.+\}}", told) for each, told in added["environment"].items())
    (secret,) = added["secrets"]
    assert site["secrets"] == {secret: {"file": f"deploy/secrets/{secret}"}}
    assert f"{secret.upper()}" in SETTINGS
    assert secret not in COMPOSE["secrets"]


# The end


def test_there_is_time_for_claimed_jobs_to_end() -> None:
    margin = shutdown_grace()  # of callers who are waited for, at the worst after the last job
    assert seconds(OURS["privest"]["stop_grace_period"]) >= JOB_TIMEOUT + margin


# All of it, run


@pytest.mark.prove
def test_the_image_builds_runs_charges_and_ends() -> None:
    done = subprocess.run(
        [ROOT / "scripts/prove-image"], capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if "skipped: " in done.stdout:
        pytest.skip(done.stdout)
