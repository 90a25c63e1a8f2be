"""Sizes of what is shipped: a warning for each long module, a failure for long functions and many parameters.

The rule for modules is: one module, one subject; a warning at 800 lines.
"""

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES, FUNCTION_LINES, PARAMETERS = 800, 60, 8
MODULES = [path for part in ("core", "service") for path in sorted((ROOT / part).rglob("*.py"))]

EXCEPTIONS = {
    "core/privest/scikit_learn.py::__init__": "scikit-learn wants every option as a parameter",
    "service/privest_service/estimates/endpoints.py::create_estimate": "FastAPI hands all parts in",
    "service/privest_service/estimates/endpoints.py::list_jobs": "a parameter for each of the query's",
}


def warn_of_length(path: Path) -> None:
    """Warn if a module has more lines than usual, so that somebody checks whether it is still one subject."""
    lines = len(path.read_text().splitlines())
    if lines > LINES:
        warnings.warn(f"{path} has {lines} lines: is it still one subject?", stacklevel=2)


def too_large(path: Path) -> Iterator[str]:
    """Return the functions of a module that are too long or take too many parameters."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES or len(given) > PARAMETERS:
                yield f"{path.relative_to(ROOT).as_posix()}::{node.name}"


def test_long_modules_are_named_in_warnings() -> None:
    assert len(MODULES) > 100
    for path in MODULES:
        warn_of_length(path)


def test_a_module_of_more_than_800_lines_is_no_failure(tmp_path: Path) -> None:
    module = tmp_path / "long.py"
    module.write_text("pass\n" * 801)
    with pytest.warns(UserWarning, match=r"long.py has 801 lines: is it still one subject\?"):
        warn_of_length(module)
    module.write_text("pass\n" * 800)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_length(module)


def test_no_function_is_too_large_but_what_is_declared() -> None:
    """Exceptions that are no longer needed have to go, too."""
    assert {found for path in MODULES for found in too_large(path)} == set(EXCEPTIONS)
