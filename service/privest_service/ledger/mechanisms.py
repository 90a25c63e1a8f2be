"""Mechanisms: what charges are for, written down in full, so that anybody can compute the costs again."""

import hashlib
import json
from functools import cache
from importlib.metadata import version

import rfc8785
from pydantic import TypeAdapter

from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import cost_of_all
from privest.privacy.mechanisms import Release
from privest_service.ledger.models import Mechanism
from privest_service.ledger.units import Charge

_LIBRARIES = ("privest", "numpy", "scipy", "randomgen", "python-flint")
Asker = tuple[str | None, str | None]
"""A person, and the service account that asked for this person; None where there was none."""

_RELEASES: TypeAdapter[tuple[Release, ...]] = TypeAdapter(tuple[Release, ...])


def mechanism(
    estimate: str, dataset_id: str, target: PrivacyTarget, releases: tuple[Release, ...]
) -> Mechanism:
    """A run's releases with their noise, and the libraries that draw it, on canonical bytes."""
    content = rfc8785.dumps(
        {
            "estimate": estimate,
            "dataset": dataset_id,
            "adjacency": "replace-one",
            "epsilon": target.epsilon,
            "delta": target.delta,
            "slack_per_mu_squared": target.slack_per_mu_squared,
            "releases": _RELEASES.dump_python(releases, mode="json"),
            "libraries": versions(),
        }
    )
    return Mechanism(digest=hashlib.sha256(content).hexdigest(), content=content.decode())


def asked_for(mechanism: Mechanism, person: str | None, through: str | None) -> Mechanism:
    """Write into a mechanism who asked, so that the charge's seal tells of the person and the account.

    Args:
        mechanism: what a charge is for.
        person: whose token, or whose token's key, asked; None where none did, which is not written.
        through: the service account that asked for this person.
    """
    who = {name: told for name, told in (("person", person), ("through", through)) if told is not None}
    if not who:
        return mechanism
    content = rfc8785.dumps({**json.loads(mechanism.content), "asked_by": who})
    return Mechanism(digest=hashlib.sha256(content).hexdigest(), content=content.decode())


def who_asked(content: str) -> Asker:
    """Who asked, as a mechanism tells it; nobody where it does not. Raises ValueError: it is no mechanism."""
    try:
        told = json.loads(content).get("asked_by", {})
        person, through = told.get("person"), told.get("through")
    except (AttributeError, RecursionError):
        raise ValueError("this is no mechanism") from None
    if not all(isinstance(each, str | None) for each in (person, through)):
        raise ValueError("a person and an account have names")
    return person, through


def cost_again(content: str) -> Charge:
    """The charge that a mechanism asks for, computed from its noise alone.

    Raises:
        ValueError: it costs more than it promises.
        KeyError, TypeError, ArithmeticError: this is no mechanism.
    """
    told = json.loads(content)
    # Before a mechanism said this, runs used the least slack.
    target = PrivacyTarget(told["epsilon"], told["delta"], told.get("slack_per_mu_squared", 0.0))
    return Charge.of(target, cost_of_all(_RELEASES.validate_python(told["releases"]), target))


@cache
def versions() -> dict[str, str]:
    """The libraries that plan, draw noise and run, with their versions."""
    return {name: version(name) for name in _LIBRARIES}
