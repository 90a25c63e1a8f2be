"""Programs that are generated of openapi.yaml: made, checked for their types, and run against a service."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from testing import ROOT, generators
from testing.server import Server


@pytest.fixture
def backend() -> str:
    """What a program is made of says nothing of databases."""
    return "sqlite"


def _made(generator: str, document: Path, into: Path) -> list[str | Path]:
    """The command that runs a program which uses what a generator made."""
    into.mkdir()
    if generator == "openapi-python-client":
        generators.openapi_python_client(document, into)
        return [sys.executable, generators.HERE / "with_openapi_python_client.py"]
    if generator == "openapi-typescript":
        generators.openapi_typescript(document, into)
        return ["node", generators.compiled(generators.HERE / "with_openapi_fetch.ts", into)]
    generators.hey_api(document, into)
    return ["node", generators.compiled(generators.HERE / "with_hey_api.ts", into)]


@pytest.mark.few(1)
@pytest.mark.parametrize("generator", ["openapi-python-client", "openapi-typescript", "hey-api"])
def test_a_generated_program_uploads_plans_asks_and_reads_a_refusal(
    server: Server, tmp_path: Path, generator: str
) -> None:
    owner, into = server.owner(), tmp_path / "made"
    command = _made(generator, ROOT / "openapi.yaml", into)
    told = json.loads(
        generators.run(
            *command, where=into, PRIVEST_URL=server.url, PRIVEST_KEY=owner.key, PYTHONPATH=str(into)
        )
    )
    assert told["n"] == 3
    assert told["schema"] == owner.get(f"/v1/datasets/{told['dataset']}").json()["schema"]
    assert (told["epsilon"], told["state"], len(told["mean"])) == (0.5, "committed", 2)
    assert told["problem"].endswith(":not-found")
    (spent,) = (entry for entry in owner.ledger() if entry["kind"] == "debit")
    assert spent["epsilon"] == 0.5


@pytest.mark.costly
def test_a_generated_package_is_not_called_as_our_own(tmp_path: Path) -> None:
    """openapi-python-client names it after the title: installed, it must not replace `privest-client`."""
    command = ("openapi-python-client", "generate", "--path", ROOT / "openapi.yaml", "--meta", "setup")
    generators.run(*command, where=tmp_path)
    (project,) = tmp_path.iterdir()
    assert project.name == "privest-api-client"
    assert (project / "privest_api_client" / "__init__.py").exists()


def _spoil(document: Any) -> None:
    """Plant faults: a header not marked, unions that lose their members, two media of one path."""
    schemas, paths = document["components"]["schemas"], document["paths"]
    for parameter in paths["/v1/estimates/robust-pca"]["post"]["parameters"]:
        parameter["required"] = False
    schemas["PlannedWorkload"]["properties"]["questions"]["items"] = {}
    schemas["Job"] = {"$ref": "#/components/schemas/JobView"}
    uploaded = paths["/v1/datasets/upload"]["post"]["requestBody"]["content"]
    uploaded["application/json"] = {"schema": {"$ref": "#/components/schemas/NewHandle"}}


@pytest.mark.costly
def test_what_an_interface_loses_is_seen_in_the_types(tmp_path: Path) -> None:
    document = yaml.load((ROOT / "openapi.yaml").read_text(), yaml.CSafeLoader)
    _spoil(document)
    path, program = tmp_path / "spoilt.yaml", (generators.HERE / "with_hey_api.ts").read_text().splitlines()
    path.write_text(yaml.dump(document, sort_keys=False))
    with pytest.raises(AssertionError) as told:
        _made("hey-api", path, tmp_path / "made")
    found = {program[int(line) - 1].strip() for line in re.findall(r"hey_api\.ts\((\d+),", str(told.value))}
    assert found >= {
        "// @ts-expect-error a question needs its key",
        "// @ts-expect-error there is no such kind of questions",
        "// @ts-expect-error a question about a subspace needs its rank",
        "// @ts-expect-error a file is no handle",
        'const mean: FrechetMeanEstimate["point"] | undefined = job.estimate?.point;',
    }
