"""Refusals: recorded for the owner whose budget or grant refuses, and told as their callers may know them."""

from pydantic import JsonValue
from sqlalchemy.orm import Session

from privest.estimators.federation import Plan
from privest_service import acts
from privest_service.database import Database
from privest_service.datasets.models import Dataset
from privest_service.estimates.charging import EstimateCommand, PlannedQuery
from privest_service.estimates.plans import asked_columns, asked_label
from privest_service.estimates.room import in_words, room_of
from privest_service.ledger.units import EPSILON, PROBABILITY, as_number
from privest_service.problems import AccountFrozen, BudgetExceeded, GrantRefuses, PaceExceeded

_SOMEBODY_ELSES = (
    "Your own caps allow this. An owner's budget, another cap or a freeze does not. Ask the owner."
)
"""Told to an analyst for every refusal that the analyst's own caps did not make."""

_COLUMNS = 20
"""Most columns of a refused question that its act names."""


def record(
    database: Database,
    refused: BudgetExceeded | AccountFrozen | GrantRefuses,
    command: EstimateCommand,
    planned: PlannedQuery | None = None,
) -> None:
    """Tell the owner whose budget or grant refuses who was refused what: by its plan, and so of no row.

    Without a plan, because the grant forbids even that, nothing is told of a price.
    """
    details: dict[str, JsonValue] = {"estimate": command.kind.name, "by": _refuses(refused)}
    details["several"] = isinstance(command.request.dataset, list) and len(command.request.dataset) > 1
    if planned is not None:
        place = [target.dataset_id for target in planned.query.about].index(str(refused.dataset))
        charge, _ = planned.charges[place]
        details["epsilon"] = as_number(charge.epsilon, EPSILON)
        details["delta"] = as_number(charge.delta, PROBABILITY)
        details |= _of_columns(planned.plan)
        if isinstance(refused, BudgetExceeded) and refused.room and refused.room["epsilon"] is not None:
            details["room"] = refused.room["epsilon"]

    def write(session: Session) -> None:
        dataset = session.get_one(Dataset, refused.dataset)
        acts.record_few(session, dataset.owner_id, "question.refused", subject=dataset.id, details=details)

    database.run(write)


def as_known(
    database: Database, refused: BudgetExceeded | AccountFrozen | GrantRefuses, planned: PlannedQuery
) -> BudgetExceeded | AccountFrozen | GrantRefuses:
    """A refusal, recorded for the owner, as its caller may know it.

    An analyst knows its own grant and cap alone: all else is one answer, whoever and whatever refused.
    """
    command = planned.command
    knows = isinstance(refused, GrantRefuses) or refused.scope == "analyst" or command.caller.role == "owner"
    if knows and not isinstance(refused, GrantRefuses):
        explain(database, refused, planned)
    record(database, refused, command, planned)
    return refused if knows else BudgetExceeded(_SOMEBODY_ELSES)


def explain(
    database: Database, refused: BudgetExceeded | AccountFrozen, planned: PlannedQuery
) -> BudgetExceeded | AccountFrozen:
    """A refusal by an account that the caller may look at, with what was asked and what is left."""
    if isinstance(refused, BudgetExceeded):
        charged = [charge for charge, _ in planned.charges]
        with database.read() as session:
            room = room_of(session, planned.command.caller, planned.query, charged)
        if room is not None:
            refused.room = room.model_dump()
            refused.detail = " ".join(filter(None, (refused.detail, in_words(room, planned.query))))
    return refused


def _of_columns(planned: Plan) -> dict[str, JsonValue]:
    """Which columns of a table a question is about, for the record: of very many the number."""
    names, label = asked_columns(planned), asked_label(planned)
    if names is None:
        return {}
    told: JsonValue = [*names] if len(names) <= _COLUMNS else len(names)
    return {"columns": told} if label is None else {"columns": told, "label": label}


def _refuses(refused: BudgetExceeded | AccountFrozen | GrantRefuses) -> str | None:
    """What refuses a question, in a word."""
    match refused:
        case GrantRefuses():
            return "grant"
        case AccountFrozen():
            return "freeze"
        case PaceExceeded():
            return "pace"
        case _:
            return refused.scope
