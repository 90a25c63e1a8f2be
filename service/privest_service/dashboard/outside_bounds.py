"""Counts of values outside declared bounds, handed from an upload to the page that follows it.

They travel in a cookie for that page alone and for one minute, because addresses end up in logs. Every upload
sets the cookie, whether there are such values or not.
"""

from collections.abc import Sequence

from fastapi import Request
from fastapi.responses import Response

from privest_service.dashboard.page import place
from privest_service.dashboard.session_auth import on_this_machine
from privest_service.datasets.registration import Registered

_NAME = "privest-outside-bounds"
_SECONDS = 60

_MOST = 50
"""Columns whose counts are handed over. A cookie has at most 4,096 letters."""


def hand_over(request: Request, response: Response, made: Registered, names: Sequence[str]) -> None:
    """Set the cookie.

    Args:
        request: the upload.
        response: redirects to the dataset's page.
        made: the new dataset, with the counts.
        names: of the table's columns, in order; empty for other records.
    """
    counts = made.outside_bounds or {}
    found = [f"{at}:{counts[name]}" for at, name in enumerate(names) if name in counts]
    response.set_cookie(
        _NAME,
        ".".join(found[:_MOST]),
        max_age=_SECONDS,
        path=place(request, f"/datasets/{made.dataset.id}"),
        secure=not on_this_machine(request),
        httponly=True,
        samesite="strict",
    )


def handed_over(request: Request, names: Sequence[str]) -> list[tuple[str, int]]:
    """Return the counts by names of columns, as far as the cookie holds numbers."""
    pairs = (part.partition(":") for part in request.cookies.get(_NAME, "")[:4096].split("."))
    counts = {
        int(at): int(count)
        for at, _, count in pairs
        if at.isdecimal() and count.isdecimal() and len(at) < 9 and len(count) < 19
    }
    return [(name, counts[at]) for at, name in enumerate(names) if counts.get(at)]
