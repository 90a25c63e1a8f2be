"""Every docstring stands alone: none begins as a fragment of its neighbour."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("core", "service", "client", "testing", "audit", "benchmarks", "tests")
FRAGMENT = re.compile(r"\s*(Of|And|By|Likewise|The same|As above|Those|Beside|Or|Whose)\b")
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


def test_no_docstring_begins_as_a_fragment() -> None:
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
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
