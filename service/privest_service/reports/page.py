"""An auditor's report as a page that stands alone, on a screen and on paper."""

import base64
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from privest_service.reports import formatting
from privest_service.reports.record import Record, Summary
from privest_service.reports.verifying import Verdict

MEDIA_TYPE = "text/html; charset=utf-8"

_TEMPLATES = Path(__file__).with_name("templates")

_STYLE = (_TEMPLATES / "report.css").read_text()

_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

POLICY = f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'"
"""What the page may do wherever it is opened: show its own style, and nothing else."""

_MOST_FAULTS = 50
"""Most faults that are listed; the page tells how many there are."""

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
    }
    return found


def head(summary: Summary, verdict: Verdict) -> Iterator[str]:
    """The first pages: the verifier's word, and all that sums up."""
    yield _environment().get_template("report_head.html").render(summary=summary, verdict=verdict)


def body(record: Record) -> Iterator[str]:
    """All that happened, and the end of the page."""
    pieces = _environment().get_template("report_body.html").stream(record=record)
    pieces.enable_buffering(_PIECES)
    return iter(pieces)
