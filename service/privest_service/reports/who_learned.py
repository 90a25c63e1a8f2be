"""Who learned what, and when: a row for each person, data and kind of estimate, from the ledger's tallies."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from sqlalchemy import Float, case, cast, func, select
from sqlalchemy.orm import Session

from privest_service.datasets.models import Dataset, Grant
from privest_service.jobs.models import Job
from privest_service.ledger.entries import AMOUNTS
from privest_service.ledger.models import Account, Tally
from privest_service.ledger.service import limits_of
from privest_service.ledger.units import Charge
from privest_service.ledger.views import chance_of_guessing, share_of_charge
from privest_service.reports.formatting import name_of_all, told_apart
from privest_service.reports.words import of_columns, title


@dataclass(frozen=True)
class Learning:
    """What somebody was answered about some data, by one kind of estimate, over all windows.

    Attributes:
        who: asked, by name.
        who_id: by id.
        data: that it was about, by name.
        data_id: of a dataset with these rows; empty where rows came with each question.
        kind: of estimate.
        what: it is called.
        queries: that were charged and not given back.
        first: when the first was asked.
        last: likewise.
        windows: of the budget, in the first and in the last of which it was asked.
        share: of the present window's budget.
        guess: how often, at most, an attacker who saw these answers alone guesses right about one record.
    """

    who: str
    who_id: str
    data: str
    data_id: str
    kind: str
    what: str
    queries: int
    first: datetime
    last: datetime
    windows: tuple[int, int]
    share: float
    guess: float


def who_learned(
    session: Session, account: Account, people: Mapping[str, str], *, most: int, offset: int = 0
) -> list[Learning]:
    """Who learned what, those first who asked last.

    Args:
        session: to read in.
        account: of the owner's budget in its present window.
        people: names of all who may have asked, by id.
        most: rows that are wanted.
        offset: rows that are left out before them.
    """
    amounts = [getattr(Tally, name) for name in AMOUNTS]
    # All windows as floats, whose errors the chance is rounded up for: their sum may be beyond an integer.
    sums = [func.sum(cast(amount, Float)) for amount in amounts]
    present = [func.max(case((Tally.account_id == account.id, amount), else_=0)) for amount in amounts]
    key = (Tally.submitter_id, Tally.lineage, Tally.kind)
    last = func.max(Tally.last_at)
    asked = session.execute(
        select(*key, func.sum(Tally.queries), func.min(Tally.first_at), last)
        .add_columns(func.min(Account.window), func.max(Account.window), *sums, *present)
        .join(Account, Account.id == Tally.account_id)
        .where(Account.owner_id == account.owner_id, Tally.queries > 0)
        .group_by(*key)
        .order_by(last.desc(), *key)
        .limit(most)
        .offset(offset)
    ).all()
    names, limits = _names(session, {lineage for _, lineage, *_ in asked}), limits_of(account)
    return [
        Learning(
            who=people.get(who, who),
            who_id=who,
            data=names.get(lineage, "rows sent with the question"),
            data_id=lineage,
            kind=kind,
            what=title(kind),
            queries=int(queries),
            first=first,
            last=latest,
            windows=(since, until),
            share=share_of_charge(limits, Charge(*map(int, figures[len(AMOUNTS) :]))),
            guess=chance_of_guessing(limits, Charge(*map(ceil, figures[: len(AMOUNTS)])), ""),
        )
        for who, lineage, kind, queries, first, latest, since, until, *figures in map(tuple, asked)
    ]


@dataclass(frozen=True)
class Asked:
    """What else there is to tell of somebody's questions about some data.

    Attributes:
        columns: of a table, in words: of each of the latest questions, those that are equal told once.
        purposes: of the grants on these data, as they are now.
    """

    columns: list[str]
    purposes: list[str]


_CHARGED = ("reserved", "claimed", "committed", "failed")
"""States of questions that are charged."""

LATEST = 3
"""Questions of one row whose columns are told, the latest of them."""

_LOOKED_AT = 50
"""Questions of one person that are looked at for these, so that a row costs the same whatever the record."""


def asked(session: Session, rows: Sequence[Learning]) -> list[Asked]:
    """The columns and the purposes of some rows, in their order."""
    theirs = Dataset.lineage.in_({each.data_id for each in rows})
    tables, purposes = defaultdict[str, list[str]](list), defaultdict[tuple[str, str], list[str]](list)
    for lineage, dataset in session.execute(
        select(Dataset.lineage, Dataset.id).where(theirs, Dataset.kind == "table")
    ):
        tables[lineage].append(dataset)
    for lineage, analyst, purpose in session.execute(
        select(Dataset.lineage, Grant.analyst_id, Grant.purpose)
        .join(Grant, Grant.dataset_id == Dataset.id)
        .where(theirs, Grant.purpose.is_not(None))
        .order_by(Grant.created_at, Grant.dataset_id)
    ):
        purposes[lineage, analyst].append(str(purpose))
    return [
        Asked(
            columns=_columns(session, each, tables[each.data_id]),
            purposes=list(dict.fromkeys(purposes[each.data_id, each.who_id])),
        )
        for each in rows
    ]


def _columns(session: Session, row: Learning, tables: Sequence[str]) -> list[str]:
    """The columns of the latest questions of a row, if its data are one of these tables."""
    if not tables:
        return []
    # Back from the last one, which an index finds.
    lately = (
        select(Job.id)
        .where(Job.submitter_id == row.who_id, Job.created_at <= row.last)
        .order_by(Job.created_at.desc())
        .limit(_LOOKED_AT)
    )
    plans = session.scalars(
        select(Job.plan)
        .where(Job.id.in_(lately.subquery().select()), Job.kind == row.kind, Job.dataset_id.in_(tables))
        .where(Job.state.in_(_CHARGED))
        .order_by(Job.created_at.desc())
        .limit(LATEST)
    )
    return list(dict.fromkeys(of_columns(plan).strip() for plan in plans))


def _names(session: Session, lineages: set[str]) -> dict[str, str]:
    """What data are called, by lineage: the name of the first dataset, with the number of others."""
    found = session.execute(
        select(Dataset.lineage, Dataset.id, Dataset.name)
        .where(Dataset.lineage.in_(lineages), ~Dataset.ephemeral)
        .order_by(Dataset.created_at, Dataset.id)
    ).all()
    names = told_apart(found)
    same: dict[str, list[str]] = {}
    for lineage, dataset, _ in found:
        same.setdefault(lineage, []).append(names[dataset])
    return {lineage: name_of_all(theirs) for lineage, theirs in same.items()}
