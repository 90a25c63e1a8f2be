"""The ledger of one owner, or of all, read from the database as lines and written to a file."""

from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, Literal

from sqlalchemy import Select, case, select
from sqlalchemy.orm import Session

from privest_service.acts.models import Act, ActChain
from privest_service.database import now
from privest_service.datasets.models import Dataset, Grant
from privest_service.datasets.terms import Terms
from privest_service.exports.lines import (
    ACT_FIELDS,
    SHARED,
    AccountLine,
    ActHead,
    ActLine,
    Digest,
    End,
    EntryLine,
    GrantLine,
    Head,
    Heads,
    JobLine,
    Line,
    MechanismLine,
    NameLine,
    ReceiptLine,
    to_sign,
)
from privest_service.jobs.models import Decision, Job
from privest_service.ledger.entries import AMOUNTS
from privest_service.ledger.models import Account, Entry, Mechanism
from privest_service.ledger.receipts import Receipt, digest_of_plan
from privest_service.security.models import Analyst, Owner
from privest_service.security.service import require_owner
from privest_service.signing import Signer, signer_of

Form = Literal["jsonl", "csv"]
"""The format of an export."""

_AT_ONCE = 500
"""Entries read in one go, so that a ledger of any length is exported in little memory."""


_PLANS_AT_ONCE = 20
"""Plans read in one go: one may be long."""


def lines(session: Session, owner_id: str | None = None) -> Iterator[Line]:
    """All that the ledger says of one owner, or of all; the session's transaction must be a snapshot."""
    yield from ended(_all_lines(session, owner_id), signer_of(session))


def ended(told: Iterable[Line], signer: Signer) -> Iterator[Line]:
    """Lines and, after them, their end."""
    digest = Digest()
    for line in told:
        digest.add(line)
        yield line
    end = End(
        lines=digest.lines,
        digest=digest.digest,
        at=now().isoformat(timespec="microseconds"),
        signer=signer.id,
        signature="",
    )
    end.signature = signer.sign(to_sign(end))
    yield end


def _all_lines(session: Session, owner_id: str | None) -> Iterator[Line]:
    # The owner's account first, as numbers of accounts are random.
    order = (Account.owner_id, Account.window, Account.scope.desc(), Account.subject)
    chosen = select(Account).order_by(*order)
    accounts = session.scalars(
        chosen if owner_id is None else chosen.where(Account.owner_id == owner_id)
    ).all()
    told: set[str] = set()
    for account in accounts:
        yield _account(session, account)
        for entry in _entries(session, account):
            if entry.mechanism is not None and entry.mechanism not in told:
                told.add(entry.mechanism)
                found = session.get_one(Mechanism, entry.mechanism)
                yield MechanismLine(digest=found.digest, content=found.content)
                session.expunge(found)
            yield entry
    chains = session.scalars(chains_of(owner_id)).all()
    for chain in chains:
        yield from _acts(session, chain)
    asked_by_owner = case((Job.part_of.is_(None), Job.submitter_id == Job.owner_id))
    yield from _tables(session, owner_id)
    requested, approval = Job.decide_by.is_not(None), case((Decision.approved, Decision.id))
    jobs = select(Job.id, Job.state, asked_by_owner, Job.plan, requested, approval, Decision.reason)
    jobs = jobs.add_columns(Job.person, Job.through)
    jobs = jobs.outerjoin(Decision, Decision.job_id == Job.id).where(Job.owner_id.is_not(None), ~Job.dummy)
    jobs = jobs.order_by(Job.created_at, Job.id)
    if owner_id is not None:
        jobs = jobs.where(Job.owner_id == owner_id)
    found = session.execute(jobs.execution_options(yield_per=_PLANS_AT_ONCE))
    for job, state, by_owner, plan, asked, approved, reason, person, through in found:
        known: Any = state
        digest = digest_of_plan(plan) if state == "committed" else None  # as its receipt tells it
        yield JobLine(
            job=job,
            state=known,
            asked_by_owner=by_owner,
            plan=digest,
            requested=asked,
            approval=approved,
            reason=reason,
            person=person,
            through=through,
        )
    for column in (Job.receipt, Job.analyst_receipt):
        receipts = select(column).where(column.is_not(None)).order_by(Job.created_at, Job.id)
        if owner_id is not None:
            receipts = receipts.where(Job.owner_id == owner_id)
        for text in session.scalars(receipts.execution_options(yield_per=_AT_ONCE)):
            if text is not None:
                yield ReceiptLine(receipt=Receipt.model_validate_json(text))
    yield heads(signer_of(session), accounts, chains)


