"""Who is there, as an identity provider lists it: over SCIM (RFC 7644), or in a csv."""

import csv
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from privest_service.bounded_http import PLAIN, UnfitAnswerError, read_body

_SECONDS = 30.0
"""Seconds that a provider may take for one page."""

_LARGEST_PAGE, _MOST_PEOPLE = 16 * 2**20, 1_000_000
"""Most bytes of one page, and most people in all of them."""

_NEAR = ("127.0.0.1", "localhost", "::1")


def read(place: str, attribute: str, token: str | None) -> dict[str, bool]:
    """Return whether each person that is listed is active.

    Args:
        place: a file of comma-separated values, or the address of a SCIM service, such as
            https://id.example.org/scim/v2.
        attribute: the column, or the attribute of a SCIM user, that holds what `sub` is in tokens.
        token: that the SCIM service asks for.

    Raises:
        ValueError: the list is not whole or lists nobody, in words.
    """
    listed = _from_scim(place, attribute, token) if "://" in place else _from_csv(Path(place), attribute)
    if not listed:
        raise ValueError(f"{place} lists nobody. Nothing was changed.")
    return listed


def _from_csv(path: Path, column: str) -> dict[str, bool]:
    """Read people from a csv with a header; a column `active` may say which of them are."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        if column not in (rows.fieldnames or ()):
            raise ValueError(f"{path} has no column {column}. Name it with --subject.")
        found = dict[str, bool]()
        for row in rows:
            _take(found, row[column], _is_active(row.get("active")), f"{path}, line {rows.line_num}")
    return found


def _is_active(told: str | None) -> bool:
    """Read a cell of the column `active`; an empty one is of somebody who is."""
    text = (told or "true").strip().lower()
    if text not in ("true", "false", "yes", "no", "1", "0"):
        raise ValueError("active must be true or false in each line")
    return text in ("true", "yes", "1")


def _from_scim(place: str, attribute: str, token: str | None) -> dict[str, bool]:
    """Read people from a SCIM service, page by page."""
    parts = urlsplit(place)
    if parts.scheme != "https" and parts.hostname not in _NEAR:
        raise ValueError("The SCIM service must have an https address: its list decides who may come.")
    head = {"Accept": "application/scim+json"} | PLAIN
    if token:
        head["Authorization"] = f"Bearer {token}"
    found, seen = dict[str, bool](), 0
    # A proxy of the environment, which would read the token, has no part in a call within this machine.
    with httpx.Client(headers=head, timeout=_SECONDS, trust_env=parts.scheme == "https") as client:
        while True:
            page = _page(client, place.rstrip("/"), attribute, seen + 1)
            listed, total = page.get("Resources") or [], page["totalResults"]
            for user in listed:
                _take(found, user.get(attribute), user.get("active", True) is True, place)
            seen += len(listed)
            if seen >= total:
                return found
            if seen > _MOST_PEOPLE:
                raise ValueError(f"{place} lists more than {_MOST_PEOPLE:,} people. Nothing was changed.")
            if not listed:
                raise ValueError(f"{place} listed {seen} of {total} people. Nothing was changed.")


def _page(client: httpx.Client, place: str, attribute: str, start: int) -> dict[str, Any]:
    asked: dict[str, str | int] = {"attributes": f"{attribute},active"}
    if start > 1:  # a provider that knows no pages is never asked for one
        asked["startIndex"] = start
    try:
        with client.stream("GET", f"{place}/Users", params=asked) as answer:
            answer.raise_for_status()
            page = json.loads(read_body(answer, _LARGEST_PAGE, _SECONDS))
        listed = page.get("Resources") or []
        if not isinstance(page["totalResults"], int) or not all(isinstance(each, dict) for each in listed):
            raise TypeError
    except httpx.HTTPStatusError as error:
        raise ValueError(f"{place} answered {error.response.status_code}. Nothing was changed.") from None
    except httpx.HTTPError as error:
        raise ValueError(f"{place} cannot be asked: {type(error).__name__}. Nothing was changed.") from None
    except UnfitAnswerError as unfit:
        raise ValueError(f"A page of {place} is refused: {unfit}. Nothing was changed.") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{place} did not answer with a list of SCIM. Nothing was changed.") from None
    return page


def _take(found: dict[str, bool], subject: object, active: bool, where: str) -> None:
    if not isinstance(subject, str) or not subject.strip():
        raise ValueError(f"{where}: somebody is listed without this attribute. Nothing was changed.")
    # Somebody who is listed twice is there if one of the two is active.
    found[subject.strip()] = active or found.get(subject.strip(), False)
