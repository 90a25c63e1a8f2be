"""An auditor's report as a table for spreadsheets: one row for each thing that is told."""

import csv
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from io import StringIO

from privest_service.ledger.schemas import Together
from privest_service.ledger.units import Limits
from privest_service.ledger.views import Price
from privest_service.reports.formatting import chance_percent, count
from privest_service.reports.in_force import InForce
from privest_service.reports.record import Movement, Record, Request, Summary, Window
from privest_service.reports.shares import Part
from privest_service.reports.verifying import Verdict
from privest_service.reports.who_learned import Learning
from privest_service.reports.words import Told, uses_of
from privest_service.security.models import Owner

MEDIA_TYPE = "text/csv; charset=utf-8"

_COST = "Cost (ε at the budget's δ)"


_COLUMNS = (
    *("Section", "Number", "When (UTC)", "Window", "Who", "What", "On what", "ε", "δ"),
    *(_COST, "Left after it (share)", "Taken (share)", "Questions", "State"),
    *("Decided (UTC)", "Details", "Reason", "Last (UTC)"),
)

_FORMULA = re.compile(r"(^|[;\t\r\n])(\s*)(?=[=+\-@＝＋－＠])")
"""Where a spreadsheet, whatever it takes for a separator, would begin to read a formula."""

_DIGITS = 6
"""Significant digits of what was computed; what was asked for is told exactly."""

_Row = Mapping[str, object]


PAUSE = "\r\n"
"""An empty line, which tables leave out: it shows whoever waits that more will come."""


def beginning(owner: Owner, at: datetime) -> str:
    """What is sent before anything long begins: the names of the columns, and what this is."""
    told = {"Section": "report", "When (UTC)": at, "Who": owner.name, "Details": owner.id}
    return "\ufeff" + _line(_COLUMNS) + _written(told)  # with which spreadsheets know that it is UTF-8


def body(summary: Summary, record: Record) -> Iterator[str]:
    """Rows of all that sums up, and of all that happened."""
    yield from map(_written, _summed(summary))
    yield from map(_written, map(_request, record.requests))
    yield from map(_written, map(_movement, record.movements))
    yield from map(_written, map(_act, record.acts))


def _line(cells: object) -> str:
    file = StringIO()
    csv.writer(file).writerow(cells)  # pyright: ignore[reportArgumentType]
    return file.getvalue()


def _written(row: _Row) -> str:
    return _line([_cell(row.get(name)) for name in _COLUMNS])


def _cell(value: object) -> str:
    """A cell as text; no name and no reason in it is a formula, which a spreadsheet would compute."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return value if isinstance(value, str) and value.isalnum() else _FORMULA.sub(r"\1\2'", str(value))


def _up(value: float) -> float:
    """What is spent, never understated."""
    return float(Context(_DIGITS, ROUND_CEILING).create_decimal(repr(value)))


def _down(value: float) -> float:
    """What is left, never overstated."""
    return float(Context(_DIGITS, ROUND_FLOOR).create_decimal(repr(value)))


def end(summary: Summary, verdict: Verdict | None) -> Iterator[str]:
    """Rows of where chains end, and of the verifier's word."""
    for each in summary.ends:
        yield _written(
            {"Section": "end of chain", "Number": each.seq, "What": each.chain, "Details": each.hash}
        )
    if verdict is None:
        yield _written({"Section": "verified", "State": "NOT VERIFIED: the verifier came to no end"})
    else:
        yield from map(_written, _verified(verdict))


def _verified(verdict: Verdict) -> Iterator[_Row]:
    found = verdict.found
    yield {
        "Section": "verified",
        "When (UTC)": verdict.at,
        "What": f"{found.entries} entries, {found.acts} acts and {found.receipts} receipts read again",
        "State": "sound" if not found.faults else f"NOT SOUND: {count(len(found.faults), 'fault')}",
        "Details": f"with key {verdict.key_id}: {verdict.keys[0].public_key}",
    }
    yield from (
        {"Section": "fault", "Number": place, "Details": fault} for place, fault in enumerate(found.faults, 1)
    )
    yield from ({"Section": "no seal covers", "Details": each} for each in found.unsealed)


def _summed(summary: Summary) -> Iterator[_Row]:
    for window in summary.windows:
        yield _window(window)
    rules = summary.rules
    for what, several in (
        ("all windows so far, together", rules.so_far),
        ("windows of a year, at most", rules.in_a_year),
        ("all windows that there may be", rules.in_all),
    ):
        if several is not None:
            yield {"Section": "promise", "What": what, **_promise(several)}
    for window in summary.windows:
        for section, parts in (("taken by", window.analysts), ("taken of", window.datasets)):
            yield from (_part(section, window, part) for part in parts if part.queries)
    yield from map(_learned, summary.learned)
    for name, dataset in summary.datasets:
        yield {
            "Section": "dataset",
            "When (UTC)": dataset.created_at,
            "On what": name,
            "What": dataset.kind,
            "State": "deleted" if dataset.deleted_at else "there",
            "Details": f"{dataset.n} records; {dataset.id}",
        }
    yield from _in_force(summary.in_force)