def _tables(session: Session, owner_id: str | None) -> Iterator[NameLine | GrantLine]:
    """What tables call an owner, its datasets and its analysts now, and what its grants say."""
    grants = select(Grant).join(Dataset).order_by(Grant.dataset_id, Grant.analyst_id)
    owners, datasets, analysts = select(Owner), select(Dataset).where(~Dataset.ephemeral), select(Analyst)
    if owner_id is not None:
        grants, owners = grants.where(Dataset.owner_id == owner_id), owners.where(Owner.id == owner_id)
        datasets = datasets.where(Dataset.owner_id == owner_id)
        analysts = analysts.where(Analyst.id.in_(grants.with_only_columns(Grant.analyst_id).order_by(None)))
    for named in (owners.order_by(Owner.id), datasets.order_by(Dataset.id), analysts.order_by(Analyst.id)):
        for each in session.scalars(named.execution_options(yield_per=_AT_ONCE)):
            yield NameLine(id=each.id, name=each.name)
    for grant in session.scalars(grants.execution_options(yield_per=_AT_ONCE)):
        yield GrantLine(
            dataset=grant.dataset_id,
            analyst=grant.analyst_id,
            terms=Terms.of(grant).told(),
            revoked=grant.revoked_at is not None,
        )


def write_out(session: Session, owner_id: str, file: IO[bytes], form: Form = "jsonl") -> None:
    """Write all that the ledger says of one owner; the session's transaction must be a snapshot."""
    for line in (_as_csv if form == "csv" else as_jsonl)(lines(session, owner_id)):
        file.write(line.encode())


def as_jsonl(told: Iterable[Line]) -> Iterator[str]:
    """Export a ledger for `privest verify-ledger`."""
    for line in told:
        yield line.model_dump_json() + "\n"


def _as_csv(told: Iterable[Line]) -> Iterator[str]:
    """The entries alone, for tables."""
    yield ",".join(EntryLine.model_fields) + "\r\n"
    for line in told:
        if isinstance(line, EntryLine):
            yield (
                ",".join("" if v is None else str(v) for v in line.model_dump(mode="json").values()) + "\r\n"
            )


def chains_of(owner_id: str | None) -> Select[ActChain]:
    """Select the chain of an owner's acts, or all chains of acts."""
    found = select(ActChain).order_by(ActChain.id)
    return found if owner_id is None else found.where(ActChain.id == owner_id)


def heads(signer: Signer, accounts: Sequence[Account], acts: Sequence[ActChain] = ()) -> Heads:
    """Sign the ends of these accounts' chains, and of these chains of acts."""
    found = Heads(
        heads=[Head(account=each.id, seq=each.seq, hash=each.head) for each in accounts],
        acts=[ActHead(chain=each.id, seq=each.seq, hash=each.head) for each in acts],
        at=now().isoformat(timespec="microseconds"),
        signer=signer.id,
        signature="",
    )
    found.signature = signer.sign(to_sign(found))
    return found


def heads_of(session: Session, owner_id: str) -> Heads:
    """Sign the ends of all of an owner's chains. Raises NotFound: there is no such owner."""
    require_owner(session, owner_id)
    accounts = session.scalars(select(Account).where(Account.owner_id == owner_id).order_by(Account.id)).all()
    return heads(signer_of(session), accounts, session.scalars(chains_of(owner_id)).all())


def _account(session: Session, account: Account) -> AccountLine:
    datasets, analyst = list[str](), None
    if account.scope == "dataset":
        same = (Dataset.owner_id == account.owner_id, Dataset.lineage == account.subject)
        datasets = list(session.scalars(select(Dataset.id).where(*same).order_by(Dataset.created_at)))
    elif account.scope == "analyst":
        dataset, _, analyst = account.subject.partition("/")
        datasets = [dataset]
    return AccountLine(
        account=account.id,
        owner=account.owner_id,
        scope=account.scope,
        datasets=datasets,
        analyst=analyst,
        window=account.window,
        composition=account.composition,  # pyright: ignore[reportArgumentType]
        seq=account.seq,
        head=account.head,
        limit={name: getattr(account, f"{name}_limit") for name in AMOUNTS},
        spent={name: getattr(account, f"{name}_spent") for name in AMOUNTS},
        queries=account.queries,
    )


def _acts(session: Session, chain: ActChain) -> Iterator[ActLine]:
    statement = select(Act).where(Act.chain == chain.id).order_by(Act.seq)
    for act in session.scalars(statement.execution_options(yield_per=_AT_ONCE)):
        yield ActLine(**{name: getattr(act, name) for name in ACT_FIELDS})


def _entries(session: Session, account: Account) -> Iterator[EntryLine]:
    statement = (
        select(Entry)
        .where(Entry.account_id == account.id)
        .order_by(Entry.seq)
        .execution_options(yield_per=_AT_ONCE)
    )
    for entry in session.scalars(statement):
        told = {name: getattr(entry, name) for name in SHARED}
        yield EntryLine(account=entry.account_id, job=entry.job_id, **told)
