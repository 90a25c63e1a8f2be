"""Changes of the interface that would break a caller, each made to the real one and each seen."""

import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest
import yaml

from testing import ROOT

SCRIPT = ROOT / "scripts" / "breaking-changes"
NOW = yaml.load((ROOT / "openapi.yaml").read_text(), yaml.CSafeLoader)

_spec = spec_from_loader("breaking_changes", SourceFileLoader("breaking_changes", str(SCRIPT)))
assert _spec
assert _spec.loader
_script = module_from_spec(_spec)
_spec.loader.exec_module(_script)
breaks: Callable[[Any, Any], list[str]] = _script.breaks


def changed(*path: str, to: Any = None, remove: str = "") -> dict[str, Any]:
    """The interface with one thing put somewhere, or taken away."""
    document = deepcopy(NOW)
    place = document
    for name in path if remove else path[:-1]:
        place = place[name]
    if not remove:
        place[path[-1]] = to
    elif isinstance(place, list):
        place.remove(remove)
    else:
        del place[remove]
    return document


SCHEMAS = ("components", "schemas")
PCA, ANSWER, ERROR = (
    (*SCHEMAS, name) for name in ("RobustPCARequest", "RobustPCAEstimate", "MeanUncertainty")
)
RANK, RADIUS = (*PCA, "properties", "rank"), (*ERROR, "properties", "radius_95")
NULLABLE = {"anyOf": [{"type": "number"}, {"type": "null"}]}
BREAKS = {
    "a path": (changed("paths", remove="/v1/me"), "GET /v1/me: is gone"),
    "a method": (changed("paths", "/v1/datasets", remove="post"), "POST /v1/datasets: is gone"),
    "a field of requests": (changed(*PCA, "properties", remove="center"), ".center: is no longer taken"),
    "a required field": (
        changed(*PCA, "required", to=["dataset", "privacy", "rank", "steps"]),
        ".steps: is now required",
    ),
    "a value of requests": (
        changed(*PCA, "properties", "loss", "enum", remove="squared"),
        "squared is no longer taken",
    ),
    "a tighter limit": (changed(*RANK, "maximum", to=3), ".rank: maximum is now 3"),
    "another type of request": (changed(*RANK, "type", to="string"), "integer is no longer taken"),
    "a field of answers": (changed(*ANSWER, "properties", remove="basis"), ".basis: is gone"),
    "a field that may be missing": (changed(*ANSWER, "required", remove="basis"), "may now be missing"),
    "another type of answers": (changed(*RADIUS, "type", to="string"), "may now be string"),
    "an answer that may be null": (changed(*RADIUS, to=NULLABLE), "may now be null"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_breaks_a_caller_is_seen(name: str) -> None:
    after, said = BREAKS[name]
    found = breaks(NOW, after)
    assert any(said in each for each in found), found
    released = deepcopy(after)
    released["info"]["version"] = "99.0.0"  # of the program: the interface stays what its paths say, /v1
    assert breaks(NOW, released) == found


@pytest.mark.parametrize("name", [name for name in BREAKS if name != "a tighter limit"])
def test_and_the_other_way_round_it_is_none_but_for_other_types(name: str) -> None:
    after, _ = BREAKS[name]
    found = breaks(after, NOW)
    allowed = {
        "another type of request": "string is no longer taken",
        "another type of answers": "may now be integer or number",
    }
    assert not [each for each in found if allowed.get(name, "-") not in each], found


def test_a_parameter_that_becomes_required_breaks_a_caller_unless_it_always_was() -> None:
    now = NOW["paths"]["/v1/estimates/robust-pca"]["post"]["parameters"]
    assert [each["name"] for each in now if each["required"]] == ["idempotency-key"]
    mistaken = deepcopy(NOW)
    for each in mistaken["paths"]["/v1/estimates/robust-pca"]["post"]["parameters"]:
        each["required"], each["schema"] = False, {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert breaks(mistaken, NOW) == []
    stricter = deepcopy(NOW)
    for each in stricter["paths"]["/v1/estimates/robust-pca"]["post"]["parameters"]:
        each["required"] = True
    assert breaks(NOW, stricter) == ["POST /v1/estimates/robust-pca: header prefer is now required"]


def test_a_limit_beyond_what_json_carries_breaks_nobody() -> None:
    unlimited = changed(*RANK, remove="maximum")
    assert breaks(unlimited, changed(*RANK, "maximum", to=2**53 - 1)) == []
    assert breaks(unlimited, changed(*RANK, "maximum", to=2**53 - 2)) != []


@pytest.mark.costly
def test_nothing_breaks_where_nothing_changed_and_the_script_says_so(tmp_path: Path) -> None:
    assert breaks(NOW, deepcopy(NOW)) == []

    def said(*files: Path) -> tuple[int, str]:
        told = subprocess.run(
            [sys.executable, SCRIPT, *files], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        return told.returncode, told.stdout

    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=x", "-c", "user.email=x@y", *arguments], check=True, cwd=tmp_path
        )

    now, old = tmp_path / "openapi.yaml", tmp_path / "old.yaml"
    now.write_text((ROOT / "openapi.yaml").read_text())
    old.write_text(
        yaml.dump(changed("paths", "/v1/gone", to=NOW["paths"]["/v1/me"]), Dumper=yaml.CSafeDumper)
    )
    assert said(now, now) == (0, "")
    assert said(old, now)[0] == 1
    assert said(old, now)[1].startswith("GET /v1/gone: is gone\n")
    assert said() == (0, "")  # no repository
    git("init", "-q")
    now.write_text(old.read_text())
    git("add", "openapi.yaml")
    git("commit", "-qm", "before")
    assert said() == (0, "")  # nothing before it
    now.write_text((ROOT / "openapi.yaml").read_text())
    assert said()[0] == 1
    git("commit", "-qam", "after")
    assert said()[0] == 1


def test_another_kind_of_dataset_breaks_nobody_and_another_shape_of_a_known_kind_does() -> None:
    kinds = NOW["components"]["schemas"]["DatasetView"]["properties"]["schema"]["oneOf"]
    before = changed(*SCHEMAS, "DatasetView", "properties", "schema", "oneOf", to=kinds[:-1])
    assert breaks(before, NOW) == []
    known = kinds[1]["$ref"].rpartition("/")[2]
    changed_kind = changed(*SCHEMAS, known, "properties", remove="dim")
    assert breaks(NOW, changed_kind) != []
