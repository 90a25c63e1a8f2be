"""What the service knows of a kind of estimate; each kind's own part is in a module of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from pydantic import BaseModel, TypeAdapter

from privest.estimators import federation
from privest.estimators.base import Plan
from privest.estimators.federation import Federated, Part
from privest.metadata import DatasetMetadata
from privest.privacy.cost import PrivacyTarget
from privest.privacy.oracle import Oracle
from privest_service.estimates.schemas import EstimateRequest, JobView, PlanView

P = TypeVar("P", bound=Plan)


def plans_of(plan: type[P]) -> TypeAdapter[P | Federated[P] | Part]:
    """Reads and writes an estimator's plans: on one dataset, on several, and what each owner of those has."""
    several: Any = Federated
    either: Any = plan | several[plan] | Part
    return TypeAdapter(either)


@dataclass(frozen=True)
class Kind:
    """One estimator, as the service knows it."""

    name: str
    title: str
    dataset_kind: str
    request: type[EstimateRequest]
    job: type[JobView]
    plan_view: type[PlanView]
    plan: Callable[[dict[str, Any], Any, PrivacyTarget], Plan]
    is_heavy: Callable[[dict[str, Any]], bool]
    """Whether a plan with these options takes long, and libraries that the web process does without."""
    plans: TypeAdapter[Any]
    run: Callable[[Any, Oracle], BaseModel]

    def options(self, request: EstimateRequest) -> dict[str, Any]:
        """The choices of a request that are this kind's own."""
        return request.model_dump(exclude=set(EstimateRequest.model_fields))

    def plan_for(
        self, options: dict[str, Any], about: Sequence[tuple[DatasetMetadata, PrivacyTarget]]
    ) -> Plan:
        """The plan of a question on one dataset or several, each with its target.

        Raises:
            ValueError: a choice is out of range, or the datasets do not go together.
        """
        try:
            if len(about) == 1:
                return self.plan(options, *about[0])
            shapes, targets = zip(*about, strict=True)
            return federation.plan(partial(self.plan, options), shapes, targets)
        except ArithmeticError:
            raise ValueError(
                "these choices are so small, so large or so far apart that float64 has no plan for them"
            ) from None

    def run_plan(self, plan: Plan, gates: Sequence[Oracle]) -> BaseModel:
        """The answer of a plan from gates, one for each of its datasets."""
        if isinstance(plan, Federated):
            return federation.run(cast("Federated[Plan]", plan), self.run, gates)
        return self.run(plan, *gates)

    @property
    def own_plan_fields(self) -> set[str]:
        """What this kind shows of its plans besides what every kind does."""
        return set(self.plan_view.model_fields) - set(PlanView.model_fields)
