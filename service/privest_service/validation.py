"""What is wrong with a request, in plain words: fields and limits are named, and no submitted value is.

A column of a schema is called by its name, where that can be printed. An unknown field is named too if it
is spelled much as fields are here, in short lower-case words. Any other name might be a value in its place.
"""

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any, cast

from fastapi.exceptions import RequestValidationError

from privest_service.problems import Fault

MOST_FAULTS = 20
"""Most faults that are reported at a time."""

UNKNOWN = "is not a known field"
NO_JSON = "is not JSON, or names a field twice"

_LONGEST = 200
"""Characters of the name of a column."""

ONE_LINE = r"^[^\x00-\x1f\x7f]*$"
"""What names match."""

_OBJECT, _WHOLE, _NUMBER, _TRUTH = (
    "must be an object",
    "must be a whole number",
    "must be a number",
    "must be true or false",
)
_RULES = {
    "missing": "is missing",
    "union_tag_not_found": "is missing",
    "extra_forbidden": UNKNOWN,
    "json_invalid": NO_JSON,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "dict_type": _OBJECT,
    "list_type": "must be a list",
    "string_type": "must be a text",
    "bool_type": _TRUTH,
    "bool_parsing": _TRUTH,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "must be a finite number",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have at least {min_length} parts",
    "too_long": "must have at most {max_length} parts",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
}
"""Texts for validation errors by kind. They tell limits of the interface, never what was submitted."""

_ONE_OF = "must be one of: "

_SPELLED = re.compile(r"(?=.{1,40}$)[a-z]+([_-][a-z]+)*")
"""How fields are spelled, or nearly: lower-case words, with underscores or hyphens between them."""


def faults_of_request(error: RequestValidationError) -> list[Fault]:
    """The faults of a body, or of what stands in path, query and headers."""
    if isinstance(error.body, bytes):
        return [Fault(rule="must be JSON, sent with the header Content-Type: application/json")]
    found = list(islice(error.errors(), MOST_FAULTS))
    if error.body is None and any(each["loc"] == ("body",) for each in found):
        return [Fault(rule="the body is missing")]
    faults = list[Fault]()
    for each in found:
        source, *place = each["loc"]  # the first part says which of these it is in
        given = error.body if source == "body" else dict.fromkeys(place)
        faults += faults_of([each | {"loc": place}], given)
    return _merged(faults)


def faults_of(errors: Iterable[Any], given: Any) -> list[Fault]:
    """The first validation errors without inputs: the place by known field names, and the rule.

    Args:
        errors: as pydantic has them.
        given: what was validated.
    """
    return _merged(
        Fault(location=_place(error, given), field=_column(error, given), rule=rule_of(error))
        for error in islice(errors, MOST_FAULTS)
    )


def _merged(faults: Iterable[Fault]) -> list[Fault]:
    """One fault for each place: where a value fits none of several alternatives, all their values count."""
    found = dict[str | None, Fault]()
    for fault in faults:
        first = found.setdefault(fault.location, fault)
        if first is not fault and fault.rule.startswith(_ONE_OF) and first.rule.startswith(_ONE_OF):
            first.rule += f", {fault.rule.removeprefix(_ONE_OF)}"
    return list(found.values())


def _place(error: Any, given: Any) -> str | None:
    """Where an error is, by names of fields alone: pydantic puts those of alternatives between them."""
    place, here = list[str](), given
    for part in error["loc"]:
        if isinstance(here, dict) and part in here:
            here = cast("dict[Any, Any]", here)[part]
            place.append(str(part))
        elif isinstance(here, list) and isinstance(part, int) and part < len(cast("list[Any]", here)):
            here = cast("list[Any]", here)[part]
            place.append(str(part))
        elif error["type"] == "missing" and part == error["loc"][-1]:
            place.append(str(part))
    if error["type"] == "extra_forbidden":
        place = [*place[:-1], unknown(str(error["loc"][-1]))]
    elif error["type"].startswith("union_tag"):
        place += _quoted(error["ctx"]["discriminator"])
    return ".".join(place) or None


def _column(error: Any, given: Any) -> str | None:
    """The name of the column of a schema that an error is in, where it has one that can be told."""
    here, within, name = given, None, None
    for part in error["loc"]:
        try:
            here = here[part]
        except (KeyError, IndexError, TypeError):  # pydantic puts names of alternatives between
            continue
        if within == "columns" and isinstance(here, dict):
            name = cast("dict[Any, Any]", here).get("name")
        within = part
    return name if isinstance(name, str) and len(name) <= _LONGEST and name.isprintable() else None


def unknown(name: str) -> str:
    """An unknown field's name, where it may be told to whoever sent it."""
    return name if _SPELLED.fullmatch(name) else "(a field not in lower-case words)"


def rule_of(error: Any) -> str:
    """Return the rule that a validation error breaks, in plain words."""
    limits = error.get("ctx", {})
    for listed in ("expected_tags", "expected"):
        if known := _quoted(str(limits.get(listed, ""))):
            return _ONE_OF + ", ".join(known)
    if limits.get("pattern") == ONE_LINE:
        return "must be of one line, without control characters"
    if limits.get("min_length") == 1:
        return "must not be empty"
    if rule := _RULES.get(error["type"]):
        return rule.format(
            **{name: f"{it:g}" if isinstance(it, float) else it for name, it in limits.items()}
        )
    return error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)
