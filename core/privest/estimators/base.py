"""What the plans of all estimators have in common."""

from collections.abc import Mapping
from typing import Any, Protocol

from privest.metadata import DatasetMetadata
from privest.privacy.cost import Cost, PrivacyTarget
from privest.privacy.mechanisms import Release
from privest.privacy.statistic import AnyStatistic


class Plan(Protocol):
    """Everything about a run, before any row is read; a dataclass."""

    @property
    def target(self) -> PrivacyTarget:
        """As requested."""
        ...

    @property
    def shape(self) -> DatasetMetadata:
        """Public facts of the data."""
        ...

    @property
    def statistics(self) -> Mapping[str, AnyStatistic]:
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
