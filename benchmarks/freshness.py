"""Which sections of the pages are older than the code that they measure, by a digest of its sources."""

import ast
import re
from functools import cache
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("benchmarks.md", "reproductions.md")

_HOUSES = {
    "privest": ROOT / "core/privest",
    "privest_service": ROOT / "service/privest_service",
    "privest_client": ROOT / "client/privest_client",
    "benchmarks": ROOT / "benchmarks",
    "testing": ROOT / "testing",
}

_STARTED = {"testing.server": "privest_service.cli"}
"""What a module starts as a program, which its imports do not tell."""

_SECTION = re.compile(r"<!-- begin ([\w-]+) -->(.*?)<!-- end \1 -->", re.DOTALL)
_MARK = re.compile(r"<!-- measures (\S+) (\w+) -->")


def mark(module: str) -> str:
    """What stands beside a section: the benchmark that wrote it, and the digest of all that it measured."""
    return f"<!-- measures {module} {digest_of(module)} -->"


def digest_of(module: str) -> str:
    """Digest of a benchmark and of all of this project that it imports, comments and docstrings left out."""
    found, left = set[str](), [module]
    while left:
        name = left.pop()
        if name not in found and _path(name) is not None:
            found.add(name)
            left += _imported(name)
    told = "".join(f"{name} {_code(name)}\n" for name in sorted(found))
    return sha256(told.encode()).hexdigest()[:16]


def older(text: str) -> tuple[list[str], list[str]]:
    """The sections of a page that are older than their code, and those of which nobody knows."""
    found, unknown = list[str](), list[str]()
    for name, body in _SECTION.findall(text):
        told = _MARK.search(body)
        if told is None or _path(told[1]) is None:
            unknown.append(name)
        elif digest_of(told[1]) != told[2]:
            found.append(name)
    return found, unknown


def main() -> None:
    """Warn of sections that are older than what they measure, which is no failure."""
    for page in PAGES:
        found, unknown = older((ROOT / "docs" / page).read_text())
        if found:
            print(f"warning: docs/{page}: older than the code that they measure: {', '.join(found)}")
        if unknown:
            print(f"docs/{page}: measured before digests of the code were kept: {', '.join(unknown)}")


def _path(name: str) -> Path | None:
    house, *rest = name.split(".")
    if house not in _HOUSES:
        return None
    at = _HOUSES[house].joinpath(*rest)
    return next((each for each in (at.with_suffix(".py"), at / "__init__.py") if each.is_file()), None)


@cache
def _tree(name: str) -> ast.Module:
    path = _path(name)
    assert path is not None
    return ast.parse(path.read_text())


@cache
def _imported(name: str) -> list[str]:
    """All that a module imports, wherever it does; of packages each part that is named, and the package."""
    found = [_STARTED[name]] if name in _STARTED else []
    for node in ast.walk(_tree(name)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


@cache
def _code(name: str) -> str:
    """Digest of a module without what says nothing to the interpreter: comments, blanks, docstrings."""
    tree = ast.parse(ast.unparse(_tree(name)))
    for node in ast.walk(tree):
        body: object = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]  # pyright: ignore
    return sha256(ast.unparse(tree).encode()).hexdigest()


def _is_text(node: object) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


if __name__ == "__main__":
    main()
