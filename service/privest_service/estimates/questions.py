"""Questions: requests, resolved against the public facts of their datasets."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import rfc8785
from sqlalchemy.orm import Session

from privest.metadata import DatasetMetadata
from privest.privacy.cost import PrivacyTarget
from privest_service.datasets import service as datasets
from privest_service.datasets.ingest import LEAST_RECORDS
from privest_service.datasets.models import Dataset, Grant
from privest_service.datasets.readers.layout import unit_of
from privest_service.datasets.schemas import SCHEMA, DatasetSchema
from privest_service.datasets.table_schema import TableSchema
from privest_service.datasets.terms import require_kind
from privest_service.estimates.catalogue import Kind
from privest_service.estimates.schemas import (
    DatasetPart,
    DatasetRef,
    EstimateRequest,
    InlineRef,
    InlineRows,
    RequestedPrivacy,
)
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account
from privest_service.ledger.units import chargeable
from privest_service.problems import Invalid
from privest_service.security.principals import Principal

_SHOWN = 10
"""Differences between two schemas that a refusal lists."""


def digest_of(content: Any) -> str:
    """SHA-256 of a JSON document in canonical form (RFC 8785)."""
    return hashlib.sha256(rfc8785.dumps(content)).hexdigest()


@dataclass(frozen=True)
class QueryTarget:
    """One dataset of a query, and the privacy of its records.

    Attributes:
        dataset_id: the dataset.
        owner_id: who is charged.
        shape: public facts of the dataset.
        target: (ε, δ) that the query is planned and charged with, in whole units of the ledger.
        requested: (ε, δ) as requested, by which the digest tells queries apart; None where it is the target.
    """

    dataset_id: str
    owner_id: str
    shape: DatasetMetadata
    target: PrivacyTarget
    requested: PrivacyTarget | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """The facts by which the digest tells this dataset and its privacy from others."""
        recipe = self.shape.recipe
        chosen: dict[str, Any] = {}
        if recipe is not None:
            chosen = {"columns": list(recipe.chosen), "label": recipe.label}
            # Left out where they are the usual ones, as digests of before have none.
            chosen |= {} if recipe.is_usual else {"indicators": recipe.indicators}
        requested = self.requested or self.target
        facts = {"dataset": self.dataset_id, "epsilon": requested.epsilon, "delta": requested.delta}
        return facts | chosen


@dataclass(frozen=True)
class ResolvedQuery:
    """A request, resolved against the public facts of its datasets."""

    caller_id: str
    kind: Kind
    about: tuple[QueryTarget, ...]
    options: dict[str, Any]
    dummy: bool = False
    approval: bool = False
    """Whether it waits for the approval of an owner."""
    at_sites: bool = False
    """Whether the rows are at sites of their owners, which run it together."""
    choice: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The columns that it chooses of tables, by the names of the request."""
    may_leave: int = 0
    """Sites that may stay away once all have begun."""

    @property
    def target(self) -> PrivacyTarget:
        """(ε, δ) that holds for the records of each of its datasets."""
        targets = [subject.target for subject in self.about]
        return PrivacyTarget(max(each.epsilon for each in targets), max(each.delta for each in targets))

    @cached_property
    def digest(self) -> str:
        """Digest of the datasets and the resolved choices. It does not depend on who asks."""
        facts = sorted((subject.facts for subject in self.about), key=lambda each: each["dataset"])
        about = facts[0] if len(facts) == 1 else {"datasets": facts}
        further: dict[str, Any] = {"dummy": True} if self.dummy else {}
        further |= {"may_leave": self.may_leave} if self.may_leave else {}
        return digest_of({"kind": self.kind.name, "options": self.options} | about | further)

    @cached_property
    def name(self) -> str:
        """All that its plan follows from, and whose it is: time would tell what others asked.

        It tells the order of the datasets, too, their sizes and what their budgets make of (ε, δ), of which
        the digest knows nothing.
        """
        about = (f"{each.dataset_id} {each.shape.n} {each.target}" for each in self.about)
        return " ".join([self.caller_id, self.digest, *about])


