"""Submitting queries: requests are resolved, planned and charged, and their jobs put in the queue."""

import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog
from cachetools import FIFOCache
from sqlalchemy import select
from sqlalchemy.orm import Session

from privest.data.metadata import DatasetMetadata
from privest.estimators.federation import Federated, Plan
from privest.memo import memoized
from privest.privacy.accounting import Cost, PrivacyTarget
from privest.privacy.mechanisms import Release, SubsampledSum
from privest_service.database import Database
from privest_service.datasets import registration
from privest_service.datasets import service as datasets
from privest_service.datasets.ingest import LEAST_RECORDS
from privest_service.datasets.readers.layout import unit_of
from privest_service.datasets.registration import Registrar
from privest_service.datasets.schemas import SCHEMA, DatasetSchema
from privest_service.datasets.table_schema import TableSchema
from privest_service.datasets.terms import require_kind
from privest_service.estimates import refusals
from privest_service.estimates.catalogue import Kind
from privest_service.estimates.charging import (
    Answer,
    EstimateCommand,
    PlannedQuery,
    Rules,
    charge,
    replayed,
)
from privest_service.estimates.questions import QueryTarget, ResolvedQuery, digest_of
from privest_service.estimates.schemas import (
    FINAL,
    DatasetPart,
    DatasetRef,
    EstimateRequest,
    InlineRef,
    InlineRows,
    RequestedPrivacy,
    SecondOpinion,
)
from privest_service.estimates.tasks import joint_job, opinion_job, plan_job
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job
from privest_service.ledger import entries
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account
from privest_service.ledger.units import chargeable
from privest_service.limits import ChargeLine, in_thread
from privest_service.problems import (
    AccountFrozen,
    BudgetExceeded,
    DatabaseUnavailable,
    GrantRefuses,
    Invalid,
    NotFound,
    TooManyRequests,
    Unavailable,
    in_place,
)
from privest_service.security.principals import Principal
from privest_service.telemetry import traces

_SHOWN = 10
"""Differences between two schemas that a refusal lists."""

_ROOM = 2**25
"""Most characters of the cache: of all plans and second opinions, with their names."""

_MOST_FREE_WORK = 24
"""Most certificates of a plan that is not charged: about 5 s on an idle processor."""

log = structlog.get_logger()


class Query(NamedTuple):
    """A request for an estimate of one kind."""

    kind: Kind
    request: EstimateRequest


