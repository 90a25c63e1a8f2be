"""What people write into forms, read strictly: ASCII numbers, JSON, identifiers."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from privest_service import inputs
from privest_service.inputs import Id
from privest_service.ledger.schemas import Amount, NewBudget
from privest_service.ledger.views import largest_single
from privest_service.problems import Fault, Invalid

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_ID: TypeAdapter[str] = TypeAdapter(Id)


def texts(form: Mapping[str, Any]) -> dict[str, str]:
    """All that was written into a form, without blanks around it; files are left out."""
    return {name: value.strip() for name, value in form.items() if isinstance(value, str)}


def number(text: str, name: str) -> float:
    """A number.

    Raises:
        Invalid: it is none.
    """
    if not _NUMBER.fullmatch(text):
        raise Invalid(faults=[Fault(location=name, rule="must be a number, like 0.5 or 1e-6")])
    return float(text)


def largest_of_form(given: Mapping[str, str], composition: str) -> Amount:
    """Return the largest single question of a budget or cap as a form has it, before it is saved.

    Raises:
        Invalid: the form holds no such budget.
    """
    amounts = {name: number(given.get(name, ""), name) for name in ("epsilon", "delta")}
    budget = inputs.checked(NewBudget.model_validate, {**amounts, "composition": composition})
    return largest_single(budget.limits())


def from_json(text: str, name: str, rule: str) -> Any:
    """A document.

    Raises:
        Invalid: it is none.
    """
    try:
        return inputs.from_json(text)
    except (ValueError, RecursionError):
        raise Invalid(faults=[Fault(location=name, rule=rule)]) from None


def identifier(form: Mapping[str, Any], name: str) -> str:
    """The id of something.

    Raises:
        Invalid: nothing has such an id.
    """
    try:
        return _ID.validate_python(form.get(name, ""))
    except ValidationError:
        raise Invalid(faults=[Fault(location=name, rule="is not the id of anything")]) from None
