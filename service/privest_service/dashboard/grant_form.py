"""The terms of a grant as fields of a form: filled in with what is in force, and read strictly."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from privest.estimators.registry import ESTIMATORS
from privest_service.dashboard.forms import number
from privest_service.datasets.models import Dataset, Grant
from privest_service.datasets.schemas import NewGrant
from privest_service.datasets.service import accounts_of, grant_subject
from privest_service.datasets.terms import Terms
from privest_service.inputs import checked
from privest_service.ledger.service import limits_of
from privest_service.ledger.units import EPSILON, as_number
from privest_service.problems import Fault, Invalid
from privest_service.reports.formatting import iso, typed
from privest_service.reports.words import title

KIND = "kind-"
"""What the fields of estimators begin with."""

CHOICES = {f"{KIND}{name}": title(name) for name in ESTIMATORS}
"""Fields and words of the estimators that a grant may be for."""


TERMS = ("approval", "purpose", "max_epsilon", "expires", "decide_within", "publish")
"""The other fields."""


_END_OF_DAY = "T23:59:59+00:00"
"""With which a grant ends whose last day is named."""


def fields_in_force(session: Session, owner_id: str, given: Mapping[str, str]) -> dict[str, str]:
    """The fields that show what the grant says that an address names, and that they do; none without one."""
    grant = session.get(Grant, (given.get("dataset", ""), given.get("analyst", "")))
    if grant is None or grant.revoked_at or session.get_one(Dataset, grant.dataset_id).owner_id != owner_id:
        return {}
    told, cap = Terms.of(grant), limits_of(accounts_of(session, [grant])[grant_subject(*_of(grant))])
    in_force = cap.told() if cap.capped else {}
    most = None if told.max_epsilon is None else as_number(told.max_epsilon, EPSILON)
    found = {
        "changes": grant_subject(*_of(grant)),
        **{name: None if amount is None else typed(amount) for name, amount in in_force.items()},
        "approval": "required" if told.approval else None,
        "purpose": told.purpose,
        "max_epsilon": None if most is None else typed(most),
        "expires": told.expires_at and iso(told.expires_at).removesuffix(_END_OF_DAY),
        "decide_within": None if told.decide_within is None else str(told.decide_within),
        "publish": "allowed" if told.publish else None,
        **dict.fromkeys((f"{KIND}{kind}" for kind in told.kinds or ()), "yes"),
    }
    return {name: value for name, value in found.items() if value is not None}


def terms_given(given: Mapping[str, str]) -> Terms:
    """The terms in a form; a field that is empty limits nothing.

    Raises:
        Invalid: a field breaks a rule.
    """
    body: dict[str, Any] = {
        name: value for name in ("approval", "purpose", "expires", "publish") if (value := given.get(name))
    }
    if "expires" in body and len(body["expires"]) == len("2026-01-31"):
        body["expires"] += _END_OF_DAY
    if text := given.get("max_epsilon"):
        body["max_epsilon"] = number(text, "max_epsilon")
    if text := given.get("decide_within"):
        hours = number(text, "decide_within")
        body["decide_within"] = int(hours) if hours.is_integer() else hours
    if kinds := [name.removeprefix(KIND) for name in CHOICES if given.get(name)]:
        body["kinds"] = kinds
    return checked(NewGrant.model_validate, body).terms()


def _of(grant: Grant) -> tuple[str, str]:
    return grant.dataset_id, grant.analyst_id


def require_seen(grant: Grant | None, given: Mapping[str, str]) -> None:
    """Refuse a form that would drop terms which it did not show.

    Raises:
        Invalid: the grant in force has terms, and the form was not opened to change them.
    """
    if grant is None or grant.revoked_at is not None or Terms.of(grant) == Terms():
        return
    if given.get("changes") != grant_subject(*_of(grant)):
        rule = "has a grant with terms on this dataset: choose Change the limit beside it in the table"
        raise Invalid(faults=[Fault(location="analyst", rule=rule)])
