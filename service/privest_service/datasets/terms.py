"""Terms of grants: what an owner lets an analyst ask, until when, and whether it approves each question."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import JsonValue, TypeAdapter
from sqlalchemy.orm import Session

from privest_service.database import now
from privest_service.datasets.models import Dataset, Grant
from privest_service.ledger import service as ledger
from privest_service.ledger.units import EPSILON, PROBABILITY, Charge, Limits, as_exact, as_number
from privest_service.ledger.views import largest_within
from privest_service.problems import GrantRefuses, Invalid

_KINDS: TypeAdapter[list[str]] = TypeAdapter(list[str])


@dataclass(frozen=True)
class Terms:
    """What a grant says besides its cap.

    Attributes:
        approval: whether the owner approves each question before it is charged.
        purpose: what the analyst may ask for, in the owner's words.
        kinds: names of the estimators that may be asked for; None for all.
        max_epsilon: the most that one question may cost, as ε at the budget's δ, in 1e-9; None for no limit.
        expires_at: when the grant ends by itself.
        decide_within: hours after which a request ends by itself; None for the service's own.
        publish: whether the analyst may publish what it is answered for others to read.
    """

    approval: bool = False
    purpose: str | None = None
    kinds: tuple[str, ...] | None = None
    max_epsilon: int | None = None
    expires_at: datetime | None = None
    decide_within: int | None = None
    publish: bool = False

    @classmethod
    def of(cls, grant: Grant) -> "Terms":
        """The terms of a grant as it is stored."""
        kinds = None if grant.kinds is None else tuple(_KINDS.validate_json(grant.kinds))
        return cls(
            approval=grant.approval,
            purpose=grant.purpose,
            kinds=kinds,
            max_epsilon=grant.max_epsilon,
            expires_at=grant.expires_at,
            decide_within=grant.decide_within,
            publish=grant.publish,
        )

    def told(self) -> dict[str, JsonValue]:
        """What they limit, by name, for an act."""
        told = {
            "approval": "required" if self.approval else None,
            "purpose": self.purpose,
            "kinds": None if self.kinds is None else list[JsonValue](self.kinds),
            "max_epsilon": None if self.max_epsilon is None else as_number(self.max_epsilon, EPSILON),
            "expires": None if self.expires_at is None else self.expires_at.isoformat(),
            "decide_within": self.decide_within,
            "publish": "allowed" if self.publish else None,
        }
        return {name: value for name, value in told.items() if value is not None}

    def put_into(self, grant: Grant) -> None:
        """Store them with a grant, in place of what it said before."""
        grant.approval, grant.purpose = self.approval, self.purpose
        grant.kinds = None if self.kinds is None else _KINDS.dump_json(list(self.kinds)).decode()
        grant.max_epsilon, grant.expires_at = self.max_epsilon, self.expires_at
        grant.decide_within, grant.publish = self.decide_within, self.publish


def has_ended(grant: Grant) -> bool:
    """Whether a grant has come to the end that it was given."""
    return grant.expires_at is not None and grant.expires_at <= now()


def require_kind(grant: Grant, kind: str) -> None:
    """Refuse an estimator that a grant does not name.

    Raises:
        GrantRefuses: it names others.
    """
    kinds = Terms.of(grant).kinds
    if kinds is not None and kind not in kinds:
        raise GrantRefuses(
            f"Your grant on dataset {grant.dataset_id} is for {_listed(kinds)} only. Ask for that, or ask "
            "the owner for another grant.",
            grant.dataset_id,
        )


def require_terms(session: Session, dataset: Dataset, grant: Grant, kind: str, charge: Charge) -> None:
    """Hold a question to the terms of its grant.

    One question may cost no more than a budget of `max_epsilon` at the δ of the owner's budget has room for,
    in the currency in which that budget counts. So a question is not let through for a larger δ of its own.

    Raises:
        GrantRefuses: it breaks one, which is told.
    """
    require_kind(grant, kind)
    if (most := limits_of_question(session, dataset, grant.max_epsilon)) is None:
        return
    if not is_within(charge, most):
        rate = ledger.limits_of(ledger.owner_account(session, dataset.owner_id)).slack_per_mu_squared
        allowed = _allowed(most, charge, rate if charge.slack else None)
        raise GrantRefuses(f"Your grant on dataset {dataset.id} allows {allowed}", dataset.id)


def is_within(charge: Charge, most: Limits) -> bool:
    """Whether a question costs no more than one may."""
    return all(getattr(charge, name) <= getattr(most, name) for name in most.counted)


def limits_of_grant(session: Session, dataset_id: str, analyst_id: str) -> Limits | None:
    """The most that one question of an analyst about a dataset may cost; None where no grant sets a limit."""
    grant, dataset = session.get(Grant, (dataset_id, analyst_id)), session.get(Dataset, dataset_id)
    if grant is None or dataset is None:
        return None
    return limits_of_question(session, dataset, grant.max_epsilon)


def limits_of_question(session: Session, dataset: Dataset, max_epsilon: int | None) -> Limits | None:
    """The most that one question may cost; None where a grant sets no limit.

    Raises:
        Invalid: there is no room for any question in it.
    """
    if max_epsilon is None:
        return None
    limits = ledger.limits_of(ledger.owner_account(session, dataset.owner_id))
    delta = as_exact(limits.delta, PROBABILITY)
    try:
        return Limits.of(as_exact(max_epsilon, EPSILON), delta, limits.composition)
    except ValueError as error:
        raise Invalid(f"max_epsilon leaves no room for any question: {error}") from None


def _allowed(most: Limits, charge: Charge, slack_rate: float | None) -> str:
    """Say what one question may have at most, at the δ of a refused one, and what to do."""
    delta = as_number(charge.delta, PROBABILITY)
    largest = largest_within(most, delta, slack_rate=slack_rate)
    if largest == 0.0:
        return f"no question at δ = {delta:.3g}. Ask with a smaller δ."
    if largest is None:  # δ = 0 on a gdp budget, for which there is no formula
        allowed = f"ε = {as_number(most.epsilon, EPSILON):.15g} at δ = {most.room.delta:.3g}"
        return f"one question at most the cost of {allowed}. Ask with a smaller ε."
    return f"questions up to ε = {largest:.15g} at δ = {delta:.3g}. Ask with a smaller ε."


def decide_by(grants: Sequence[Grant], hours: int) -> dict[str, datetime]:
    """When a request ends by itself, by dataset, for the owners of those that have to approve it.

    Args:
        grants: under which a question is asked.
        hours: in which owners decide whose grant says nothing else.
    """
    asked, found = now(), dict[str, datetime]()
    for grant in grants:
        if grant.approval:
            end = asked + timedelta(hours=grant.decide_within or hours)
            found[grant.dataset_id] = min(end, grant.expires_at or end)
    return found


def _listed(kinds: Sequence[str]) -> str:
    *others, last = kinds
    return f"{', '.join(others)} and {last}" if others else last
