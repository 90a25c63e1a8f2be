"""Memoization that ends with one plan, run or request.

A result that outlived it would make one caller's plan faster because another caller asked for the same.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from cachetools.keys import hashkey

P = ParamSpec("P")
T = TypeVar("T")

_MOST = 10_000
"""Results that one memo holds. Beyond that it starts again empty."""

_memo: ContextVar[dict[Any, Any] | None] = ContextVar("memo", default=None)


@contextmanager
def fresh_memo() -> Generator[None]:
    """Memoize in this block, in a memo of its own: neither what was found before nor what is found is shared.

    Threads that are given a copy of the context share the memo.
    """
    token = _memo.set({})
    try:
        yield
    finally:
        _memo.reset(token)


def memoized(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that computes each result once in a `fresh_memo`, and anew each time outside of any.

    Arguments must be hashable. Errors are not memoized.
    """

    @wraps(function)
    def found(*args: P.args, **kwargs: P.kwargs) -> T:
        memo = _memo.get()
        if memo is None:
            return function(*args, **kwargs)
        key = hashkey(function, *args, **kwargs)
        try:
            return memo[key]
        except KeyError:
            result = function(*args, **kwargs)
        if len(memo) >= _MOST:
            memo.clear()
        memo[key] = result
        return result

    return found
