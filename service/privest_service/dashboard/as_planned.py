"""Whether an answer is as near as its plan foretold, in one sentence, and what to do where it is not."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from privest.estimators.federation import Federated, Part, Plan
from privest_service.reports.formatting import number


@dataclass(frozen=True)
class AsPlanned:
    """What was foretold and what came of it.

    Attributes:
        told: the accuracy that the plan foretold beside that of the answer, in words.
        reached: whether the answer is at least as near.
        times: by how much ε would have to grow, at least, to come as near; 1 where it is.
        clipped: whether most of the distance is by what was clipped, which more ε alone does not mend.
    """

    told: str
    reached: bool
    times: float
    clipped: bool


_ROUNDED = 1 + 1e-9
"""Factor on an error that covers the rounding of an interval's ends."""

_MOST = 3
"""Most columns that are named."""


def as_planned(
    plan: Plan | Part | None, answer: dict[str, Any], found: dict[str, Any] | None, unit: str
) -> AsPlanned | None:
    """Compare an answer with its plan; None where either says nothing of its accuracy.

    Args:
        plan: of the answer.
        answer: as the interface tells it, without its uncertainty.
        found: that uncertainty.
        unit: of distances, with a space.
    """
    if plan is None or isinstance(plan, Part) or not found:
        return None
    named = list(_of_columns(plan, answer))
    foretold = getattr(plan.expected_error, plan.expected_error.WITHIN, None)
    if not named and foretold:
        named = [("", foretold, found["radius_95"])]
    if not named:
        return None
    missed = (each for each in named if each[2] > each[1] * _ROUNDED)
    further = sorted(missed, key=lambda each: each[1] / each[2])
    case = " for an unfavourable case" if plan.expected_error.WITHIN == "unfavourable" else ""
    told = [_told(*each, unit, case) for each in (further or named)[:_MOST]]
    rest = len(further or named) - len(told)
    return AsPlanned(
        told="; ".join(told) + (f"; and {rest} more" if rest else ""),
        reached=not further,
        times=further[0][2] / further[0][1] if further else 1.0,
        clipped=(found.get("moved") or 0.0) > (found.get("noise") or 0.0),
    )


def _told(name: str, foretold: float, found: float, unit: str, case: str) -> str:
    of = f"{name} within" if name else "within"
    return f"{of} ± {number(found)}{unit}, where ± {number(foretold)}{unit} was planned{case}"


def _of_columns(plan: Plan, answer: dict[str, Any]) -> Iterable[tuple[str, float, float]]:
    """The columns whose means were foretold in their own units: name, what was foretold, and what came."""
    course = plan.course if isinstance(plan, Federated) else plan
    planned = {each.name: each.radius_95 for each in getattr(course, "columns", None) or ()}
    found = {each["name"]: each for each in answer.get("columns") or () if isinstance(each, dict)}
    for name, radius in planned.items():
        # A plan does not know how many gaps there are: it states the error of the filled mean.
        each = found.get(f"{name} filled") or found.get(name)
        if each is not None and isinstance(each["low"], float):
            yield name, radius, (each["high"] - each["low"]) / 2
