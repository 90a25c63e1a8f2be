"""Refusals of uploads, told by record index, field and rule; never by value."""

from privest_service.problems import Fault


class RefusedUploadError(Exception):
    """The upload breaks these rules."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(faults)
        self.faults = faults


def refusal(rule: str, record: int | None = None, field: str | None = None) -> RefusedUploadError:
    """An upload that breaks one rule."""
    return RefusedUploadError([Fault(record=record, field=field, rule=rule)])
