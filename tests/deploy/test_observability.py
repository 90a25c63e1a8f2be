"""Alerts and dashboards ask for what the service tells, under the names and labels that it tells it by."""

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from privest_service import problems
from testing import ROOT
from testing.container import paths
from testing.operators_tools import CHART, of_debian
from testing.server import PLAIN, Server, free_address, problem, until

FILES = CHART / "observability"
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FILES.glob("*.json"))}
RULES = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
ALERTS = {rule["alert"]: rule for group in RULES for rule in group["rules"]}
CASES = yaml.safe_load((ROOT / "tests/deploy/alerts_test.yaml").read_text())["tests"]

OF_PROMETHEUS = {"instance", "job"}
"""Labels that Prometheus adds to each series that it reads."""

MAY_BE = {
    "status": {f"{first}xx" for first in "2345"},
    "reason": {problem.slug for problem in vars(problems).values() if hasattr(problem, "slug")},
    "state": {"committed", "failed", "voided"},
    "outcome": {"whole", "faulty"},
    "job": {"privest"},
}
"""Values of labels that a metric may tell, whether or not it has yet; routes are the service's paths."""


def questions() -> Iterator[tuple[str, str]]:
    """Every expression of a rule or a panel, and where it stands."""
    for name, rule in ALERTS.items():
        yield name, rule["expr"]
    for name, board in BOARDS.items():
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield f"{name}: {panel['title']}", target["expr"].replace("$__rate_interval", "5m")


@pytest.fixture
def backend() -> str:
    """What is told says nothing of databases."""
    return "sqlite"


@pytest.fixture
def server(start_server: Callable[..., Server]) -> Server:
    """A service in which nothing went wrong: others' tests have runs that fail."""
    return start_server()


@pytest.fixture
def told(server: Server) -> dict[str, set[str]]:
    """The labels of each metric of a service that charged and refused a question, and verified a ledger."""
    owner = server.owner()
    rows = owner.dataset()
    assert owner.estimate(rows).json()["state"] == "committed"
    problem(owner.estimate(rows, epsilon=50.0), 409, "budget-exceeded")
    with httpx.Client(base_url=f"{server.url}/dashboard", verify=PLAIN, follow_redirects=True) as desk:
        page = desk.post("/sign-in", data={"key": owner.key}).text
        token = re.findall(r'name="token" value="([^"]+)"', page)[0]
        assert desk.post("/ledger/verify", data={"token": token}).status_code == 200
    found: dict[str, set[str]] = defaultdict(set)
    for family in text_string_to_metric_families(server.admin.get("/metrics").text):
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
    return found | {"up": set()}


def selectors(expression: str) -> list[promql_parser.VectorSelector]:
    """All selectors of an expression."""
    found = list[promql_parser.VectorSelector]()

    def look(part: Any) -> None:
        if isinstance(part, promql_parser.VectorSelector):
            found.append(part)
        if isinstance(part, promql_parser.MatrixSelector):
            found.append(part.vector_selector)

    promql_parser.walk(promql_parser.parse(expression), look)
    return list({str(each): each for each in found}.values())


def kept_labels(expression: str) -> set[str]:
    """All labels by which an expression groups or joins."""
    groups = re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression)
    return {name.strip() for group in groups for name in group.split(",")}


def test_all_that_is_asked_for_is_told(told: dict[str, set[str]]) -> None:
    asked = set[str]()
    for place, expression in questions():
        found = selectors(expression)
        assert found, place
        labels = OF_PROMETHEUS.union(*(told.get(each.name or "", set()) for each in found))
        assert kept_labels(expression) <= labels, place
        for each in found:
            assert each.name in told, place
            asked.add(each.name)
            for matcher in each.matchers.matchers:
                assert matcher.name in told[each.name] | OF_PROMETHEUS, (place, matcher.name)
                for value in matcher.value.split("|"):
                    known = paths() | {"unknown"} if matcher.name == "route" else MAY_BE[matcher.name]
                    assert value in known, (place, value)
    # And nothing is told that nobody looks at.
    unseen = {name for name in told if name.removesuffix("_bucket") not in asked and name not in asked}
    assert {name for name in unseen if not name.endswith(("_sum", "_count"))} == set()