class Facts:
    """What requests follow from, read for all of them at once.

    Args:
        session: to read in.
        asked: callers, each with a request of theirs on registered datasets.
        rows: the dataset that was made of the rows which the one request brought, if it did.
    """

    def __init__(
        self, session: Session, asked: Sequence[tuple[Principal, EstimateRequest]], rows: str | None = None
    ) -> None:
        self._rows, self._schemas = rows, dict[str, DatasetSchema]()
        about = {(part.id, caller.id) for caller, request in asked for part in self.named(request)}
        self._found = datasets.Found(session, about)
        self._accounts = ledger.owners_accounts(session, self._found.owners)

    def named(self, request: EstimateRequest) -> list[DatasetPart]:
        """The datasets of a request; a list of one is that one."""
        about = request.dataset
        if self._rows is not None:
            return [DatasetPart(id=self._rows)]
        if isinstance(about, list):
            return about
        assert isinstance(about, DatasetRef)  # noqa: S101 - rows are registered first
        return [DatasetPart(id=about.id, dummy=about.dummy)]

    def length(self, request: EstimateRequest) -> int:
        """Characters of the schemas of a request's datasets, which tell how long it takes to resolve."""
        return sum(self._found.length(part.id) for part in self.named(request))

    def require_access(
        self, caller: Principal, dataset_id: str
    ) -> tuple[Dataset, DatasetSchema, Account, Grant | None]:
        """A dataset as `datasets.require_access` finds it, its schema, its owner's account and the grant."""
        dataset, grant = self._found.require_access(caller, dataset_id)
        schema = self._schemas.get(dataset_id)
        if schema is None:
            schema = self._schemas[dataset_id] = SCHEMA.validate_json(dataset.dataset_schema)
        return dataset, schema, self._accounts[dataset.owner_id], grant


def resolve(facts: Facts, caller: Principal, kind: Kind, request: EstimateRequest) -> ResolvedQuery:
    """Resolve a request on registered datasets, with the defaults that follow from public facts.

    Raises:
        GrantRefuses: the caller's grant has ended, or is for other estimators.
        Invalid: a dataset is of another kind.
        NotFound: the caller has no such dataset.
    """
    caller.must_be("owner", "analyst")
    named = facts.named(request)
    about, schemas, elsewhere, approval = list[QueryTarget](), list[DatasetSchema](), set[bool](), False
    for part in named:
        dataset, schema, account, grant = facts.require_access(caller, part.id)
        if grant is not None and not part.dummy:
            require_kind(grant, kind.name)
            approval = approval or grant.approval
        schemas.append(schema)
        privacy, shape = part.privacy or request.privacy, schema.shape(dataset.n)
        about.append(_subject(account, kind, request, privacy, dataset.id, shape))
        elsewhere.add(dataset.at_site is not None and not part.dummy)
    _refuse_unlike(schemas)
    if len(elsewhere) > 1:
        raise Invalid("Some of these datasets are at sites and some are here. Ask about either alone.")
    options, (at_sites,) = kind.resolved(request, about[0].shape), elsewhere
    if request.may_leave:
        _refuse_leaving(kind, about, request.may_leave, at_sites=at_sites)
    return ResolvedQuery(
        caller.id,
        kind,
        tuple(about),
        options,
        named[0].dummy,
        approval,
        at_sites,
        kind.choice(request),
        request.may_leave,
    )


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
    """What a schema says, by names; of a table by those of columns, whose order must be the same too."""
    if not isinstance(schema, TableSchema):
        return schema.model_dump()
    columns = {f"column {each.name}": (at, each.column()) for at, each in enumerate(schema.columns)}
    return schema.model_dump(exclude={"columns"}) | columns


def resolve_inline(
    session: Session, caller: Principal, kind: Kind, request: EstimateRequest
) -> ResolvedQuery:
    """Resolve a request on rows that came with it. Nothing of the rows is looked at but their number.

    Raises:
        Invalid: the rows are of another kind, or too few.
        Forbidden: the caller is no owner, who alone may bring rows.
    """
    caller.must_be("owner")
    given = inline_rows(request)
    unit = given.declared.unit
    whose = [row.get(unit.column) if isinstance(row, dict) else None for row in given.rows] if unit else []
    n = len(set(map(unit_of, whose))) if unit else len(given.rows)
    if n < LEAST_RECORDS:
        raise Invalid(f"A dataset must have at least {LEAST_RECORDS} records. Send more rows.")
    shape = given.declared.shape(n)
    facts = {"schema": given.declared.model_dump(mode="json"), "n": shape.n}
    name = f"inline {digest_of(facts)}"
    account = ledger.owner_account(session, caller.id)
    subject = _subject(account, kind, request, request.privacy, name, shape)
    return ResolvedQuery(caller.id, kind, (subject,), kind.resolved(request, subject.shape))


def inline_rows(request: EstimateRequest) -> InlineRows:
    """The rows that came with a request."""
    assert isinstance(request.dataset, InlineRef)  # noqa: S101 - of those alone
    return request.dataset.inline


def _subject(
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
