"""An auditor's report as a page that stands alone, on a screen and on paper."""

import base64
import hashlib
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from privest_service.reports import formatting
from privest_service.reports.record import Record, Summary
from privest_service.reports.verifying import Verdict
from privest_service.reports.words import uses_of
from privest_service.security.models import Owner

MEDIA_TYPE = "text/html; charset=utf-8"

_TEMPLATES = Path(__file__).with_name("templates")

_STYLE = (_TEMPLATES / "report.css").read_text()

_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

POLICY = f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'"
"""What the page may do wherever it is opened: show its own style, and nothing else."""

_MOST_FAULTS = 50
"""Most faults that are listed; the page tells how many there are."""

PAUSE = "\n"
"""What says nothing, and shows whoever waits that more will come."""

_PIECES = 200
"""Pieces of a page that are joined before they are written."""


@cache
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals |= {"style": Markup(_STYLE), "policy": POLICY, "most_faults": _MOST_FAULTS}  # noqa: S704 - ours
    found.filters |= {
        "number": formatting.number,
        "up": formatting.rounded_up,
        "down": formatting.rounded_down,
        "moment": formatting.moment,
        "day": formatting.day,
        "iso": formatting.iso,
        "short": formatting.short,
        "count": formatting.count,
        "spent_percent": formatting.spent_percent,
        "left_percent": formatting.left_percent,
        "chance_percent": formatting.chance_percent,
        "uses_of": uses_of,
    }
    return found


def beginning(owner: Owner, at: datetime) -> str:
    """What is sent before anything long begins."""
    return _environment().get_template("report_beginning.html").render(owner=owner, at=at)


def body(summary: Summary, record: Record) -> Iterator[str]:
    """All that sums up, and all that happened."""
    yield _environment().get_template("report_summary.html").render(summary=summary)
    pieces = _environment().get_template("report_record.html").stream(record=record)
    pieces.enable_buffering(_PIECES)
    yield from pieces


def end(summary: Summary, verdict: Verdict | None) -> Iterator[str]:
    """Where chains end, and the verifier's word, or that it came to none."""
    yield _environment().get_template("report_end.html").render(summary=summary, verdict=verdict)
