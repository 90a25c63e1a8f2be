"""openapi.yaml: what is committed is what the code says, and what the code says is what it does."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from harness import Server

ROOT = Path(__file__).resolve().parents[2]
METHODS = ("get", "put", "post", "delete", "patch")
PROBLEM = {"$ref": "#/components/schemas/ProblemDocument"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "openapi.yaml").read_text())


def _operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, item[method])
        for path, item in document["paths"].items()
        for method in METHODS
        if method in item
    ]


def test_the_committed_interface_is_the_codes() -> None:
    command = [str(Path(sys.executable).with_name("privest")), "openapi"]
    told = subprocess.run(command, check=True, capture_output=True).stdout
    assert (ROOT / "openapi.yaml").read_bytes() == told


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


def test_the_web_process_stays_light() -> None:
    """Noise, calibrators and readers are imported in workers alone."""
    code = """
        import os, sys
        os.environ["PRIVEST_ADMIN_KEY"] = "x" * 16
        from privest_service.app import create_app
        from privest_service.settings import Settings
        create_app(Settings())
        heavy = "scipy.stats randomgen autodp dp_accounting pyarrow obstore sklearn pandas dask".split()
        print(*[name for name in heavy if name in sys.modules])
    """
    told = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True
    )
    assert told.stdout.split() == []


# The running service against its own interface


@pytest.fixture(scope="module")
def operations(document: dict[str, Any]) -> dict[str, Any]:
    """All operations, by their names."""
    schema = schemathesis.openapi.from_dict(document)
    found = [operation.ok() for operation in schema.get_all_operations()]
    return {operation.definition.raw["operationId"]: operation for operation in found}


def _operation_ids() -> list[str]:
    document = yaml.safe_load((ROOT / "openapi.yaml").read_text())
    return [operation["operationId"] for _, _, operation in _operations(document)]


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["valid", "invalid"])
@pytest.mark.parametrize("operation_id", _operation_ids())
@pytest.mark.parametrize("backend", ["postgresql"])  # the stricter one about what it can store
def test_whatever_is_sent_is_answered_by_the_interface(
    server: Server, operations: dict[str, Any], operation_id: str, mode: GenerationMode
) -> None:
    """No 5xx, every error a problem document, every status one that is documented."""
    if operation_id == "watch_job":
        pytest.skip("a stream")
    operation = operations[operation_id]
    if mode is GenerationMode.NEGATIVE and not (
        operation.body or operation.query or operation.path_parameters
    ):
        pytest.skip("nothing can be wrong")
    documented = set(operation.definition.raw["responses"])

    @settings(
        max_examples=10,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def whatever(case: schemathesis.Case) -> None:
        answer = case.call(base_url=server.url, headers=server.admin.headers)
        status = str(answer.status_code)
        assert answer.status_code < 500, (status, answer.text)
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == ["application/problem+json"]
            # Of another method or a path that is none: the router's own answers.
            assert status in documented | {"404", "405"}, (status, documented)
            assert answer.json()["status"] == answer.status_code

    whatever()
