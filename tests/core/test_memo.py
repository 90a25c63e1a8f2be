"""Memoization that ends with a block, and caches that outlive it."""

import ast
from collections.abc import Iterator
from contextvars import copy_context
from itertools import chain
from pathlib import Path

import pytest

import privest
import privest_papers
import privest_service
from privest import memo
from privest.memo import fresh_memo, memoized

FOR_EVER = {
    "radius_search._laws": "constants",
    "kernels.library": "a compiled library",
    "matrix_logarithm.library": "a compiled library",
    "options.declared": "annotations of classes",
    "records._pool": "threads, by their number",
    "page._version": "a digest of shipped files",
    "migrate.head": "the revision of this code",
    "tables._insert": "statements of tables",
    "confinement._landlock_version": "the kernel's",
    "confinement._libseccomp": "a library",
    "confinement._may_lend": "rights of this process",
    "declarations._inner": "models of declared classes",
    "declarations.view": "models of declared classes",
    "descriptors.public_center": "a constant of the demonstration",
    "plans.stored_plans": "readers of declared classes",
    "mechanisms.versions": "versions of libraries",
    "page._environment": "shipped templates",
}
"""Functions whose results may be kept for ever: none of their arguments is a caller's choice."""


class Doubling:
    """A memoized function that counts how often it computed."""

    def __init__(self) -> None:
        self.computed = 0

        @memoized
        def double(number: int, *, more: int = 0) -> int:
            self.computed += 1
            if number < 0:
                raise ValueError("a number below 0")
            return 2 * number + more

        self.double = double


def test_results_last_as_long_as_the_block() -> None:
    of = Doubling()
    for _ in range(2):
        with fresh_memo():
            assert [of.double(2), of.double(2), of.double(2, more=1)] == [4, 4, 5]
    assert of.computed == 4


def test_a_block_within_a_block_shares_nothing() -> None:
    of = Doubling()
    with fresh_memo():
        of.double(2)
        with fresh_memo():
            of.double(2)
        of.double(2)
    assert of.computed == 2


def test_without_a_block_nothing_is_kept() -> None:
    of = Doubling()
    assert of.double(2) == of.double(2) == 4
    with fresh_memo():
        of.double(2)
    of.double(2)
    assert of.computed == 4


def test_functions_and_errors_are_told_apart() -> None:
    one, other = Doubling(), Doubling()
    with fresh_memo():
        one.double(2)
        other.double(2)
        for _ in range(2):
            with pytest.raises(ValueError, match="below 0"):
                one.double(-1)
    assert (one.computed, other.computed) == (3, 1)


def test_a_copy_of_the_context_shares_the_memo() -> None:
    of = Doubling()
    with fresh_memo():
        of.double(2)
        copy_context().run(of.double, 2)
    assert of.computed == 1


def test_a_full_memo_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "_MOST", 2)
    of = Doubling()
    with fresh_memo():
        for number in (1, 2, 3, 3, 1):
            assert of.double(number) == 2 * number
    assert of.computed == 4


def for_ever(path: Path) -> Iterator[str]:
    """Names of the functions and methods of a file whose results `functools` keeps for ever."""
    tree = ast.parse(path.read_text())
    inside = [each.body for each in tree.body if isinstance(each, ast.ClassDef)]
    for each in chain(tree.body, *inside):
        if isinstance(each, ast.FunctionDef):
            decorators = {ast.unparse(decorator).partition("(")[0] for decorator in each.decorator_list}
            if decorators & {"cache", "lru_cache", "functools.cache", "functools.lru_cache"}:
                yield f"{path.stem}.{each.name}"


def test_what_outlives_a_plan_holds_nothing_that_a_caller_chose() -> None:
    """A new `cache` is refused here until somebody says why it is harmless; else it is to be `memoized`."""
    packages = (privest, privest_papers, privest_service)
    files = [file for package in packages for file in Path(package.__path__[0]).rglob("*.py")]
    assert {name for file in files for name in for_ever(file)} == FOR_EVER.keys()
    keyed = {file.stem for file in files if "from cachetools import" in file.read_text()}
    assert keyed == {"service"}  # by the caller
