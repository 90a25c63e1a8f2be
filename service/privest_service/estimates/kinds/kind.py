"""What the service knows of a kind of estimate; each kind's own part is in a module of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, TypeAdapter

from privest.privacy.certificates import Release
from privest.privacy.cost import Cost, PrivacyTarget
from privest.privacy.statistic import Statistic
from privest.shapes import Shape
from privest.solvers.gradient_descent import Oracle
from privest_service.estimates.schemas import EstimateRequest, JobView, PlanView


class Plan(Protocol):
    """What every plan of the core has."""

    @property
    def target(self) -> PrivacyTarget:
        """As requested."""
        ...

    @property
    def shape(self) -> Shape:
        """Public facts of the data."""
        ...

    @property
    def statistics(self) -> Mapping[str, Statistic]:
        """What the gate may sum."""
        ...

    @property
    def cost(self) -> Cost:
        """As certified."""
        ...

    @property
    def releases(self) -> tuple[Release, ...]:
        """What the gate will answer."""
        ...

    @property
    def steps(self) -> int:
        """Of the whole run."""
        ...

    @property
    def expected_error(self) -> Any:
        """By the noise, from public facts."""
        ...

    @property
    def mechanism(self) -> str:
        """In words."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """For the analyst."""
        ...


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

    @property
    def own_plan_fields(self) -> set[str]:
        """What this kind shows of its plans besides what every kind does."""
        return set(self.plan_view.model_fields) - set(PlanView.model_fields)