@dataclass(frozen=True)
class Submissions:
    """Submits queries: they are charged, and their jobs put in the queue.

    Attributes:
        database: of keys, jobs and budgets.
        planner: of queries.
        notify: called when jobs were charged.
        secret: of the service, which keys the digests of rows.
        rules: of the operator.
    """

    database: Database
    planner: "Planner"
    notify: Callable[[], None]
    secret: bytes = field(repr=False)
    rules: Rules
    _line: ChargeLine = field(default_factory=ChargeLine, init=False, repr=False)

    async def submit(
        self, caller: Principal, asked: Query | Sequence[Query], key: str, registrar: Registrar | None = None
    ) -> list[Answer]:
        """Resolve, plan and charge queries and put their jobs in the queue, or find jobs that answer them.

        Of a list all are charged, or none. Rows that came with a query become a dataset of the caller's until
        it is answered.

        Args:
            caller: who submits them.
            asked: one query, or a list of queries on registered datasets.
            key: the idempotency key; each of a list has it with its place.
            registrar: registers rows that came with a query; None where none may.

        Raises:
            Problem: whatever refuses one of them; nothing is then charged or kept, and the key stays free.
        """
        answers, planned = await in_thread(lambda: self._prepare(self.commands(caller, asked, key)))
        if answers:
            return answers
        command = planned[0].command
        if registrar is not None and isinstance(command.request.dataset, InlineRef):
            return await self._submit_rows(command, registrar)
        return await self._charge_in_turn(planned)

    def commands(self, caller: Principal, asked: Query | Sequence[Query], key: str) -> list[EstimateCommand]:
        """Requests with what their keys are bound to: of a list each key is bound to all of the list."""
        if isinstance(asked, Query):
            return [EstimateCommand(caller, *asked, key, self._digest(asked))]
        together = digest_of([self._digest(each) for each in asked])
        return [
            EstimateCommand(caller, *each, f"{key} {at}", digest_of({"of": together, "place": at}), at)
            for at, each in enumerate(asked)
        ]

    def _digest(self, asked: Query) -> str:
        kind, request = asked
        body = request.model_dump(mode="json")
        body |= {name: value for name, value in kind.estimator.unset.items() if body[name] is None}
        if isinstance(request.dataset, InlineRef):
            # Not everything in rows has a canonical form; and their digest outlives them, so it has a key.
            rows = json.dumps(request.dataset.inline.rows).encode()
            body["dataset"]["inline"]["rows"] = hmac.new(self.secret, rows, hashlib.sha256).hexdigest()
        return digest_of({"kind": kind.name, "body": body})

    def _prepare(
        self, commands: Sequence[EstimateCommand], rows: str | None = None
    ) -> tuple[list[Answer], list[PlannedQuery]]:
        """Find what answers requests already, or else resolve and plan their queries.

        Args:
            commands: the requests.
            rows: the dataset that was made of the rows that came with the one request.
        """
        try:
            with self.database.read() as session:
                if answers := replayed(session, commands):
                    return answers, []
                queries = [
                    in_place(each.place, resolve_query, session, each.caller, each.kind, each.request, rows)
                    for each in commands
                ]
                inline, more = isinstance(commands[0].request.dataset, InlineRef), len(queries)
                if inline or more > 1 or self.planner.is_heavy(queries[0]):  # else much is done for nothing
                    most, (caller, dummy) = self.rules.max_waiting, (commands[0].caller, queries[0].dummy)
                    jobs.require_room(session, caller.id, most, dummy=dummy, more=more)
        except GrantRefuses as refused:
            refusals.record(self.database, refused, commands[refused.place or 0])
            raise
        planned = [
            in_place(command.place, self._planned, command, query)
            for command, query in zip(commands, queries, strict=True)
        ]
        if inline and rows is None:
            self._require_budget(planned[0])
        return [], planned

    def _planned(self, command: EstimateCommand, query: ResolvedQuery) -> PlannedQuery:
        """Plan a query; one of a list can neither be free nor wait for an approval."""
        if command.place is not None and query.dummy:
            raise Invalid("It is about synthetic rows, and free. Ask it by itself.")
        if command.place is not None and query.approval:
            raise Invalid("It waits for an owner's approval. Ask it by itself.")
        with traces.step("plan"):
            plan = self.planner.make_plan(query, free=query.dummy)
        return PlannedQuery.of(command, query, plan)

    def _require_budget(self, planned: PlannedQuery) -> None:
        """Require that the budget covers a query before the rows that came with it are registered."""
        with self.database.read() as session:
            account = ledger.owner_account(session, planned.command.caller.id)
        try:
            entries.require_room([account], [amount for amount, _ in planned.charges])
        except BudgetExceeded as refused:
            raise refusals.explain(self.database, refused, planned) from None

    async def _charge_in_turn(self, planned: Sequence[PlannedQuery]) -> list[Answer]:
        """Charge queries once this process charges no other of the same caller, or of one of their owners.

        A busy owner, or one whose rows another process holds, would else take all threads and connections.
        Callers come first, so that one of a caller's queries waits for its owners at a time.
        """
        charged = {target.owner_id for each in planned if not each.query.dummy for target in each.query.about}
        keys = [f"caller {planned[0].command.caller.id}", *sorted(charged)]
        return await self._line.run(keys, lambda: self.charge(planned))

    def charge(self, planned: Sequence[PlannedQuery]) -> list[Answer]:
        """Charge planned queries of one caller and put their jobs in the queue: all of them or none.

        Raises:
            Problem: whatever refuses one of them, as the caller may know it; of a list with its place.
        """
        try:
            with traces.step("charge"):
                answers = self.database.run(lambda session: charge(session, planned, self.rules))
        except (GrantRefuses, BudgetExceeded, AccountFrozen) as refused:
            which = planned[refused.place or 0]
            known = refusals.as_known(self.database, refused, which)
            if known is refused and which.command.place is not None:
                known.detail = f"Question {which.command.place + 1}: {known.detail or known.title}"
            raise known from None
        self.notify()
        for answer in answers:
            log.info(f"job {answer.fresh.job.state}" if answer.fresh else "job known", job=answer.job_id)
        return answers

    async def _submit_rows(self, command: EstimateCommand, registrar: Registrar) -> list[Answer]:
        """Charge a query on rows that came with it: a dataset of the caller's until it is answered."""
        given = _inline_rows(command.request)
        made = await registrar.register(
            command.caller.id,
            registration.inline(given.rows),
            given.declared,
            rows_of=given.rows_of,
            ephemeral=True,
        )
        kept = False
        try:
            answers, planned = await in_thread(self._prepare, [command], made.dataset.id)
            answers = answers or await self._charge_in_turn(planned)
            kept = any(answer.fresh is not None for answer in answers)
            return answers
        except DatabaseUnavailable:  # perhaps it was charged: if not, `sweep` drops the rows
            kept = True
            raise
        finally:
            if not kept:
                await in_thread(registrar.forget, made.dataset)


