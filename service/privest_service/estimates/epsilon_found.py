"""Questions that are only planned: with an ε, or with what it is to be found by, from public facts alone."""

from collections.abc import Callable
from math import inf

from privest.data.column_estimates import ColumnError
from privest.estimators.epsilon_search import MOST, least_epsilon
from privest.estimators.federation import Federated, Plan
from privest_service.database import Database
from privest_service.estimates.catalogue import Kind
from privest_service.estimates.questions import ResolvedQuery
from privest_service.estimates.room import Known, charges_of
from privest_service.estimates.schemas import Accuracy, EstimateRequest, PlanPrivacy, RequestedPrivacy
from privest_service.estimates.service import Planner, resolve_query
from privest_service.problems import Invalid
from privest_service.security.principals import Principal

_ANY = 1.0
"""An ε by which a question is resolved before its own is found."""

_SHOWN = 20
"""Columns that a refusal lists."""


def to_plan(
    database: Database, planner: Planner, caller: Principal, kind: Kind, request: EstimateRequest
) -> ResolvedQuery:
    """Resolve a question that is only planned.

    Args:
        database: of datasets and budgets.
        planner: makes the plans by which an ε is found.
        caller: who asks.
        kind: of the question.
        request: `kind.plan_request`, whose `privacy` may leave ε open.

    Raises:
        Invalid: no ε does what is asked for, in words that say why.
        Problem: see `resolve_query` and `Planner.make_plan`.
    """
    wanted = request.privacy
    assert isinstance(wanted, PlanPrivacy)  # noqa: S101 - of every plan's request

    def at(epsilon: float) -> ResolvedQuery:
        privacy = RequestedPrivacy(epsilon=epsilon, delta=wanted.delta)
        asked = request.model_copy(update={"privacy": privacy})
        with database.read() as session:
            return resolve_query(session, caller, kind, asked)

    if wanted.target is not None:
        figure = _figure(wanted.target)

        def ratio(epsilon: float) -> float:
            question = at(epsilon)
            try:
                planned = planner.make_plan(question)
            except Invalid:
                if epsilon == MOST:
                    raise
                return inf  # perhaps ε is too small for a plan: the largest one tells
            return figure(planned)

        try:
            return at(least_epsilon(ratio))
        except ValueError as none:
            raise Invalid(str(none)) from None
    if wanted.share is not None:
        return _within_share(database, planner, caller, at, wanted.share)
    assert wanted.epsilon is not None  # noqa: S101 - one of three is there
    return at(wanted.epsilon)


def _figure(target: Accuracy) -> Callable[[Plan], float]:
    """What a plan foretells, over what is asked for."""

    def of_columns(plan: Plan, asked: dict[str, float]) -> float:
        course = plan.course if isinstance(plan, Federated) else plan
        told: tuple[ColumnError, ...] | None = getattr(course, "columns", None)
        if told is None:
            raise Invalid(
                "Intervals of columns are foretold of means, where all columns have low and high. Declare "
                "these, or ask for another figure."
            )
        return max(_of_column(told, name) / most for name, most in asked.items())

    def of_one(plan: Plan) -> float:
        if target.columns is not None:
            return of_columns(plan, target.columns)
        name, most = next(iter(target.model_dump(exclude_none=True).items()))
        figure = plan.expected_error.WITHIN if name == "within" else name
        found: float | None = getattr(plan.expected_error, figure, None)
        if found is None:
            raise Invalid(f"Nothing foretells {name} of this question. Ask for another figure.")
        return found / most

    return of_one


def _of_column(told: tuple[ColumnError, ...], name: str) -> float:
    """The largest error of a column's numbers: of one, or of the shares of its categories."""
    own = [each.radius_95 for each in told if each.name == name or each.name.startswith(f"{name}=")]
    if not own:
        raise Invalid(f"The question has no column {name}. Its columns are: {_names(told)}.")
    return max(own)


def _names(told: tuple[ColumnError, ...]) -> str:
    names = list(dict.fromkeys(each.name.partition("=")[0] for each in told))
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def _within_share(
    database: Database,
    planner: Planner,
    caller: Principal,
    at: Callable[[float], ResolvedQuery],
    share: float,
) -> ResolvedQuery:
    """Resolve the query with the largest ε that takes at most a share of what is left to the caller."""
    question = at(_ANY)
    with database.read() as session:
        known = Known.of(session, caller, question)
    if not any(known.accounts):
        raise Invalid(
            "You have no cap on this data, so that no share of what is left can be found. Give epsilon, "
            "or the accuracy that you need."
        )
    most = known.largest_epsilon(slack=False, share=share)
    careful = known.largest_epsilon(slack=True, share=share)
    if most is None or careful is None:
        raise Invalid("With δ = 0 no ε follows from a share of this budget. Say epsilon, or a delta above 0.")
    if most == 0.0:
        raise Invalid("Nothing is left of the budget, or of a cap, at this δ.")
    if careful < most and any(charge.slack for charge in charges_of(planner.make_plan(at(most)))):
        most = careful
        if most == 0.0:
            raise Invalid(
                "Too little is left of the δ that is kept for random batches. Choose a smaller delta, or "
                "full gradients."
            )
    return at(most)
