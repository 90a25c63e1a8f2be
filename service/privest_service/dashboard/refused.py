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
from privest_service.datasets.models import Grant
from privest_service.datasets.service import accounts_of, grant_subject
from privest_service.datasets.terms import limits_of_grant
from privest_service.ledger.service import limits_of
from privest_service.ledger.views import largest_query, largest_within
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
        less: the address that plans it again with what there is room for now; None where nothing of the
            analyst's own refused it, so that less might be refused as well, or where there is no room.
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
    latest = [act for act in sorted(acts, key=lambda act: act.at, reverse=True) if act.subject in owners]
    told = (_told(session, analyst_id, act) for act in latest)
    return [refused for refused in told if refused is not None][:_MOST]


def _told(session: Session, analyst_id: str, act: Act) -> Refused | None:
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
        _address_with_less(session, analyst_id, str(act.subject), details) if by else None,
    )


def _columns(details: Mapping[str, Any]) -> str:
    told, label = details.get("columns", []), details.get("label")
    if isinstance(told, int):
        return f"{told} columns"
    names = ", ".join(name for name in told if name != label)
    return names if label is None else f"{label} by {names}"


def _address_with_less(
    session: Session, analyst_id: str, dataset: str, details: Mapping[str, Any]
) -> str | None:
    """The address of a plan with the ε that the analyst's cap and grant have room for now."""
    if "epsilon" not in details or details.get("several"):
        return None
    epsilon = min([details["epsilon"], *_room(session, analyst_id, dataset, details["delta"])])
    if epsilon <= 0:
        return None
    asked: dict[str, Any] = {"dataset": dataset, "kind": details["estimate"]}
    asked |= {"epsilon": typed(epsilon), "delta": typed(details["delta"])}
    names, label = details.get("columns", []), details.get("label")
    if label is not None:
        asked["label"] = label
    if isinstance(names, list):
        asked["columns" if label is None else "features"] = [name for name in names if name != label]
    return urlencode(asked, doseq=True)


def _room(session: Session, analyst_id: str, dataset: str, delta: float) -> list[float]:
    """What an analyst's own cap and its grant's terms have room for in one question, where that is an ε."""
    grant = session.get_one(Grant, (dataset, analyst_id))
    account = accounts_of(session, [grant])[grant_subject(dataset, analyst_id)]
    allowed = limits_of_grant(session, dataset, analyst_id)
    of_grant = None if allowed is None else largest_within(allowed, delta)
    of_cap = largest_query(account, delta) if limits_of(account).capped else None
    return [epsilon for epsilon in (of_grant, of_cap) if epsilon is not None]
