"""openapi.yaml: what is committed is what the code says, and what the code says is what it does."""

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from jsonschema_rs import Draft202012Validator
from schemathesis import GenerationMode

from audit import access
from audit.fuzzing import Company, attack_operation, attack_sequences
from testing import ROOT
from testing.server import Server

METHODS = ("get", "put", "post", "delete", "patch")
PROBLEM = {"$ref": "#/components/schemas/ProblemDocument"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return yaml.load((ROOT / "openapi.yaml").read_text(), yaml.CSafeLoader)


def _operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, item[method])
        for path, item in document["paths"].items()
        for method in METHODS
        if method in item
    ]


def test_every_operation_documents_its_problems(document: dict[str, Any]) -> None:
    for method, path, operation in _operations(document):
        errors = {status: answer for status, answer in operation["responses"].items() if status[0] in "45"}
        if path == "/healthz":
            continue
        assert errors, (method, path)
        for status, answer in errors.items():
            assert answer["content"] == {"application/problem+json": {"schema": PROBLEM}}, (
                method,
                path,
                status,
            )
        if path.startswith("/v1"):
            assert {"401", "422"} <= set(errors), (method, path)
            assert operation["security"], (method, path)
        assert operation.get("description") or operation.get("summary"), (method, path)


def test_every_operation_has_a_name_of_its_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in _operations(document)]
    assert len(set(names)) == len(names)


def test_every_operation_has_an_example_that_fits(document: dict[str, Any]) -> None:
    for method, path, operation in _operations(document):
        asked = [*operation.get("requestBody", {}).get("content", {}).values()]
        assert all("example" in content for content in asked), (method, path)
        parameters = operation.get("parameters", [])
        assert all("example" in each for each in parameters if each.get("required")), (method, path)
        answered = operation["responses"].get("200", {}).get("content", {}).values()
        examples = [each for each in (*parameters, *asked, *answered) if "example" in each]
        assert examples, (method, path)
        for each in examples:
            schema = {**each["schema"], "components": document["components"]}
            assert Draft202012Validator(schema).is_valid(each["example"]), (method, path, each["example"])


def test_no_schema_stands_for_one_direction_alone(document: dict[str, Any]) -> None:
    names = document["components"]["schemas"].keys()
    assert not {name for name in names if name.removesuffix("-Input").removesuffix("-Output") != name}


def test_the_web_process_stays_light() -> None:
    """Noise, calibrators and readers are imported in workers alone."""
    code = """
        import os, sys
        os.environ["PRIVEST_ADMIN_KEY"] = "x" * 16
        from privest_service.app import create_app
        from privest_service.settings import Settings
        create_app(Settings())
        heavy = "scipy.stats randomgen flint autodp dp_accounting pyarrow obstore sklearn pandas dask".split()
        print(*[name for name in heavy if name in sys.modules])
    """
    told = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True
    )
    assert told.stdout.split() == []


# The running service against its own interface


@pytest.fixture(scope="module")
def company(
    tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[str], str]
) -> Iterator[Company]:
    """A company on PostgreSQL, which is stricter about what it can store."""
    server = Server(
        tmp_path_factory.mktemp("company"), new_database("postgresql"), trusted_proxies="127.0.0.1"
    )
    try:
        yield Company(server)
    finally:
        server.stop()


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(GenerationMode.POSITIVE, id="valid", marks=pytest.mark.costly),
        pytest.param(GenerationMode.NEGATIVE, id="invalid"),
    ],
)
@pytest.mark.parametrize("operation_id", [operation.name for operation in access.operations()])
def test_whatever_is_sent_is_answered_by_the_interface(
    company: Company, operation_id: str, mode: GenerationMode
) -> None:
    """Every check of schemathesis but one passes, whoever asks, and no answer tells what is in the rows."""
    if mode is GenerationMode.POSITIVE:
        company.use(operation_id)
    attack_operation(company, operation_id, mode, 3)  # the audit's long form makes a hundred
    assert (company.broken, company.told) == ([], [])


@pytest.mark.costly
def test_whatever_is_sent_in_whatever_order_is_answered_by_the_interface(company: Company) -> None:
    attack_sequences(company, 15, 6)
    assert (company.broken, company.told) == ([], [])
