"""Every estimator as the interface has it: requests, jobs and plans, made from its declaration in core."""

from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from privest.estimators.federation import Plan
from privest.estimators.registry import ESTIMATORS
from privest.estimators.uncertainty import Uncertainty
from privest_service.declarations import about, content, model, options, shown, view
from privest_service.estimates.plans import AnyEstimator, Subjects, plan_for, stored_plans
from privest_service.estimates.schemas import EstimateRequest, JobView, PlanView


@dataclass(frozen=True)
class Kind:
    """One estimator, as the service knows it.

    Attributes:
        estimator: its declaration.
        request: what it is asked with.
        job: what answers that.
        plan_view: how an analyst reads its plans.
    """

    estimator: AnyEstimator
    request: type[EstimateRequest]
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
        return request.model_dump(exclude=set(EstimateRequest.model_fields))

    def is_heavy(self, options: dict[str, Any]) -> bool:
        """Whether a plan with these options takes long, or libraries that the web process does without.

        Raises:
            ValueError: a choice is out of range.
        """
        return self.estimator.is_heavy(self.estimator.spec(**options))

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
    return Kind(
        estimator,
        request=model(f"{name}Request", about(spec), options(spec), EstimateRequest),
        job=model(
            f"{name}Job",
            f"{title}: a job, with its answer once it is committed.",
            {"estimate": (answer | None, None), "uncertainty": (uncertainty | None, None)},
            JobView,
        ),
        plan_view=model(
            f"{name}PlanView",
            f"{title}: a plan.",
            {field: (shown(plan, field), ...) for field in estimator.shown}
            | {"expected_error": (forecast, ...)},
            PlanView,
        ),
    )


def _without(owner: type[Any], *names: str) -> dict[str, Any]:
    """The fields of a dataclass in an answer, but for some."""
    return {name: field for name, field in content(owner).items() if name not in names}


def _uncertainty(error: type[Any], name: str) -> type[Any]:
    """The model of an answer's uncertainty: old answers have a forecast's fields alone."""
    found = {field: (hint | None, None) for field, (hint, _) in content(Uncertainty).items()}
    return model(name, about(Uncertainty), found | _without(error, "assumes", "unfavourable"))


KINDS = {name: kind_of(estimator) for name, estimator in ESTIMATORS.items()}
"""Every kind of estimate by the name of its estimator."""
