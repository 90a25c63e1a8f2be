"""Every estimator as the interface has it: requests, jobs and plans, made from its declaration in core."""

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from typing_extensions import TypeAliasType

from privest.data.metadata import DatasetMetadata, LabelledMetadata
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.estimators.base import Finding
from privest.estimators.federation import Plan
from privest.estimators.registry import ESTIMATORS
from privest.estimators.uncertainty import Uncertainty
from privest_service.declarations import about, content, model, options, shown, view
from privest_service.estimates.plans import AnyEstimator, Subjects, plan_for, stored_plans
from privest_service.estimates.schemas import (
    ColumnsRequest,
    EstimateRequest,
    JobView,
    LabelRequest,
    PlanPrivacy,
    PlanView,
)
from privest_service.inputs import like


def _frozen(given: Any) -> Any:
    return tuple(given) if isinstance(given, list) else given


def of_all(request: type[EstimateRequest]) -> set[str]:
    """The fields of a request that are no options of its estimator: those that choose columns among them."""
    return {name for base in request.__mro__[1:] for name in getattr(base, "model_fields", ())}


_FORECAST = "the plan's `expected_error`, to be held against `uncertainty`"

_FINDING = Annotated[
    view(Finding) | None, Field(description="null where a run looks for nothing that a schema might declare")
]


@dataclass(frozen=True)
class Kind:
    """One estimator, as the service knows it.

    Attributes:
        estimator: its declaration.
        request: what it is asked with.
        plan_request: what it is planned with, where ε need not be known.
        job: what answers that.
        plan_view: how an analyst reads its plans.
    """

    estimator: AnyEstimator
    request: type[EstimateRequest]
    plan_request: type[EstimateRequest]
    job: type[JobView]
    plan_view: type[PlanView]

    @property
    def name(self) -> str:
        """The name in paths and in the ledger."""
        return self.estimator.name

    @property
    def dataset_kind(self) -> str:
        """The kind of datasets that it takes."""
        return self.estimator.metadata.kind

    @property
    def plans(self) -> TypeAdapter[Any]:
        """Reads and writes its plans."""
        return stored_plans(self.estimator)

    def options(self, request: EstimateRequest) -> dict[str, Any]:
        """The choices of a request that are this kind's own."""
        return request.model_dump(exclude=of_all(type(request)))

    def resolved(self, request: EstimateRequest, shape: DatasetMetadata) -> dict[str, Any]:
        """The choices of a request, with defaults by the data: to leave one out is to ask the same."""
        given, defaults = self.options(request), self.estimator.defaults(shape)
        return given | {name: value for name, value in defaults.items() if given[name] is None}

    def choice(self, request: EstimateRequest) -> dict[str, Any]:
        """The columns that a request chooses of a table, by the names of its fields."""
        return request.model_dump(include=of_all(type(request)) - set(EstimateRequest.model_fields))

    def metadata_of(self, shape: DatasetMetadata, request: EstimateRequest) -> DatasetMetadata:
        """What this kind takes of a dataset: the columns that a request chooses of a table, else all of it.

        Raises:
            ValueError: the dataset is of another kind, or has no such columns.
        """
        given = self.choice(request)
        if isinstance(shape, TableMetadata):
            choice = TableChoice(**{name: _frozen(value) for name, value in given.items()})
            return metadata_for(self.estimator.metadata, shape, choice)
        if not isinstance(shape, self.estimator.metadata):
            raise ValueError(
                f"{self.name} needs a dataset of kind {self.dataset_kind} or a table. "
                f"This one is of kind {shape.kind}."
            )
        if chosen := [name for name, value in given.items() if value is not None]:
            raise ValueError(
                f"{' and '.join(chosen)} choose of a table. This dataset is of kind {shape.kind}."
            )
        return shape

    def certificates(self, options: dict[str, Any]) -> int:
        """Return the number of certificates that a plan takes for each dataset: see `Estimator`.

        Raises:
            ValueError: a choice is out of range.
        """
        return self.estimator.certificates(self.estimator.spec.of(options))

    def plan_for(self, options: dict[str, Any], about: Subjects) -> Plan:
        """The plan of a question on one dataset or several; see `plans.plan_for`."""
        return plan_for(self.estimator, options, about)


def kind_of(estimator: AnyEstimator) -> Kind:
    """An estimator with its schemas."""
    name, title = estimator.schema_name, estimator.title[:1].upper() + estimator.title[1:]
    spec, plan = estimator.spec, estimator.plan_type
    error = estimator.error.__name__
    forecast = view(estimator.error, error.replace("Error", "Forecast"))
    uncertainty = _uncertainty(estimator.error, error.replace("Error", "Uncertainty"))
    answer = model(f"{name}Estimate", about(estimator.answer), _without(estimator.answer, "uncertainty"))
    planned = {"privacy": (Annotated[PlanPrivacy, like({"epsilon": 0.5})], ...)}
    return Kind(
        estimator,
        request=model(f"{name}Request", about(spec), options(spec), _base(estimator)),
        plan_request=model(f"{name}PlanRequest", about(spec), options(spec) | planned, _base(estimator)),
        job=model(
            f"{name}Job",
            f"{title}: a job, with its answer once it is committed.",
            {
                "kind": (Literal[estimator.name], ...),
                "estimate": (answer | None, None),
                "uncertainty": (uncertainty | None, None),
                "forecast": (Annotated[forecast | None, Field(description=_FORECAST)], None),
            },
            JobView,
        ),
        plan_view=model(
            f"{name}PlanView",
            f"{title}: a plan.",
            {"kind": (Literal[estimator.name], ...)}
            | {field: (shown(plan, field), ...) for field in estimator.shown}
            | {"expected_error": (forecast, ...), "finding": (_FINDING, None)},
            PlanView,
        ),
    )


def _base(estimator: AnyEstimator) -> type[EstimateRequest]:
    """The base of an estimator's requests, by what they may choose of a table."""
    return LabelRequest if estimator.metadata is LabelledMetadata else ColumnsRequest


def _without(owner: type[Any], *names: str) -> dict[str, Any]:
    """The fields of a dataclass in an answer, but for some."""
    return {name: field for name, field in content(owner).items() if name not in names}


def _uncertainty(error: type[Any], name: str) -> type[Any]:
    """The model of an answer's uncertainty: old answers have a forecast's fields alone."""
    found = {field: (hint | None, None) for field, (hint, _) in content(Uncertainty).items()}
    return model(name, about(Uncertainty), found | _without(error, "assumes", "unfavourable"))


KINDS = {name: kind_of(estimator) for name, estimator in ESTIMATORS.items()}
"""Every kind of estimate by the name of its estimator."""

_ANY: Any = reduce(or_, [kind.job for kind in KINDS.values()])

Job = TypeAliasType("Job", Annotated[_ANY, Field(discriminator="kind")])  # pyright: ignore[reportInvalidTypeForm]
"""A job of any kind: one schema of the interface, whose members programs tell apart by `kind`."""