def is_over(database: Database, job_id: str) -> bool:
    """Whether nothing is worth a wait any more: a job has reached its end, or waits for an owner."""
    with database.read() as session:
        state = session.scalar(select(Job.state).where(Job.id == job_id))
    return state == "requested" or state in FINAL


def require_job(session: Session, caller: Principal, job_id: str) -> Job:
    """A job that the caller submitted, or that was charged to it.

    Raises:
        NotFound: there is none for this caller.
    """
    job = session.get(Job, job_id)
    if job is None or caller.id not in (job.submitter_id, job.owner_id):
        raise NotFound
    return job


# Resolving


def resolve_query(
    session: Session, caller: Principal, kind: Kind, request: EstimateRequest, rows: str | None = None
) -> ResolvedQuery:
    """Resolve a request with the defaults that follow from public facts of its datasets.

    Args:
        session: to read in.
        caller: who asks.
        kind: of the estimate.
        request: for it, on registered datasets or with rows of its own.
        rows: the dataset that was made of those rows, once it was.

    Raises:
        Forbidden: rows came with the request of somebody who is no owner.
        GrantRefuses: the caller's grant has ended, or is for other estimators.
        Invalid: a dataset is of another kind, or has too few rows.
        NotFound: the caller has no such dataset.
    """
    caller.must_be("owner", "analyst")
    if isinstance(request.dataset, InlineRef) and rows is None:
        return _resolve_inline(session, caller, kind, request)
    named = [DatasetPart(id=rows)] if rows is not None else _datasets_of(request)
    accesses = datasets.access(session, caller, [part.id for part in named])
    accounts = ledger.owners_accounts(session, {dataset.owner_id for dataset, _ in accesses})
    schemas = [_schema(dataset.dataset_schema) for dataset, _ in accesses]
    targets, elsewhere, approval = list[QueryTarget](), set[bool](), False
    for part, (dataset, grant), schema in zip(named, accesses, schemas, strict=True):
        if grant is not None and not part.dummy:
            require_kind(grant, kind.name)
            approval = approval or grant.approval
        privacy, shape = part.privacy or request.privacy, schema.shape(dataset.n)
        targets.append(_target(accounts[dataset.owner_id], kind, request, privacy, dataset.id, shape))
        elsewhere.add(dataset.at_site is not None and not part.dummy)
    _refuse_unlike(schemas)
    if len(elsewhere) > 1:
        raise Invalid("Some of these datasets are at sites and some are here. Ask about either alone.")
    options, (at_sites,) = kind.resolved(request, targets[0].shape), elsewhere
    if request.may_leave:
        _refuse_leaving(kind, targets, request.may_leave, at_sites=at_sites)
    return ResolvedQuery(
        caller.id,
        kind,
        tuple(targets),
        options,
        named[0].dummy,
        approval,
        at_sites,
        kind.choice(request),
        request.may_leave,
    )


