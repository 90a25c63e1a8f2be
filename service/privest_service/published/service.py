"""Answers are published under a name, read by those whom their publisher names, and withdrawn.

An owner lets an analyst publish by a term of its grant, sees what is published of its data, may read it, and
may withdraw it for good. When it revokes the grant, nobody reads on. Rows that are deleted, and a grant that
comes to its end, change nothing: an answer tells of the rows as they were when it was asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from sqlalchemy import ColumnElement, and_, delete, exists, or_, select
from sqlalchemy.orm import Session, aliased

from privest_service import acts
from privest_service.acts.actor import Actor
from privest_service.acts.models import Act
from privest_service.database import now
from privest_service.datasets.models import Dataset, Grant
from privest_service.estimates.plans import answered_plan, stored_plan
from privest_service.estimates.service import require_job
from privest_service.estimates.views import read_answer
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job, Transition
from privest_service.ledger.models import Account, Entry
from privest_service.problems import Fault, GrantRefuses, Invalid, NameTaken, NotFound
from privest_service.published.models import Publication, PublicationReader, PublishedValue
from privest_service.published.numbers import Number, numbers_of
from privest_service.security.models import Analyst, Owner
from privest_service.security.principals import Principal

_MOST_NUMBERS = 20_000
"""Most numbers of one published answer: they are written in one transaction."""

_WITHDRAWN = "answer.withdrawn"

_PART, _OF = aliased(Job), aliased(Dataset)

_ABOUT = and_(
    or_(_PART.id == Publication.job_id, _PART.part_of == Publication.job_id), _OF.id == _PART.dataset_id
)
"""Condition on jobs and datasets: the answer that is published is about them."""

IN_FORCE = and_(
    Publication.withdrawn_at.is_(None),
    ~exists().where(
        _ABOUT,
        _OF.owner_id != Publication.publisher_id,
        ~exists().where(
            Grant.dataset_id == _OF.id,
            Grant.analyst_id == Publication.publisher_id,
            Grant.revoked_at.is_(None),
            Grant.publish,
        ),
    ),
)
"""Condition on publications: not withdrawn, and each owner still lets the publisher publish.