def _in_force(found: InForce) -> Iterator[_Row]:
    for grant in found.grants:
        told = {"What": "grant", "When (UTC)": grant.since, "Who": grant.who, "On what": grant.dataset}
        yield _cap(grant.cap) | told | {"Details": "; ".join(grant.terms)}
    for each in found.shown:
        yield {
            "Section": "in force",
            "What": f"published answer: {each.what}",
            "When (UTC)": each.since,
            "Who": each.by,
            "State": "held back" if each.held_back else "read by others",
            "Details": f"{each.name}; readers: {', '.join(each.readers) or 'the owners of the data'}",
        }
    for dataset, limits in found.caps:
        yield _cap(limits) | {"What": "cap on a dataset", "On what": dataset}
    for key in found.keys:
        told = {"When (UTC)": key.created_at, "Details": f"{key.id}: may {uses_of(key.scopes)}"}
        yield {"Section": "in force", "What": "key of the owner"} | told
    for each in found.channels:
        told = {
            "When (UTC)": each.created_at,
            "Details": f"signed ends: {each.heads or 'never'}",
        }
        yield {"Section": "in force", "What": f"channel: {each.kind}"} | told


def _cap(limits: Limits | None) -> dict[str, object]:
    told = {"epsilon": None, "delta": None} if limits is None else limits.told()
    state = "without a cap of its own" if limits is None else "capped"
    return {"Section": "in force", "ε": told["epsilon"], "δ": told["delta"], "State": state}


def _window(window: Window) -> _Row:
    budget = window.budget
    return {
        "Section": "window",
        "When (UTC)": window.opened,
        "Window": budget.window,
        "What": "budget",
        "ε": budget.limit.epsilon,
        "δ": budget.limit.delta,
        _COST: _up(budget.spent.epsilon),
        "Left after it (share)": _down(max(0.0, 1 - budget.share)),
        "Taken (share)": _up(budget.share),
        "Questions": budget.queries,
        "State": "frozen" if budget.frozen else "open",
    }


def _promise(several: Together) -> _Row:
    promised = several.promise
    return {
        "ε": None if promised is None else _up(promised.epsilon),
        "δ": None if promised is None else promised.delta,
        "State": "nothing is promised: δ would be 1 or more" if promised is None else None,
        "Details": count(several.windows, "window"),
    }


def _part(section: str, window: Window, part: Part) -> _Row:
    who = "Who" if section == "taken by" else "On what"
    return {
        "Section": section,
        "Window": window.budget.window,
        who: part.label,
        "Taken (share)": _up(part.spent),
        "Questions": part.queries,
    }


def _learned(each: Learning) -> _Row:
    return {
        "Section": "learned",
        "When (UTC)": each.first,
        "Who": each.who,
        "What": each.what,
        "On what": each.data,
        "Taken (share)": _up(each.share),
        "Questions": each.queries,
        "Details": f"an attacker guesses right {chance_percent(each.guess)} of the time at most",
        "Last (UTC)": each.last,
    }


def _request(each: Request) -> _Row:
    decided = "approved by the owner" if each.approved else "denied by the owner"
    return {
        "Section": "request",
        "When (UTC)": each.at,
        "Who": each.who,
        "What": each.what,
        "On what": each.dataset,
        # The share is in the line of its charge.
        **({_COST: _up(each.price.epsilon)} if each.charged and each.price else {}),
        "State": each.state if each.charged else f"{each.state}, not charged",
        "Decided (UTC)": each.decided,
        "Details": f"{decided if each.decided else 'not decided'}; purpose: {each.purpose or 'none'}",
        "Reason": each.reason,
    }


def _price(price: Price | None, sign: int = 1) -> _Row:
    if price is None:
        return {}
    return {
        _COST: sign * _up(price.epsilon),
        "Taken (share)": sign * _up(price.share),
    }


def _movement(each: Movement) -> _Row:
    return {
        "Section": "entry",
        "Number": each.seq,
        "When (UTC)": each.at,
        "Window": each.window,
        "Who": each.who,
        "What": each.what,
        "On what": each.dataset,
        "ε": each.epsilon,
        "δ": each.delta,
        **_price(each.price, -1 if each.given_back else 1),
        "Left after it (share)": _down(each.left),
        "State": each.state,
        "Decided (UTC)": each.approved,
    }


def _act(each: Told) -> _Row:
    return {
        "Section": "act",
        "Number": each.seq,
        "When (UTC)": each.at,
        "Who": "not known" if each.of_before else each.who,
        "What": each.what,
        "On what": each.subject,
        "Details": each.more,
        "Reason": each.reason,
    }