def _datasets_of(request: EstimateRequest) -> list[DatasetPart]:
    """The datasets of a request; a list of one is that one."""
    about = request.dataset
    if isinstance(about, list):
        return about
    assert isinstance(about, DatasetRef)  # noqa: S101 - rows are registered first
    return [DatasetPart(id=about.id, dummy=about.dummy)]


@memoized
def _schema(text: str) -> DatasetSchema:
    """A schema from its JSON, read once in a request."""
    return SCHEMA.validate_json(text)


def _refuse_leaving(kind: Kind, about: Sequence[QueryTarget], may_leave: int, *, at_sites: bool) -> None:
    """Refuse to go on without sites where none would be left, or the answer would state errors still."""
    if not at_sites or may_leave >= len(about):
        raise Invalid("may_leave is for datasets at sites, of which at least one has to stay.")
    if not kind.estimator.errors_apart or about[0].shape.recipe is not None:
        raise Invalid(
            f"may_leave is not for {kind.name} here: its answer states an error for each number, which would "
            "not be true any more. It is for estimates of records that are no rows of a table."
        )


def _refuse_unlike(schemas: Sequence[DatasetSchema]) -> None:
    """Refuse datasets whose records are not of one kind: what was made of raw rows, and what a record is.

    Raises:
        Invalid: these are not.
    """
    first, *others = map(_facts, schemas)
    unlike = {name for other in others for name in first | other if other.get(name) != first.get(name)}
    if unlike:
        told = ", ".join(sorted(unlike)[:_SHOWN]) + (", …" if len(unlike) > _SHOWN else "")
        raise Invalid(f"All datasets of one question must have the same schema. These differ in {told}.")


def _facts(schema: DatasetSchema) -> dict[str, Any]:
    """A schema's declarations by name; those of a table's columns with their places."""
    if not isinstance(schema, TableSchema):
        return schema.model_dump()
    columns = {f"column {each.name}": (at, each.column()) for at, each in enumerate(schema.columns)}
    return schema.model_dump(exclude={"columns"}) | columns


def _resolve_inline(
    session: Session, caller: Principal, kind: Kind, request: EstimateRequest
) -> ResolvedQuery:
    """Resolve a request on rows that came with it, of which only the number of records is read.

    Raises:
        Invalid: the rows are of another kind, or too few.
        Forbidden: the caller is no owner, who alone may bring rows.
    """
    caller.must_be("owner")
    given = _inline_rows(request)
    unit = given.declared.unit
    whose = [row.get(unit.column) if isinstance(row, dict) else None for row in given.rows] if unit else []
    n = len(set(map(unit_of, whose))) if unit else len(given.rows)
    if n < LEAST_RECORDS:
        raise Invalid(f"A dataset must have at least {LEAST_RECORDS} records. Send more rows.")
    shape = given.declared.shape(n)
    facts = {"schema": given.declared.model_dump(mode="json"), "n": shape.n}
    name = f"inline {digest_of(facts)}"
    account = ledger.owner_account(session, caller.id)
    target = _target(account, kind, request, request.privacy, name, shape)
    return ResolvedQuery(caller.id, kind, (target,), kind.resolved(request, target.shape))


def _inline_rows(request: EstimateRequest) -> InlineRows:
    """The rows that came with a request."""
    assert isinstance(request.dataset, InlineRef)  # noqa: S101 - of those alone
    return request.dataset.inline


def _target(
    account: Account,
    kind: Kind,
    request: EstimateRequest,
    privacy: RequestedPrivacy,
    dataset_id: str,
    shape: DatasetMetadata,
) -> QueryTarget:
    """A dataset of this id, of the owner of an account, as a request is about it.

    Raises:
        Invalid: it is of a kind that the estimator does not take, or has no such columns.
    """
    try:
        asked = kind.metadata_of(shape, request)
    except ValueError as error:
        raise Invalid(str(error)) from None
    delta = privacy.delta
    if delta is None:
        pure = account.composition == "basic" and account.delta_limit == 0
        delta = 0.0 if pure else shape.n**-1.5
    requested = PrivacyTarget(privacy.epsilon, delta, ledger.limits_of(account).slack_per_mu_squared)
    return QueryTarget(dataset_id, account.owner_id, asked, chargeable(requested), requested)