`database/views.py` holds SQL's readers to the same.
"""


@dataclass(frozen=True)
class Published:
    """A publication as it stands.

    Attributes:
        publication: itself.
        kind: of the question.
        publisher: its name.
        datasets: that it is about.
        readers: whom the publisher named.
        concerns: whether the caller published it, or it is about the caller's data.
        is_open: whether they may read it at present.
    """

    publication: Publication
    kind: str
    publisher: str
    datasets: tuple[str, ...]
    readers: tuple[str, ...]
    concerns: bool
    is_open: bool


def publish(
    session: Session, caller: Principal, name: str, job_id: str, readers: Sequence[str], *, in_sql: bool
) -> Published:
    """Publish the answer of the caller's own question, in place of what the name stood for before.

    What is published in just this way already is left as it is.

    Raises:
        NotFound: the caller asked no such question.
        Invalid: it has no answer to be published, or there is no such reader.
        GrantRefuses: an owner of the data does not let the caller publish, or has withdrawn this answer.
        NameTaken: somebody else has published under this name.
    """
    job = require_job(session, caller, job_id)
    if caller.id != job.submitter_id or job.part_of is not None:
        raise NotFound
    parts = jobs.parts_of(session, job) or [job]
    about = [session.get_one(Dataset, part.dataset_id) for part in parts]
    found = session.get(Publication, name, with_for_update=True)
    if found and found.publisher_id != caller.id:
        raise NameTaken("Names are their publishers' for good. Choose another.")
    _require_allowed(session, caller, about, job)
    wanted = _known_readers(session, caller, readers)
    stands = found and found.withdrawn_at is None and (found.job_id, found.in_sql) == (job.id, in_sql)
    if stands and _readers(session, [name])[name] == wanted:
        return require(session, caller, name)
    numbers, off_by = _answered(job)
    charged = _charged(session, parts)
    publication = found or Publication(name=name, publisher_id=caller.id)
    _clear(session, name)
    publication.job_id, publication.in_sql, publication.off_by = job.id, in_sql, off_by
    publication.epsilon, publication.delta = charged
    publication.answered_at = session.get_one(Transition, (job.id, "committed")).at
    publication.published_at, publication.withdrawn_at = now(), None
    session.add(publication)
    session.flush()
    session.add_all(
        PublishedValue(name=name, place=place, **vars(number)) for place, number in enumerate(numbers)
    )
    session.add_all(PublicationReader(name=name, reader_id=each) for each in wanted)
    session.flush()
    details = {"published_as": name, "readers": list(wanted), **({"sql": True} if in_sql else {})}
    for owner_id in sorted({each.owner_id for each in about}):
        acts.record(session, owner_id, "answer.published", subject=job.id, details=details)
    return require(session, caller, name)


def names_of(session: Session, caller: Principal, job: Job) -> list[str] | None:
    """The names under which the caller's answer is published; None where it may not publish it.

    Args:
        session: to read it in.
        caller: who asked.
        job: that was answered.
    """
    parts = jobs.parts_of(session, job) or [job]
    if job.dummy or job.result is None or None in (part.dataset_id for part in parts):
        return None
    try:
        about = [session.get_one(Dataset, part.dataset_id) for part in parts]
        _require_allowed(session, caller, about, job)
    except GrantRefuses:
        return None
    own = select(Publication.name).where(
        Publication.job_id == job.id,
        Publication.publisher_id == caller.id,
        Publication.withdrawn_at.is_(None),
    )
    return list(session.scalars(own.order_by(Publication.name)))


def _require_allowed(session: Session, caller: Principal, about: Sequence[Dataset], job: Job) -> None:
    """See that the owners of the data let the caller publish an answer.

    Raises:
        GrantRefuses: one of them does not.
    """
    for dataset in about:
        if dataset.owner_id == caller.id:
            continue
        grant = session.get(Grant, (dataset.id, caller.id))
        if grant is None or grant.revoked_at is not None or not grant.publish:
            rule = "does not allow to publish answers. Ask the owner for a grant that does."
            raise GrantRefuses(f"Your grant on dataset {dataset.id} {rule}", dataset.id)
        withdrawn = (Act.chain == dataset.owner_id, Act.subject == job.id, Act.kind == _WITHDRAWN)
        if session.scalar(select(exists().where(*withdrawn, Act.principal == dataset.owner_id))):
            raise GrantRefuses("An owner of the data has withdrawn this answer for good.", dataset.id)


def _known_readers(session: Session, caller: Principal, readers: Sequence[str]) -> tuple[str, ...]:
    """Readers in one order, each once. Raises Invalid: there is no such owner or analyst."""
    wanted = set(readers) - {caller.id}
    known = {
        id_
        for table in (Owner, Analyst)
        for id_ in session.scalars(select(table.id).where(table.id.in_(wanted)))
    }
    if wanted - known:
        raise Invalid(
            faults=[Fault(location="readers", rule="must be ids of analysts and owners that there are")]
        )
    return tuple(sorted(wanted))


def _answered(job: Job) -> tuple[list[Number], float | None]:
    """The numbers of a job's answer, and by how much all of it is off at most in 95 of 100 runs.

    Raises:
        Invalid: there are none, or too many.
    """
    if job.dummy or job.result is None:
        raise Invalid("Only an answer can be published: of a question that is answered, and no dummy.")
    plan = stored_plan(job.kind, job.plan)
    told = read_answer(plan, job.result)
    answer = told.estimate or {}
    shape = None if plan is None else answered_plan(plan, answer).shape  # pyright: ignore[reportArgumentType]
    numbers = list(islice(numbers_of(job.kind, answer, shape), _MOST_NUMBERS + 1))
    if not 0 < len(numbers) <= _MOST_NUMBERS:
        raise Invalid(f"An answer of 1 to {_MOST_NUMBERS:,} numbers can be published. Ask for fewer.")
    return numbers, (told.uncertainty or {}).get("radius_95")


def _charged(session: Session, parts: Sequence[Job]) -> tuple[int, int]:
    """The ε and δ that a question was charged, in the ledger's units: the most that any owner was."""
    debits = select(Entry.epsilon, Entry.delta).join(Account, Account.id == Entry.account_id)
    debits = debits.where(
        Account.scope == "owner", Entry.kind == "debit", Entry.job_id.in_([p.id for p in parts])
    )
    found = session.execute(debits).all()
    return max(each.epsilon for each in found), max(each.delta for each in found)


