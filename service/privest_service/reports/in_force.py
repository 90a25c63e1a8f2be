"""What is in force at a report's moment: freeze, grants, published answers, keys; and where chains end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from privest_service.database import now
from privest_service.datasets.models import Dataset, Grant
from privest_service.datasets.service import grant_subject
from privest_service.exports.export import heads_of
from privest_service.exports.lines import Heads
from privest_service.ledger.models import Account
from privest_service.ledger.service import limits_of
from privest_service.ledger.units import Limits
from privest_service.notices import service as notices
from privest_service.notices.schemas import ChannelView
from privest_service.published import service as published
from privest_service.reports.words import terms_of, title
from privest_service.security.models import Analyst, ApiKey, Owner
from privest_service.security.principals import Principal

_MOST_SHOWN = 10_000
"""Most published answers that a report lists."""


@dataclass(frozen=True)
class Granted:
    """A grant in force.

    Attributes:
        who: may ask.
        dataset: about which.
        since: when it was made, or made anew.
        cap: the analyst's own; None where there is none.
        terms: what it says besides, in words.
    """

    who: str
    dataset: str
    since: datetime
    cap: Limits | None
    terms: list[str]


@dataclass(frozen=True)
class Shown:
    """An answer about the owner's data that others read.

    Attributes:
        name: under which it is published.
        what: was asked.
        by: who published it.
        readers: beside the publisher and the owners of the data, in words.
        since: when it was published.
        held_back: whether nobody reads it, as a grant does not let it be published at present.
    """

    name: str
    what: str
    by: str
    readers: list[str]
    since: datetime
    held_back: bool


@dataclass(frozen=True)
class InForce:
    """What is in force.

    Attributes:
        frozen_by: the role of whoever froze the budget; None of one that is not frozen.
        grants: by dataset and analyst.
        shown: published answers about the owner's data, by name.
        caps: on datasets, whoever asks, by their names.
        keys: of the owner that are neither revoked nor over.
        channels: for alerts and signed heads.
    """

    frozen_by: str | None
    grants: list[Granted]
    shown: list[Shown]
    caps: list[tuple[str, Limits]]
    keys: Sequence[ApiKey]
    channels: list[ChannelView]


@dataclass(frozen=True)
class End:
    """Where a chain ends: whoever keeps this sees later whether it was cut."""

    chain: str
    seq: int
    hash: str


def in_force(
    session: Session, present: Account, people: Mapping[str, str], datasets: Mapping[str, str]
) -> InForce:
    """What is in force for an owner.

    Args:
        session: to read it in.
        present: the account of the owner's present window.
        people: names of analysts, by id.
        datasets: names of datasets, by id.
    """
    mine, moment = Account.owner_id == present.owner_id, now()
    accounts = {
        (each.scope, each.subject): each
        for each in session.scalars(
            select(Account).where(mine, Account.window == present.window).order_by(Account.subject)
        )
    }

    def cap(scope: str, subject: str) -> Limits | None:
        account = accounts.get((scope, subject))
        return limits_of(account) if account is not None and limits_of(account).capped else None

    found = session.execute(
        select(Grant, Dataset)
        .join(Dataset, Dataset.id == Grant.dataset_id)
        .where(Dataset.owner_id == present.owner_id, Dataset.deleted_at.is_(None), Grant.revoked_at.is_(None))
        .where(or_(Grant.expires_at.is_(None), Grant.expires_at > moment))
        .order_by(Grant.created_at, Grant.dataset_id, Grant.analyst_id)
    )
    grants = [
        Granted(
            who=people.get(grant.analyst_id, grant.analyst_id),
            dataset=datasets.get(dataset.id, dataset.id),
            since=grant.created_at,
            cap=cap("analyst", grant_subject(dataset.id, grant.analyst_id)),
            terms=terms_of(grant),
        )
        for grant, dataset in found
    ]
    capped = {each: limits for scope, each in accounts if scope == "dataset" and (limits := cap(scope, each))}
    keys = select(ApiKey).where(ApiKey.principal_id == present.owner_id, ApiKey.revoked_at.is_(None))
    return InForce(
        frozen_by=present.frozen_by,
        grants=grants,
        shown=_shown(session, present.owner_id),
        caps=[(datasets.get(each, each), limits) for each, limits in capped.items()],
        keys=session.scalars(
            keys.where(or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > moment)).order_by(
                ApiKey.created_at
            )
        ).all(),
        channels=notices.channels(session, present.owner_id),
    )


def _shown(session: Session, owner_id: str) -> list[Shown]:
    found = published.listed(session, Principal("owner", owner_id), limit=_MOST_SHOWN)
    about = [each for each in found if each.concerns]
    names = dict[str, str]()
    for table in (Owner, Analyst):
        told = select(table.id, table.name).where(table.id.in_({id_ for one in about for id_ in one.readers}))
        names |= {each.id: each.name or each.id for each in session.execute(told)}
    return [
        Shown(
            name=each.publication.name,
            what=title(each.kind),
            by=each.publisher,
            readers=[names.get(id_, id_) for id_ in each.readers]
            + (["whoever has the database's reading role"] if each.publication.in_sql else []),
            since=each.publication.published_at,
            held_back=not each.is_open,
        )
        for each in about
    ]


def ends_of(
    session: Session, owner_id: str, people: Mapping[str, str], datasets: Mapping[str, str]
) -> tuple[list[End], Heads]:
    """The ends of all of an owner's chains: in words, and signed."""
    signed = heads_of(session, owner_id)
    order = (Account.window, Account.scope.desc(), Account.subject)
    accounts = session.scalars(select(Account).where(Account.owner_id == owner_id).order_by(*order))
    ends = [
        End(f"{_called(each, people, datasets)}, window {each.window}", each.seq, each.head)
        for each in accounts
    ]
    return ends + [End("Acts", each.seq, each.hash) for each in signed.acts or ()], signed


def _called(account: Account, people: Mapping[str, str], datasets: Mapping[str, str]) -> str:
    """What an account is of."""
    if account.scope == "owner":
        return "Budget"
    subject, _, analyst = account.subject.partition("/")
    dataset = datasets.get(subject, "rows that came with a question")
    return f"{people.get(analyst, analyst)} on {dataset}" if analyst else f"Dataset {dataset}"