# Planning


class Planner:
    """Makes plans and caches, as text, what planning processes made; the oldest entry is dropped first.

    Names of entries contain the caller's id, so that no caller's plan is faster because of another's.

    Args:
        call_worker: calls a function in a planning process; that of `Workers`.
    """

    def __init__(self, call_worker: Callable[..., str]) -> None:
        self._call_worker = call_worker
        self._kept = FIFOCache[str, tuple[str, str]](_ROOM, getsizeof=lambda entry: sum(map(len, entry)))
        self._lock = threading.Lock()

    def is_heavy(self, query: ResolvedQuery) -> bool:
        """Return true if a planning process makes the plan of a query."""
        try:
            return query.kind.certificates(query.options) > 0
        except ValueError:  # which `make_plan` says in words
            return False

    def make_plan(self, question: ResolvedQuery, *, free: bool = True) -> Plan:
        """Return the plan of a question.

        Args:
            question: to be planned.
            free: whether nothing will be charged for it. Such plans come after others, and their work is
                limited.

        Raises:
            Invalid: an option is out of range, or a free plan takes too much work.
            TooManyRequests: too many plans of the caller's are being made.
            Unavailable: the worker did not come to an end, or too many plans are being made.
        """
        kind, options = question.kind, question.options
        about = [(subject.shape, subject.target) for subject in question.about]
        try:
            certificates = kind.certificates(options)
            if not certificates:
                return kind.plan_for(options, about)
            if free and certificates * len(about) > _MOST_FREE_WORK:
                raise Invalid(
                    f"This query samples random batches from {len(about)} datasets. With these options a "
                    f"plan that is not charged covers at most {_MOST_FREE_WORK // certificates}. Plan it for "
                    "fewer datasets, choose a solver that reads all records in each step, or submit the "
                    "query without planning it first."
                )
            priority = "free" if free else "charged"
            made = self._cached(
                f"plan {question.name}",
                lambda: self._call_worker(
                    question.caller_id, plan_job, kind.name, options, about, priority=priority
                ),
            )
        except ValueError as error:
            raise Invalid(str(error)) from None
        return kind.plans.validate_json(made)

    def second_opinion(self, question: ResolvedQuery, planned: Plan) -> SecondOpinion | None:
        """Return the ε of a plan by another accountant, which a planning process asks.

        Return None if the process is lost, or if any plan is being made or waits.

        Only the plan route asks for it. Nothing that is charged or stored depends on it. For several datasets
        it is that of the dataset with the largest privacy loss.
        """
        asked = planned.most if isinstance(planned, Federated) else planned
        try:
            made = self._cached(
                f"opinion {question.name}",
                lambda: self._call_worker(
                    question.caller_id, opinion_job, asked.releases, asked.target.delta, priority="idle"
                ),
            )
        except (TooManyRequests, Unavailable):
            return None
        return SecondOpinion.model_validate_json(made)

    def joint_cost(self, caller_id: str, runs: Sequence[Sequence[Release]], most: Cost) -> Cost | None:
        """Return the joint cost of runs over the same records; None if no worker can compute it now.

        Args:
            caller_id: who asks.
            runs: the releases of each.
            most: what they cost one after another.
        """
        batched = (isinstance(each, SubsampledSum) for releases in runs for each in releases)
        if len(runs) < 2 or not any(batched):
            return most
        try:
            told = self._call_worker(caller_id, joint_job, runs, most.slack)
        except (TooManyRequests, Unavailable):
            return None
        mu_squared, slack = json.loads(told)
        return min(Cost(mu_squared, slack), most, key=lambda cost: cost.mu_squared)

    def _cached(self, name: str, make: Callable[[], str]) -> str:
        """Return the text cached under a name; make and cache it if there is none."""
        with self._lock:
            entry = self._kept.get(name)
        if entry is not None:
            return entry[1]
        text = make()
        with self._lock:
            if len(name) + len(text) <= _ROOM:
                self._kept[name] = name, text
        return text
