"""Questions that were refused to an analyst at once, as far as the refusals told it why."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from sqlalchemy.orm import Session

from privest_service.acts.models import Act
from privest_service.acts.search import Wanted, find
from privest_service.reports.formatting import typed

_MOST = 20
"""Refusals that are shown."""

_OWN = {"analyst": "your cap", "grant": "your grant"}
"""What of the analyst's own may refuse."""


@dataclass(frozen=True)
class Refused:
    """A question that was refused.

    Attributes:
        at: when.
        kind: what was asked for.
        dataset: what it was asked about.
        epsilon: that it was asked with; None where it was refused before it had a plan.
        by: what of the analyst's own refused it; None for all else, of which an analyst is told nothing.
        room: the largest ε that the analyst's own cap then had room for; None where that did not refuse it.
        columns: of a table, in words; empty where they are not known.
        less: the address that plans it again with less; None where there is no less, or it cannot be told.
    """

    at: datetime
    kind: str
    dataset: str
    epsilon: float | None
    by: str | None
    room: float | None
    columns: str
    less: str | None


def refused_to(session: Session, analyst_id: str, owners: Mapping[str, str]) -> list[Refused]:
    """The latest refusals of an analyst's questions, newest first.

    They are acts in owners' chains. Of a question on several datasets that something of others refused
    nothing is told, because the chain that holds it tells whose that is.

    Args:
        session: of the caller's transaction.
        analyst_id: who asked.
        owners: the owner of each dataset that is granted to it now.
    """
    acts = list[Act]()
    for owner_id in sorted(set(owners.values())):
        wanted = Wanted(owner_id, kind="question.refused", who=analyst_id)
        acts += find(session, wanted, limit=_MOST).acts
    told = (_told(act) for act in sorted(acts, key=lambda act: act.at, reverse=True) if act.subject in owners)
    return [refused for refused in told if refused is not None][:_MOST]


def _told(act: Act) -> Refused | None:
    """What an analyst may read of a refusal; None for nothing."""
    details = json.loads(act.details)
    by = _OWN.get(details.get("by", ""))
    # Acts from before it was recorded do not say whether a question was on several datasets.
    if by is None and details.get("several", True):
        return None
    return Refused(
        act.at,
        details["estimate"],
        str(act.subject),
        details.get("epsilon"),
        by,
        details.get("room"),
        _columns(details),
        _address_with_less(str(act.subject), details),
    )


def _columns(details: Mapping[str, Any]) -> str:
    told, label = details.get("columns", []), details.get("label")
    if isinstance(told, int):
        return f"{told} columns"
    names = ", ".join(name for name in told if name != label)
    return names if label is None else f"{label} by {names}"


def _address_with_less(dataset: str, details: Mapping[str, Any]) -> str | None:
    """The address of a plan with the ε that there was room for, else with half of what was asked."""
    if "epsilon" not in details or details.get("several") or details.get("room") == 0:
        return None
    epsilon = details.get("room", details["epsilon"] / 2)
    asked: dict[str, Any] = {"dataset": dataset, "kind": details["estimate"]}
    asked |= {"epsilon": f"{epsilon * (1 - 0.0005):.4g}", "delta": typed(details["delta"])}
    names, label = details.get("columns", []), details.get("label")
    if label is not None:
        asked["label"] = label
    if isinstance(names, list):
        asked["columns" if label is None else "features"] = [name for name in names if name != label]
    return urlencode(asked, doseq=True)
