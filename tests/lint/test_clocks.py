"""No test asserts how long something takes: such a test fails on a busy machine, and says nothing there."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import httpx
import pytest

from testing import ROOT
from testing.server import HANG_GUARD, PLAIN

FILES = sorted(path for folder in ("tests", "testing", "audit") for path in (ROOT / folder).rglob("*.py"))

Kind = Literal["clock", "moment", "seconds"]
"""A function that reads a clock; what it returns; and the time between two such moments."""

CLOCKS = {f"{name}{unit}" for name in ("monotonic", "perf_counter", "time") for unit in ("", "_ns")}
PASSED_ON = {"abs", "float", "int", "max", "min", "round", "sum"}
WAITS = {"exception", "get", "join", "result", "wait", "until"}
SHORTEST_GUARD = 120


class Times:
    """Finds what follows from a clock in one function, with the functions inside it.

    Args:
        function: its syntax tree, or that of a module.
    """

    def __init__(self, function: ast.AST) -> None:
        self._names = dict[str, Kind]()
        self._function = function
        before = -1
        while len(self._names) > before:  # names of names
            before = len(self._names)
            for node in ast.walk(function):
                self._assign(node)

    def faults(self) -> Iterator[ast.Assert]:
        """Yield the assertions that something takes less than a fixed time, or ends before a moment."""
        for node in ast.walk(self._function):
            if isinstance(node, ast.Assert) and any(map(self._bounds, ast.walk(node.test))):
                yield node

    def _bounds(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Compare):
            return False
        sides = [node.left, *node.comparators]
        return any(
            self._is_bound(*((one, other) if isinstance(op, ast.Lt | ast.LtE) else (other, one)))
            for one, op, other in zip(sides, node.ops, sides[1:], strict=False)
            if isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
        )

    def _is_bound(self, small: ast.expr, large: ast.expr) -> bool:
        """Whether a time must be less than something other than a time that was measured too."""
        kind = self._kind(small)
        return kind == "moment" or (kind == "seconds" and self._kind(large) != "seconds")

    def _assign(self, node: ast.AST) -> None:
        pairs = list[tuple[ast.expr, ast.expr | None]]()
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            pairs = [(node.target, node.value)]
        for target, value in pairs:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                parts = list(zip(target.elts, value.elts, strict=False))
            else:
                parts = [(target, value)]
            for name, part in parts:
                if isinstance(name, ast.Name) and part is not None and (kind := self._kind(part)):
                    self._names.setdefault(name.id, kind)

    def _kind(self, node: ast.expr) -> Kind | None:  # noqa: PLR0911 - a case each
        match node:
            case ast.Attribute(value=ast.Name(id="time"), attr=name) | ast.Name(id=name) if name in CLOCKS:
                return "clock"
            case ast.Attribute(attr="elapsed"):
                return "seconds"
            case ast.Name(id=name):
                return self._names.get(name)
            case ast.Call(func=ast.Name(id=name), args=args) if name in PASSED_ON:
                return self._first(*args)
            case ast.Call(func=ast.Attribute(value=value, attr="total_seconds")):
                return self._kind(value)
            case ast.Call(func=function):
                return "moment" if self._kind(function) == "clock" else None
            case ast.BinOp(left=left, op=op, right=right):
                kinds = self._kind(left), self._kind(right)
                between = isinstance(op, ast.Sub) and kinds[1] == "moment"
                return "seconds" if between else self._first(left, right)
            case ast.UnaryOp(operand=operand):
                return self._kind(operand)
            case _:
                return None

    def _first(self, *nodes: ast.expr) -> Kind | None:
        return next((kind for node in nodes if (kind := self._kind(node))), None)


def outermost(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the functions that are in no other function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        else:
            yield from outermost(node)


def bounds_on_time(source: str) -> list[int]:
    """Return the lines of assertions on a clock."""
    functions = filter(names_a_clock, outermost(ast.parse(source)))
    return sorted({found.lineno for function in functions for found in Times(function).faults()})


def names_a_clock(function: ast.AST) -> bool:
    """Whether anything in it can follow from a clock."""
    names = {getattr(node, "attr", getattr(node, "id", None)) for node in ast.walk(function)}
    return not names.isdisjoint({*CLOCKS, "elapsed"})


def short_guards(source: str) -> list[int]:
    """Return the lines that wait for a fixed time that a busy machine may exceed.

    A second at most is a wait for what must not happen; none is a look.
    """
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        for value in (
            *(keyword.value for keyword in node.keywords if keyword.arg == "timeout"),
            *(node.args[-1:] if getattr(node.func, "attr", getattr(node.func, "id", "")) in WAITS else ()),
        )
        if isinstance(value, ast.Constant)
        and isinstance(value.value, int | float)
        and 1 < value.value < SHORTEST_GUARD
    ]


def test_what_only_keeps_tests_from_hanging_is_long() -> None:
    assert HANG_GUARD >= SHORTEST_GUARD
    with httpx.Client(verify=PLAIN) as client:
        assert client.timeout == httpx.Timeout(HANG_GUARD)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_assertion_depends_on_a_clock(path: Path) -> None:
    source = path.read_text()
    assert bounds_on_time(source) == []
    assert short_guards(source) == []


BEGUN = "begun = time.monotonic()\n    work()\n    "


@pytest.mark.parametrize(
    "body",
    [
        f"{BEGUN}assert time.monotonic() - begun < 2",
        f"{BEGUN}took = time.monotonic() - begun\n    assert took <= 2, 'slow'",
        f"{BEGUN}took = time.monotonic() - begun\n    assert 0 < took < 2",
        f"{BEGUN}took = time.monotonic() - begun\n    assert 2 > took",
        f"{BEGUN}took = 1e3 * (time.monotonic() - begun) / 7\n    assert done and took < LIMIT",
        f"{BEGUN}assert not time.monotonic() - begun < 2 or late",
        f"{BEGUN}assert max(time.monotonic() - begun, 0.0) < 2",
        "begun, more = time.perf_counter(), 1\n    assert time.perf_counter() - begun < 2",
        "begun = time.perf_counter_ns()\n    assert time.perf_counter_ns() - begun < 2e9",
        "real = time.monotonic\n    begun = real()\n    assert real() - begun < 0.8",
        "begun = monotonic()\n    assert monotonic() - begun < 2",
        "ends = time.time() + 30\n    assert time.time() < ends",
        "assert time.monotonic() < deadline",
        "def inner():\n        begun = time.time()\n        assert time.time() - begun < 2",
        "assert answer.elapsed.total_seconds() < 2, name",
        "slow = get().elapsed.total_seconds()\n    assert slow < 2",
        "assert all(each.elapsed.total_seconds() < 2 for each in answers)",
        "if (took := time.time() - begun()):\n        assert took < 2",
    ],
)
def test_an_assertion_on_a_clock_is_found(body: str) -> None:
    assert bounds_on_time(f"def test():\n    {body}") != []
    assert bounds_on_time(f"class Scene:\n  async def play(self):\n    {body}") != []


@pytest.mark.parametrize(
    "body",
    [
        f"{BEGUN}alone = time.monotonic() - begun\n    assert time.monotonic() - begun < 10 * alone",
        f"{BEGUN}waited = time.monotonic() - begun\n    assert waited > 3",
        f"{BEGUN}waited = time.monotonic() - begun\n    assert told <= waited",
        "later = time.time() + 600\n    assert claims['exp'] <= later",
        "assert time.process_time() - begun < 2",
        "latest = time.monotonic() + HANG_GUARD\n    while time.monotonic() < latest:\n        look()",
        "assert counted < 2",
    ],
)
def test_ratios_counts_and_least_times_are_not(body: str) -> None:
    assert bounds_on_time(f"def test():\n    {body}") == []


@pytest.mark.parametrize(
    "line",
    [
        "httpx.get(url, timeout=2)",
        "process.wait(30)",
        "future.result(60.0)",
        "queue.get(timeout=60)",
        "thread.join(30)",
        "until(look, 5)",
        "asyncio.wait_for(states(), timeout=5)",
    ],
)
def test_a_short_guard_is_found(line: str) -> None:
    assert short_guards(line) == [1]


@pytest.mark.parametrize(
    "line", ["httpx.get(url, timeout=HANG_GUARD)", "revocation.result(0.5)", "over.wait()", "given.get(7, 8)"]
)
def test_no_guard_and_a_long_one_are_not(line: str) -> None:
    assert short_guards(line.replace("given.get(7, 8)", "given.find(7, 8)")) == []
