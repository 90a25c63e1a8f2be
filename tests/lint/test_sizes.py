"""No module and no function of what is shipped is longer, or asks for more, than one reading holds."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES, FUNCTION_LINES, PARAMETERS = 800, 60, 8

EXCEPTIONS = {
    "core/privest/scikit_learn.py::__init__": "scikit-learn wants every option as a parameter",
    "service/privest_service/estimates/endpoints.py::estimate": "FastAPI hands each part of the service in",
    "service/privest_service/estimates/job_endpoints.py::list_jobs": "a parameter for each of the query's",
}


def too_large(path: Path) -> Iterator[str]:
    """What of a module is beyond the limits: itself, or functions by their names."""
    name, text = path.relative_to(ROOT).as_posix(), path.read_text()
    if len(text.splitlines()) > LINES:
        yield name
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES or len(given) > PARAMETERS:
                yield f"{name}::{node.name}"


def test_nothing_is_too_large_but_what_is_declared() -> None:
    """Exceptions that are none any more have to go, too."""
    modules = [path for part in ("core", "service") for path in sorted((ROOT / part).rglob("*.py"))]
    assert len(modules) > 100
    assert {found for path in modules for found in too_large(path)} == set(EXCEPTIONS)
