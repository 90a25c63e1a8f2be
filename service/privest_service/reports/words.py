"""Acts in words for people: who did what to what, and what else there is to tell."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from privest.estimators.registry import ESTIMATORS
from privest_service.acts.kinds import KINDS
from privest_service.acts.models import Act
from privest_service.datasets.models import Dataset, Grant
from privest_service.datasets.terms import Terms
from privest_service.ledger.units import EPSILON, as_number
from privest_service.reports.formatting import day, moment, number, percent, rounded_down
from privest_service.security.models import Analyst, Owner

_ROLES = {
    "admin": "An administrator",
    "owner": "The owner",
    "analyst": "An analyst",
    "service": "The service",
}

_SCOPES = {
    "owner": "the owner's budget",
    "dataset": "the dataset's cap",
    "analyst": "the analyst's own cap",
    "freeze": "a freeze",
    "pace": "the most that seven days may take",
    "grant": "the terms of the grant",
}
"""What may refuse a question."""


_DETAILS = {
    "n": "records",
    "published_as": "published as",
    "sql": "whoever has the reading role",
    "publish": "publishing answers",
    "rows_of": "with the rows of",
    "issued_by": "issued by the key",
    "asks_for": "asks for people of the client",
    "asks_for_seconds": "seconds that keys for them may last",
    "expires_at": "ends",
    "expires": "ends",
    "max_epsilon": "most ε of one question",
    "decide_within": "hours to decide",
    "least_days": "fewest days between windows",
    "most": "most windows",
    "every": "a window opens every",
    "pace": "most that seven days may take",
    "promise": "ε and δ are promised for",
    "composition": "answers are counted",
}
"""What details of acts are called by people, where their names do not say it."""

_PLAIN = {"frechet-mean": "mean"}
"""Kinds of estimates whose term, which the glossary has, is one of statisticians."""

_UNTOLD = ("name", "analyst_name", "reasoned")
"""Details that are for the verifier: people read the names and the reason elsewhere in the same line."""

_VALUES = {
    ("approval", "required"): "required for each question",
    ("publish", "allowed"): "allowed",
    ("sql", "True"): "may read it, by SQL",
    ("promise", "per-window"): "each window",
    ("promise", "lifetime"): "all windows together",
    ("composition", "gdp"): "by what they tell together",
    ("composition", "basic"): "by plain sums",
}
"""Values of details in words."""

_USES = {
    "read": "read",
    "data": "upload and delete data",
    "estimate": "ask",
    "manage": "change budgets, grants and keys",
}
"""What scopes of keys are called by people."""

_COLUMNS = 6
"""Most columns of a question that are named; of more the number is told."""

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?[+-]\d\d:\d\d$")
"""How details of acts write a moment."""

_NAMED = 20
"""Most owners, analysts and datasets of a name whose acts are looked for."""


@dataclass(frozen=True)
class Told:
    """An act in words.

    Attributes:
        seq: its place in the chain.
        at: its moment.
        who: whoever did it; empty where nobody knows.
        key: the id of the key; None where none is known.
        what: was done.
        subject: what it was done to, by its name where it has one.
        more: what else there is to tell.
        reason: that was given.
        of_before: whether it is of before there was a record.
    """

    seq: int
    at: datetime
    who: str
    key: str | None
    what: str
    subject: str
    more: str
    reason: str
    of_before: bool


def title(kind: str) -> str:
    """What a kind of estimate is called on pages and in reports: one that is gone, by its name."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    return ESTIMATORS[kind].title if kind in ESTIMATORS else kind.replace("-", " ")


def of_columns(plan: str) -> str:
    """Which columns of a table a stored plan is about, and which one it predicts; nothing of other data."""
    told = json.loads(plan)
    recipe = (told.get("shape") or told.get("course", {}).get("shape") or {}).get("recipe")
    if not recipe:
        return ""
    names = [recipe["columns"][place]["name"] for place in recipe["chosen"]]
    told = ", ".join(names) if len(names) <= _COLUMNS else f"{len(names)} columns"
    label = recipe.get("label")
    return f" of {told}" if label is None else f" of {recipe['columns'][label]['name']} by {told}"


def terms_of(grant: Grant) -> list[str]:
    """What a grant says besides its cap, for either of its parties."""
    terms, found = Terms.of(grant), list[str]()
    if terms.approval:
        found.append("each question is approved by the owner")
    if terms.publish:
        found.append("answers may be published")
    if terms.purpose:
        found.append(f"for: {terms.purpose}")
    if terms.max_epsilon is not None:
        found.append(f"at most ε {number(as_number(terms.max_epsilon, EPSILON))} for one question")
    if terms.kinds is not None:
        found.append(f"only {', '.join(map(title, terms.kinds))}")
    if terms.expires_at is not None:
        found.append(f"until {day(terms.expires_at)}")
    return found


def in_words(session: Session, acts: Iterable[Act]) -> list[Told]:
    """Acts with the names that people know; what has no name is told by its id."""
    read = [(act, json.loads(act.details)) for act in acts]
    names = _names(session, read)
    return [_told(act, details, names) for act, details in read]


