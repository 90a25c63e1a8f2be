"""The chart, rendered by the real `helm`: Kubernetes takes it, and it agrees with image and settings."""

import json
import re
import subprocess
from typing import Any, get_args

import pytest
import yaml

from privest_service.cli import _parser  # pyright: ignore[reportPrivateUsage]
from privest_service.settings import Settings
from privest_service.workers.service import _PLANNING_PROCESSES, Work
from testing import ROOT
from testing.container import DATA, GID, PORT, SETTINGS, UID, paths
from testing.operators_tools import CHART, DIGEST, helm, rendered
from testing.server import shutdown_grace

OLDEST = "1.30"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
EVERYTHING: dict[str, Any] = {
    "image": {"repository": "registry.example:5000/privest", "digest": DIGEST, "pullSecrets": ["registry"]},
    "secrets": {"authorities": "database-ca"},
    "database": {"port": 6432, "networks": ["10.1.2.3/32"], "readingRole": "privest_read"},
    "data": {"storageClass": "nfs"},
    "engine": {"address": "dask+tls://scheduler.dask:8786", "workers": 8},
    "ingress": {"enabled": True, "path": "/privest", "trustedProxies": ["10.244.0.0/16", "fd00::/8"]},
    "oidc": {
        "issuer": "https://id.example.org",
        "keys": "https://id.example.org/keys",
        "groups": [{"group": "zoo", "is": "admin"}, {"group": 'an "odd" one', "is": "analyst"}],
    },
    "leavers": {"listing": "https://id.example.org/scim/v2", "secret": "listing", "subject": "externalId"},
    "metrics": {"podMonitor": True, "rules": True, "dashboards": True},
    "settings": {"PRIVEST_RATE_LIMIT": "1200/minute", "PRIVEST_MAX_UPLOAD_BYTES": 536870912},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "private", "operator": "Exists", "effect": "NoSchedule"}],
    "podLabels": {"team": "data"},
    "podAnnotations": {"note": "of ours"},
}
SITE: dict[str, Any] = {"site": {"hubUrl": "https://hub.example.org", "analyst": "an_1"}}
CASES = {"as it is": {}, "everything": EVERYTHING, "site": SITE, "few": {"network": {"enabled": False}}}
OF_OTHERS = {"PodMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator, which Kubernetes' own schemas know nothing of."""


def one(kind: str, **documents: Any) -> dict[str, Any]:
    """The one manifest of a kind; of ConfigMaps the settings."""
    found = [each for each in rendered(**documents) if each["kind"] == kind]
    return next(each for each in found if "grafana_dashboard" not in each["metadata"]["labels"])


def pod(**documents: Any) -> dict[str, Any]:
    """What the deployment's pods are."""
    return one("Deployment", **documents)["spec"]["template"]["spec"]


def settings(**documents: Any) -> Settings:
    """The service's settings, of the chart's and of what is in the secrets."""
    told = {
        name.removeprefix("PRIVEST_").lower(): value
        for name, value in one("ConfigMap", **documents)["data"].items()
    }
    told.pop("secrets_dir")
    for name, otherwise in (("token_algorithms", '["RS256"]'), ("token_groups", "{}")):
        told[name] = json.loads(told.get(name, otherwise))
    secret = {"admin_key": "0123456789abcdef", "hub_key": "pvo_x" if "hub_url" in told else None}
    return Settings(**told | secret)  # pyright: ignore[reportArgumentType]


# Helm and Kubernetes


@pytest.mark.parametrize("documents", CASES.values(), ids=CASES)
def test_helm_finds_nothing_to_say(documents: dict[str, Any]) -> None:
    values = yaml.safe_dump({"image": {"digest": DIGEST}} | documents)
    done = subprocess.run(
        [helm(), "lint", CHART, "--strict", "--values", "-"],
        input=values,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert re.findall(r"^\[(\w+)\] (.*)$", done.stdout, re.MULTILINE) == [
        ("INFO", "Chart.yaml: icon is recommended")
    ]


@pytest.mark.few(3)
@pytest.mark.parametrize("documents", CASES.values(), ids=CASES)
@pytest.mark.parametrize("version", [OLDEST, "latest"])
def test_kubernetes_takes_what_is_rendered(documents: dict[str, Any], version: str) -> None:
    import kubernetes_validate  # which takes longer than all tests here that do without

    made = rendered(**documents)
    known = kubernetes_validate.latest_version() if version == "latest" else version
    for each in made:
        if each["kind"] not in OF_OTHERS:
            kubernetes_validate.validate(each, known, strict=True)
    assert len({(each["kind"], each["metadata"]["name"]) for each in made}) == len(made)
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"] == f">={OLDEST}.0-0"


def test_two_releases_have_nothing_in_common() -> None:
    def names(release: str) -> set[tuple[str, str]]:
        return {(each["kind"], each["metadata"]["name"]) for each in rendered(name=release, **EVERYTHING)}

    assert not names("one") & names("two")


REFUSED = {
    "no digest": ({"image": {"digest": ""}}, "image.digest is"),
    "a tag": ({"image": {"digest": DIGEST, "repository": "privest:latest"}}, "/image/repository"),
    "what the chart sets": ({"settings": {"PRIVEST_WORKERS": 3}}, "PRIVEST_WORKERS"),
    "a secret among settings": ({"settings": {"PRIVEST_ADMIN_KEY": "0123456789abcdef"}}, "PRIVEST_ADMIN_KEY"),
    "no setting": ({"settings": {"LOG_LEVEL": "x"}}, "LOG_LEVEL"),
    "replicas of a volume for one": ({"data": {"accessMode": "ReadWriteOnce"}}, "/replicas"),
    "an issuer without keys": ({"oidc": {"issuer": "https://id.example.org"}}, "oidc.keys is"),
    "a hub without an analyst": ({"site": {"hubUrl": "https://hub.example.org"}}, "site.analyst is"),
    "a site that lets callers in": (SITE | {"ingress": {"enabled": True}}, "exclude each other"),
    "a misspelt value": ({"replica": 3}, "replica"),
    "a group of nobody": ({"oidc": {"groups": [{"group": "all", "is": "everybody"}]}}, "/oidc/groups/0/is"),
    "people listed in the clear": ({"leavers": {"listing": "http://id.example.org"}}, "/leavers/listing"),
    "an engine that is none": ({"engine": {"address": "spark://x:1"}}, "/engine/address"),
}


@pytest.mark.parametrize(("documents", "told"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_in_words(documents: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        rendered(**documents)


def test_every_value_is_known_to_the_schema() -> None:
    def known(value: dict[str, Any], schema: dict[str, Any], place: str) -> None:
        if schema.get("additionalProperties") is not False:
            return
        assert set(schema["properties"]) - {"global"} == set(value), place
        for name, each in value.items():
            if isinstance(each, dict):
                known(each, schema["properties"][name], f"{place}.{name}")

    known(VALUES, SCHEMA, "values")
    made = set(one("ConfigMap", **EVERYTHING)["data"]) | set(one("ConfigMap", **SITE)["data"])
    secret = {
        f"PRIVEST_{each}" for each in ("ADMIN_KEY", "DATABASE_URL", "MIGRATION_URL", "HUB_KEY", "MAIL_SERVER")
    }
    secret.add("PRIVEST_READING_ROLE")  # what migrates is told it, and not what serves
    kept = set(SCHEMA["properties"]["settings"]["propertyNames"]["not"]["enum"])
    assert kept == (made - set(EVERYTHING["settings"])) | secret


# Image, settings and scripts


@pytest.mark.parametrize("documents", [{}, EVERYTHING], ids=["as it is", "everything"])
def test_the_pods_agree_with_the_image(documents: dict[str, Any]) -> None:
    made = pod(**documents)
    [first], [container] = made["initContainers"], made["containers"]
    assert container["image"] == first["image"]
    assert container["image"].endswith(f"/privest@{DIGEST}" if documents else f"privest@{DIGEST}")
    assert "command" not in container
    assert "args" not in container
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["http"] == PORT
    assert made["securityContext"]["runAsNonRoot"]
    assert {made["securityContext"][name] for name in ("runAsGroup", "fsGroup")} == {GID}
    assert made["securityContext"]["runAsUser"] == UID
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == "http"
        assert container[probe]["httpGet"]["path"] in paths()
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted["data"] == DATA
    assert mounted["tmp"] == "/tmp"  # noqa: S108 - its own
    told = one("Deployment", **documents)["spec"]["template"]["metadata"]["annotations"]
    assert told["prometheus.io/port"] == str(ports["metrics"])
    assert told["prometheus.io/path"] in paths()
    assert settings(**documents).metrics_address == f"0.0.0.0:{ports['metrics']}"


def test_what_serves_has_no_way_to_make_tables() -> None:
    made = pod(**EVERYTHING)
    [first], [container] = made["initContainers"], made["containers"]
    assert first["command"] == ["privest", "migrate"]
    assert first["securityContext"] == container["securityContext"]
    volumes = {volume["name"]: volume for volume in made["volumes"]}
    held = volumes["migration"]["secret"]["secretName"]
    assert held != volumes["secrets"]["secret"]["secretName"]
    assert "migration" not in {mount["name"] for mount in container["volumeMounts"]}
    mounted = {mount["name"]: mount["mountPath"] for mount in first["volumeMounts"]}
    assert {"name": "PRIVEST_SECRETS_DIR", "value": mounted["migration"]} in first["env"]
    assert {"name": "PRIVEST_READING_ROLE", "value": "privest_read"} in first["env"]
    assert "PRIVEST_READING_ROLE" not in {each["name"] for each in pod()["initContainers"][0]["env"]}


def test_a_cluster_is_reached_with_a_certificate() -> None:
    (container,) = pod(engine={"address": "dask+tls://scheduler.dask:8786", "tlsSecret": "dask"})[
        "containers"
    ]
    told = {each["name"]: each["value"] for each in container["env"]}
    (mounted,) = (each["mountPath"] for each in container["volumeMounts"] if each["name"] == "cluster")
    files = {name: value for name, value in told.items() if "__TLS__" in name}
    assert len(files) == 3
    assert all(value.startswith(f"{mounted}/") for value in files.values())
    (plain,) = pod()["containers"]
    assert "cluster" not in {each["name"] for each in plain["volumeMounts"]}


def test_the_secrets_are_those_that_the_script_and_the_page_make() -> None:
    page = (ROOT / "docs/kubernetes.md").read_text()
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())["secrets"]
    of_cluster = {"cluster_certificate", "cluster_key"}  # for an engine elsewhere: `engine.tlsSecret`
    made, commands = set(compose) - {"postgres_password"} - of_cluster, page.replace("\\\n", " ")
    asked = {
        name: set(re.findall(r"--from-file=deploy/secrets/(\w+)", files))
        for name, files in re.findall(r"create secret generic (\S+)(.*)", commands)
    }
    serving, migrating = VALUES["secrets"]["serving"], VALUES["secrets"]["migrating"]
    assert asked[serving] == made - {"privest_migration_url"}
    assert asked[migrating] == made - {"secret", "signing_key"}
    assert f"secret {serving} --patch" in page
    told = one("ConfigMap")["data"]
    mounted = {mount["name"]: mount["mountPath"] for mount in pod()["containers"][0]["volumeMounts"]}
    assert told["PRIVEST_SECRETS_DIR"] == mounted["secrets"]
    for name in ("PRIVEST_SECRET_FILE", "PRIVEST_SIGNING_KEY_FILE"):
        directory, _, file = told[name].rpartition("/")
        assert directory == mounted["secrets"]
        assert file in asked[serving]


def test_no_secret_is_made_by_the_chart() -> None:
    """Helm keeps what it renders in the release, where more people read it than the secrets."""
    for documents in CASES.values():
        assert "Secret" not in {each["kind"] for each in rendered(**documents)}


@pytest.mark.parametrize("documents", CASES.values(), ids=CASES)
def test_its_settings_are_settings_and_the_service_takes_them(documents: dict[str, Any]) -> None:
    assert set(one("ConfigMap", **documents)["data"]) <= SETTINGS
    assert settings(**documents)


def test_what_is_told_of_platform_hub_and_proxies_arrives() -> None:
    found = settings(**EVERYTHING)
    assert (found.token_issuer, found.token_keys) == ("https://id.example.org", "https://id.example.org/keys")
    assert found.token_algorithms == ("RS256", "ES256")
    assert list(found.token_groups.items()) == [("zoo", "admin"), ('an "odd" one', "analyst")], "in order"
    assert found.token_groups_claim == Settings.model_fields["token_groups_claim"].default
    assert [str(each) for each in found.trusted_proxies] == ["10.244.0.0/16", "fd00::/8"]
    assert (found.root_path, found.rate_limit) == ("/privest", "1200/minute")
    assert (found.max_upload_bytes, found.engine) == (536870912, "dask+tls://scheduler.dask:8786")
    site = settings(**SITE)
    assert (site.hub_url, site.hub_analyst) == ("https://hub.example.org", "an_1")


def test_a_change_of_settings_starts_the_pods_anew() -> None:
    def noted(**documents: Any) -> str:
        told = one("Deployment", **documents)["spec"]["template"]["metadata"]["annotations"]
        return told["checksum/settings"]

    assert noted() == noted(replicas=3)
    assert noted() != noted(settings={"PRIVEST_RATE_LIMIT": "1/second"})


@pytest.mark.parametrize("workers", [1, 2, 16])
def test_memory_suffices_for_all_workers_at_their_worst(workers: int) -> None:
    beside = len(get_args(Work)) - 1 + _PLANNING_PROCESSES
    for place in ("deploy/chart/values.yaml", "docs/scaling.md"):
        assert re.search(rf"workers`? \+ {beside}\b", (ROOT / place).read_text(), re.IGNORECASE), place
    documents = {"engine": {"workers": workers}}
    limit = int(pod(**documents)["containers"][0]["resources"]["limits"]["memory"].removesuffix("Mi")) * 2**20
    worst = (workers + beside) * settings(**documents).worker_memory
    assert worst + 2**29 <= limit <= worst + 2**31
    given = {"resources": {"limits": {"memory": "1Gi", "cpu": "2"}}}
    assert pod(**given)["containers"][0]["resources"]["limits"] == {"memory": "1Gi", "cpu": "2"}


@pytest.mark.parametrize("timeout", [10, 600, 7200])
def test_there_is_time_for_claimed_jobs_to_end(timeout: int) -> None:
    made = pod(engine={"jobTimeout": timeout})
    before = made["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]  # the image has no shell
    assert settings(engine={"jobTimeout": timeout}).job_timeout == timeout
    assert made["terminationGracePeriodSeconds"] >= timeout + shutdown_grace() + before


# What belongs together


@pytest.mark.parametrize("documents", [{}, EVERYTHING], ids=["as it is", "everything"])
def test_all_that_selects_selects_the_pods(documents: dict[str, Any]) -> None:
    deployment = one("Deployment", **documents)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selectors = [
        deployment["spec"]["selector"]["matchLabels"],
        one("Service", **documents)["spec"]["selector"],
        one("PodDisruptionBudget", **documents)["spec"]["selector"]["matchLabels"],
        policy("privest")["podSelector"]["matchLabels"],
        deployment["spec"]["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"][
            "matchLabels"
        ],
    ]
    if documents:
        selectors.append(one("PodMonitor", **documents)["spec"]["selector"]["matchLabels"])
    for each in selectors:
        assert each == selectors[0]
        assert each.items() <= labels.items()
    assert "app.kubernetes.io/version" not in selectors[0], "an upgrade could change no selector"


def test_rows_outlive_the_release_and_all_replicas_share_them() -> None:
    claim, volumes = one("PersistentVolumeClaim"), {each["name"]: each for each in pod()["volumes"]}
    assert volumes["data"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    own = {"data": {"claim": "of-mine"}}
    volumes = {each["name"]: each for each in pod(**own)["volumes"]}
    assert volumes["data"]["persistentVolumeClaim"]["claimName"] == "of-mine"
    assert "PersistentVolumeClaim" not in {each["kind"] for each in rendered(**own)}


def policy(name: str) -> dict[str, Any]:
    """The network policy of a name, where everything is asked for."""
    (found,) = (
        each
        for each in rendered(**EVERYTHING)
        if (each["kind"], each["metadata"]["name"]) == ("NetworkPolicy", name)
    )
    return found["spec"]


def test_people_who_leave_are_looked_for_by_a_pod_that_serves_nobody() -> None:
    assert "CronJob" not in {each["kind"] for each in rendered()}
    job = one("CronJob", **EVERYTHING)["spec"]
    made, serving = job["jobTemplate"]["spec"]["template"], pod(**EVERYTHING)
    (container,) = made["spec"]["containers"]
    assert job["concurrencyPolicy"] == "Forbid"
    assert container["image"] == serving["containers"][0]["image"]
    for of, like in ((made["spec"], serving), (container, serving["containers"][0])):
        assert of["securityContext"] == like["securityContext"]
    selector = one("Service", **EVERYTHING)["spec"]["selector"]
    assert not selector.items() <= made["metadata"]["labels"].items(), "callers would be sent to it"
    # The command line takes what it is given, and reads files that are mounted.
    program, *arguments = container["command"]
    given = _parser().parse_args(arguments)
    assert (program, given.command, given.listing) == ("privest", "leavers", "https://id.example.org/scim/v2")
    assert (given.subject, given.at_most) == ("externalId", 10)
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {each["name"]: each for each in made["spec"]["volumes"]}
    told = {each["name"]: each["value"] for each in container["env"]}
    assert {name for name in told if name.startswith("PRIVEST_")} <= SETTINGS
    serving_secret = volumes[mounted[told["PRIVEST_SECRETS_DIR"]]]["secret"]["secretName"]
    assert serving_secret == VALUES["secrets"]["serving"], "the role that owns the tables is not needed"
    assert told["PRIVEST_SIGNING_KEY_FILE"] == f"{told['PRIVEST_SECRETS_DIR']}/signing_key"
    assert volumes[mounted[str(given.token_file.parent)]]["secret"]["secretName"] == "listing"
    assert given.token_file.name == "token"
    assert set(mounted.values()) == set(volumes)
    # It reaches the list and the database, and nobody reaches it.
    held = policy("privest-leavers")
    assert held["podSelector"]["matchLabels"] == made["metadata"]["labels"]
    assert (held["policyTypes"], "ingress" in held) == (["Ingress", "Egress"], False)
    assert sorted(port["port"] for rule in held["egress"] for port in rule["ports"]) == [53, 53, 443, 6432]


def let_in(**documents: Any) -> list[list[str]]:
    """The ports on which each rule lets callers in."""
    rules = one("NetworkPolicy", **documents)["spec"]["ingress"]
    return sorted(sorted(port["port"] for port in rule["ports"]) for rule in rules)


def test_callers_and_prometheus_come_in_by_doors_of_their_own_and_nobody_calls_a_site() -> None:
    assert let_in() == [["http"], ["metrics"]]
    assert let_in(**SITE) == [["metrics"]]
    assert "Ingress" not in {each["kind"] for each in rendered(**SITE)}


def test_the_pods_get_out_to_what_they_need_alone() -> None:
    out = policy("privest")["egress"]
    assert sorted(port["port"] for rule in out for port in rule["ports"]) == [53, 53, 443, 6432, 8786]
    (database,) = (rule for rule in out if rule["ports"][0]["port"] == 6432)
    assert database["to"] == [{"ipBlock": {"cidr": "10.1.2.3/32"}}]


def test_the_ingress_lets_through_what_the_service_takes() -> None:
    made, takes = one("Ingress", **EVERYTHING), Settings.model_fields["max_upload_bytes"].default
    notes = made["metadata"]["annotations"]
    most = int(notes["nginx.ingress.kubernetes.io/proxy-body-size"].removesuffix("m")) * 2**20
    assert most >= takes
    assert int(notes["nginx.ingress.kubernetes.io/proxy-read-timeout"]) > 600, "streams of ten minutes"
    (rule,) = made["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    assert path["path"] == settings(**EVERYTHING).root_path
    assert path["backend"]["service"]["name"] == one("Service", **EVERYTHING)["metadata"]["name"]


def test_alerts_and_dashboards_are_the_files() -> None:
    rules = one("PrometheusRule", **EVERYTHING)["spec"]
    assert rules == yaml.safe_load((CHART / "observability/alerts.yaml").read_text())
    (boards,) = (
        each
        for each in rendered(**EVERYTHING)
        if each["kind"] == "ConfigMap" and each["metadata"]["labels"].get("grafana_dashboard") == "1"
    )
    assert boards["data"] == {
        path.name: path.read_text() for path in (CHART / "observability").glob("*.json")
    }
    (endpoint,) = one("PodMonitor", **EVERYTHING)["spec"]["podMetricsEndpoints"]
    assert endpoint["path"] in paths()
    assert endpoint["port"] in {port["name"] for port in pod(**EVERYTHING)["containers"][0]["ports"]}


def test_chart_and_service_are_of_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.findall(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]
    assert (chart["version"], chart["appVersion"]) == (version, version)
