"""Questions that were refused to an analyst at once, as far as the refusals told it why."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from privest_service.acts.models import Act
from privest_service.acts.search import Wanted, find

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
        epsilon: of its price; None where it was refused before it had one.
        by: what of the analyst's own refused it; None for all else, of which an analyst is told nothing.
    """

    at: datetime
    kind: str
    dataset: str
    epsilon: float | None
    by: str | None


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
    return Refused(act.at, details["estimate"], str(act.subject), details.get("epsilon"), by)