def test_a_fault_in_a_name_would_be_seen(told: dict[str, set[str]]) -> None:
    for planted in (
        'sum(privest_job_total{state="failed"})',
        'rate(privest_jobs_total{status="failed"}[5m])',
    ):
        (found,) = selectors(planted)
        assert found.name not in told or {each.name for each in found.matchers.matchers} - told[found.name]


# Prometheus itself


def promtool(*arguments: object, where: Path) -> str:
    """What Prometheus' own tool says of files; skips where there is none."""
    program = of_debian("promtool")
    if program is None:
        pytest.skip("there is no promtool: make prometheus")
    done = subprocess.run(
        [program, *map(str, arguments)], cwd=where, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_takes_the_rules_and_each_alert_says_what_its_case_says(tmp_path: Path) -> None:
    for path in (FILES / "alerts.yaml", ROOT / "tests/deploy/alerts_test.yaml"):
        shutil.copy(path, tmp_path)
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", "alerts.yaml", where=tmp_path)
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yaml", where=tmp_path)


def test_every_alert_has_a_case_in_which_it_speaks_and_one_in_which_it_does_not() -> None:
    speaks, silent = set[str](), set[str]()
    for case in CASES:
        for each in case["alert_rule_test"]:
            (speaks if each["exp_alerts"] else silent).add(each["alertname"])
    assert speaks == set(ALERTS)
    assert silent >= {name for name in ALERTS if name not in ("PrivestDatabaseSilent", "PrivestSlow")}
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in ("critical", "warning"), name
        assert {"summary", "description"} <= set(rule["annotations"]), name
        assert f"| `{name}` |" in (ROOT / "docs/observability.md").read_text(), name


@pytest.mark.costly
def test_prometheus_reads_a_service_and_every_panel_shows_something(
    server: Server, told: dict[str, set[str]], tmp_path: Path
) -> None:
    program, address = of_debian("prometheus"), free_address()
    if program is None:
        pytest.skip("there is no Prometheus: make prometheus")
    (tmp_path / "key").write_text(server.admin.key)
    scraped = {
        "job_name": "privest",
        "scrape_interval": "1s",
        "authorization": {"credentials_file": str(tmp_path / "key")},
        "static_configs": [{"targets": [server.url.removeprefix("http://")]}],
    }
    (tmp_path / "prometheus.yml").write_text(
        yaml.safe_dump({"scrape_configs": [scraped], "rule_files": [str(FILES / "alerts.yaml")]})
    )
    command = [
        program,
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            with httpx.Client(base_url=f"http://{address}/api/v1", verify=PLAIN) as http:

                def asked(expression: str) -> list[Any]:
                    answer = http.get("/query", params={"query": expression}).json()
                    assert answer["status"] == "success", (expression, answer)
                    return answer["data"]["result"]

                def scrapes() -> bool:
                    assert process.poll() is None, (tmp_path / "log").read_text()[-2000:]
                    try:
                        ready = http.get(f"http://{address}/-/ready").status_code == 200
                    except httpx.TransportError:
                        return False
                    return ready and bool(asked("count_over_time(privest_build_info[1h]) > 2"))

                until(scrapes)
                for place, expression in questions():
                    if place in ALERTS:
                        assert asked(expression) == [], f"{place}, though all is well"
                    else:
                        assert until(lambda expression=expression: asked(expression)), place
                (group,) = http.get("/rules").json()["data"]["groups"]
                assert {rule["name"] for rule in group["rules"]} == set(ALERTS)
                assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}
        finally:
            process.terminate()


# Grafana


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_is_laid_out_and_asks_the_chosen_prometheus(name: str) -> None:
    board = BOARDS[name]
    assert board["uid"] == f"privest-{name}"
    assert [each["name"] for each in board["templating"]["list"] if each["type"] == "datasource"] == [
        "datasource"
    ]
    taken = set[tuple[int, int]]()
    for panel in board["panels"]:
        assert panel["title"]
        assert panel["description"].endswith(".")
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        for each in (panel, *panel["targets"]):
            assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)


def test_the_dashboards_have_names_of_their_own() -> None:
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS) == 2
    assert len({board["title"] for board in BOARDS.values()}) == len(BOARDS)
