"""What goes with an answer wherever it goes: how private it is, whose unit that is, and how exact."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

SOFTWARE = f"privest-client {version('privest-client')}"


def card_of(job: Any, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The card of an answer, as JSON.

    Args:
        job: that gave it.
        schema: of the dataset, which says whose rows are one record.
    """
    receipt, privacy, uncertainty = job.receipt, job.privacy, job.uncertainty
    unit = (schema or {}).get("unit")
    return {
        "kind": job.kind,
        "job": job.id,
        "privacy": {name: getattr(privacy, name) for name in ("epsilon", "delta", "mu", "slack")},
        "neighbours": f"{privacy.adjacency}; the number of records is public",
        "unit": f"all rows of one {unit['column']}" if unit else "one row",
        "errors": None if uncertainty is None else uncertainty.model_dump(mode="json"),
        "receipt": None
        if receipt is None
        else {
            "plan": receipt.statement.plan,
            "answer": receipt.statement.answer,
            "signature": receipt.signature,
            "public_key": receipt.public_key,
        },
        "synthetic": bool(job.dummy),
        "software": SOFTWARE,
    }