def _names(session: Session, read: list[tuple[Act, dict[str, object]]]) -> dict[str, str]:
    """The names of all that acts tell of, by id: of one chain, and so of one owner and its analysts."""
    told = (
        id_ for act, details in read for id_ in (act.principal, act.through, act.subject, *details.values())
    )
    texts = {
        id_ for each in told for id_ in (each if isinstance(each, list) else [each]) if isinstance(id_, str)
    }
    found = dict[str, str]()
    for table in (Owner, Analyst, Dataset):
        rows = session.execute(select(table.id, table.name).where(table.id.in_(texts)))
        found.update({id_: name for id_, name in rows if name})
    return found


def named(session: Session, owner_id: str | None, part: str) -> list[str]:
    """The ids of those whose names have a text in them, of whom acts of a chain may tell; a few of many.

    Args:
        session: to read names in.
        owner_id: whose chain it is; None for the service's.
        part: of a name, whatever its case.
    """
    if not part:
        return []
    granted = select(Grant.analyst_id).join(Dataset).where(Dataset.owner_id == owner_id)
    whose = {
        Owner: Owner.id == owner_id,
        Analyst: Analyst.id.in_(granted),
        Dataset: and_(Dataset.owner_id == owner_id, ~Dataset.ephemeral),
    }
    found = list[str]()
    for table in (Owner, Analyst, Dataset) if owner_id else (Owner, Analyst):
        fits = func.lower(table.name).contains(part.lower(), autoescape=True)
        theirs = select(table.id).where(fits, *([whose[table]] if owner_id else []))
        found += session.scalars(theirs.order_by(table.id).limit(_NAMED))
    return found


def _told(act: Act, details: dict[str, object], names: Mapping[str, str]) -> Told:
    who = asker(
        names.get(act.principal or "", _ROLES.get(act.role or "", "")), act.person, act.through, names
    )
    subject = act.subject or ""
    return Told(
        act.seq,
        act.at,
        who,
        act.key,
        KINDS.get(act.kind, act.kind),
        names.get(subject, subject),
        "; ".join(_more(details, names)),
        act.reason or "",
        act.known_since is not None,
    )


def asker(who: str, person: str | None, through: str | None, names: Mapping[str, str]) -> str:
    """Whoever asked or acted, with the name that the identity provider has, and the service account."""
    told = who if person is None else f"{who} ({person})"
    return told if through is None else f"{told} through {names.get(through, through)}"


def uses_of(scopes: str) -> str:
    """What a key may be used for, in words, of its scopes as they are stored."""
    return ", ".join(_USES.get(scope, scope) for scope in scopes.split())


def _figure(amount: object) -> str:
    return number(float(str(amount)))


def _limit(epsilon: object, delta: object, none: str) -> str:
    """A limit in words; `none` is what stands for no limit."""
    return none if epsilon is None else f"ε {_figure(epsilon)} at δ {_figure(delta)}"


def _to_the_minute(text: str) -> str:
    """A text as it is, but a moment for machines as one for people."""
    return moment(datetime.fromisoformat(text)) if _MOMENT.match(text) else text


def _more(details: dict[str, object], names: Mapping[str, str]) -> Iterable[str]:
    """Each detail in words: those that every act may have, then all others by their names."""
    left = {name: value for name, value in details.items() if name not in _UNTOLD}
    if "epsilon_before" in left:
        former = _limit(left.pop("epsilon_before"), left.pop("delta_before"), "no cap")
        yield f"from {former} to {_limit(left.pop('epsilon'), left.pop('delta'), 'no cap')}"
    if "epsilon" in left and "delta" in left:
        yield _limit(left.pop("epsilon"), left.pop("delta"), "as far as the budget goes")
    if "estimate" in left:
        yield title(str(left.pop("estimate")))
    if "further" in left:
        yield f"and {left.pop('further'):,} more within that minute"
    if (by := left.pop("by", None)) is not None:
        yield f"by {_SCOPES.get(str(by), by)}"
    if (room := left.pop("room", None)) is not None:
        yield f"with room for ε {rounded_down(float(str(room)))} at that δ"
    if left.pop("several", False):
        yield "together with other datasets"
    if "scopes" in left:
        yield f"may {uses_of(str(left.pop('scopes')))}"
    if (kinds := left.pop("kinds", None)) is not None:
        yield f"only {', '.join(title(str(kind)) for kind in cast('list[object]', kinds))}"
    if (pace := left.pop("pace", None)) is not None:
        yield f"{_DETAILS['pace']}: {percent(float(str(pace)))}"
    for name, value in left.items():
        listed = map(str, cast("list[object]", value)) if isinstance(value, list) else None
        several = value if listed is None else ", ".join(names.get(each, each) for each in listed)
        if several not in (None, ""):
            told = names.get(several) or _to_the_minute(several) if isinstance(several, str) else several
            told = _VALUES.get((name, str(told)), told)
            yield f"{_DETAILS.get(name, name.replace('_', ' '))}: {told}"