def _clear(session: Session, name: str) -> None:
    """Delete what is told under a name, and who may read it."""
    session.execute(delete(PublishedValue).where(PublishedValue.name == name))
    session.execute(delete(PublicationReader).where(PublicationReader.name == name))


def withdraw(session: Session, caller: Principal, name: str) -> None:
    """Withdraw a publication at once; an owner of the data does so for good.

    Raises:
        NotFound: there is none that the caller published, or that is about its data.
    """
    found = require(session, caller, name)
    if not found.concerns:
        raise NotFound
    _withdraw(session, found.publication)


def _withdraw(session: Session, publication: Publication, actor: Actor | None = None) -> None:
    job = session.get_one(Job, publication.job_id)
    about = [part.dataset_id for part in jobs.parts_of(session, job) or [job]]
    _clear(session, publication.name)
    publication.withdrawn_at = now()
    details = {"published_as": publication.name}
    for owner_id in sorted(_owners(session, about)):
        acts.record(session, owner_id, _WITHDRAWN, subject=job.id, details=details, actor=actor)


def withdraw_all(session: Session) -> None:
    """Withdraw everything that is published, as in a restored service, which may have missed withdrawals."""
    for publication in session.scalars(select(Publication).where(Publication.withdrawn_at.is_(None))).all():
        _withdraw(session, publication, Actor("service"))


def _owners(session: Session, datasets: Sequence[str | None]) -> set[str]:
    return set(session.scalars(select(Dataset.owner_id).where(Dataset.id.in_(datasets))))


def listed(session: Session, caller: Principal, *, limit: int, after: str = "") -> list[Published]:
    """Publications that concern the caller or that it may read, by name, behind a name."""
    return _shown(session, caller, Publication.name > after, limit=limit)


def require(session: Session, caller: Principal, name: str) -> Published:
    """A publication that concerns the caller, or that it may read. Raises NotFound: there is none."""
    found = _shown(session, caller, Publication.name == name, limit=1)
    if not found:
        raise NotFound
    return found[0]


def values(session: Session, published: Published) -> list[PublishedValue]:
    """The numbers of a publication. Raises NotFound: an owner does not let it be published any more."""
    if not published.is_open:
        raise NotFound("An owner of the data does not let it be published at present.")
    name = published.publication.name
    found = select(PublishedValue).where(PublishedValue.name == name).order_by(PublishedValue.place)
    return list(session.scalars(found))


def _shown(
    session: Session, caller: Principal, condition: ColumnElement[bool], *, limit: int
) -> list[Published]:
    """Publications that a caller may see; those that concern it also while nobody may read them."""
    own = or_(Publication.publisher_id == caller.id, exists().where(_ABOUT, _OF.owner_id == caller.id))
    named = exists().where(
        PublicationReader.name == Publication.name, PublicationReader.reader_id == caller.id
    )
    visible = and_(Publication.withdrawn_at.is_(None), or_(own, and_(named, IN_FORCE)))
    chosen = select(Publication, Job.kind, own, IN_FORCE).join(Job, Job.id == Publication.job_id)
    chosen = chosen.where(visible, condition).order_by(Publication.name).limit(limit)
    rows = session.execute(chosen).all()
    readers = _readers(session, [each.name for each, *_ in rows])
    publishers = {each.publisher_id for each, *_ in rows}
    names, about = dict[str, str](), dict[str, tuple[str, ...]]()
    for table in (Owner, Analyst):
        found = session.execute(select(table.id, table.name).where(table.id.in_(publishers)))
        names |= {each.id: each.name for each in found}
    told = (
        select(Publication.name, _OF.id).where(_ABOUT, Publication.name.in_([*readers])).order_by(_PART.place)
    )
    for name, dataset_id in session.execute(told):
        about[name] = (*about.get(name, ()), dataset_id)
    return [
        Published(
            each, kind, names[each.publisher_id], about[each.name], readers[each.name], concerns, is_open
        )
        for each, kind, concerns, is_open in rows
    ]


def _readers(session: Session, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    found = dict.fromkeys(names, tuple[str, ...]())
    rows = select(PublicationReader).where(PublicationReader.name.in_(names))
    for each in session.scalars(rows.order_by(PublicationReader.reader_id)):
        found[each.name] += (each.reader_id,)
    return found
