"""Every docstring stands alone, and those of core's public functions name the errors that they raise."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("core", "service", "client", "testing", "audit", "benchmarks", "tests")
FRAGMENT = re.compile(r"\s*(Of|And|By|Likewise|The same|As above|Those|Beside|Or|Whose)\b")
CORE = ROOT / "core" / "privest"
PAPERS = ROOT / "core" / "privest_papers"
ESTIMATORS = ("frechet_mean", "linear_model", "subspace")
EXCEPTIONS: list[str] = []
"""Places, as `path:line`, where such a beginning is right."""


def docstrings(code: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string that stands alone: under a module, class, function or assignment."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def fragments(code: str) -> list[tuple[int, str]]:
    return [(line, text) for line, text in docstrings(code) if FRAGMENT.match(text)]


Function = ast.FunctionDef | ast.AsyncFunctionDef


def raised(function: Function) -> set[str]:
    """Names of the errors that a function raises itself, nested functions included."""
    calls = (node.exc for node in ast.walk(function) if isinstance(node, ast.Raise))
    return {ast.unparse(call.func) for call in calls if isinstance(call, ast.Call)}


def unsaid_errors(code: str) -> Iterator[str]:
    """Public functions and methods that raise an error which their `Raises:` part does not name.

    A class says what its making raises.
    """
    tree = ast.parse(code)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    owners: list[tuple[str, ast.Module | ast.ClassDef]] = [("", tree), *((c.name, c) for c in classes)]
    for name, owner in owners:
        for function in owner.body:
            if not isinstance(function, Function) or name.startswith("_"):
                continue
            made = function.name in ("__init__", "__post_init__")
            if function.name.startswith("_") and not made:
                continue
            said = (ast.get_docstring(owner if made else function) or "").partition("Raises:")[2]
            for error in raised(function):
                if f"{error}:" not in said:
                    yield f"{name}.{function.name}: {error}".removeprefix(".")


def test_public_functions_of_core_name_the_errors_that_they_raise() -> None:
    files = [path for path in CORE.rglob("*.py") if path.parent.name not in ESTIMATORS]
    files += PAPERS.rglob("*.py")
    assert len(files) > 40
    found = [f"{path.name}: {unsaid}" for path in files for unsaid in unsaid_errors(path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    ("code", "unsaid"),
    [
        ("def f():\n    raise ValueError('no')", ["f: ValueError"]),
        ('def f():\n    """ValueError: no."""\n    raise ValueError("no")', ["f: ValueError"]),
        ('def f():\n    """F.\n\n    Raises:\n        ValueError: no.\n    """\n    raise ValueError(1)', []),
        ("def _f():\n    raise ValueError('no')", []),
        ("class A:\n    def f(self):\n        raise TypeError('no')", ["A.f: TypeError"]),
        ("class A:\n    def __post_init__(self):\n        raise OSError('no')", ["A.__post_init__: OSError"]),
        ('class A:\n    """A.\n\n    Raises:\n        OSError: no.\n    """\n'
         "    def __init__(self):\n        raise OSError('no')", []),
    ],
)  # fmt: skip
def test_an_error_that_is_not_said_is_found(code: str, unsaid: list[str]) -> None:
    assert list(unsaid_errors(code)) == unsaid


def test_no_docstring_begins_as_a_fragment() -> None:
    files = [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if ".venv" not in path.parts  # of peers, which benchmarks make
    ]
    assert len(files) > 300
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.strip().splitlines()[0]}"
        for path in files
        for line, text in fragments(path.read_text())
        if f"{path.relative_to(ROOT)}:{line}" not in EXCEPTIONS
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        '"""Of a module."""',
        'class A:\n    """Likewise."""',
        'def f():\n    """The same, once more."""',
        'async def f():\n    """\n    By itself.\n    """',
        'X = 1\n"""And of a constant."""',
        'class A:\n    x: int = 1\n    """Whose it is."""',
    ],
)
def test_a_fragment_is_found_wherever_it_stands(code: str) -> None:
    assert len(fragments(code)) == 1


@pytest.mark.parametrize(
    "text", ["Offers a key.", "Bytes of a page.", "Order of rows.", "The number of rows."]
)
def test_whole_sentences_are_no_fragments(text: str) -> None:
    assert fragments(f'"""{text}"""') == []
