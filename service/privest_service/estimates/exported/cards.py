"""Answers as JSON models, each with a card that this service signs."""

import hashlib
import json
from importlib.metadata import version
from typing import Annotated, Any

import rfc8785
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from privest_service.datasets.models import Dataset
from privest_service.estimates import views
from privest_service.estimates.schemas import JobView, Privacy
from privest_service.jobs.models import Job
from privest_service.ledger.receipts import Receipt
from privest_service.problems import NotFound
from privest_service.security.principals import Principal
from privest_service.signing import signer_of


class Card(BaseModel):
    """What goes with a model wherever it goes."""

    kind: str
    job: str
    dataset: str | list[str]
    privacy: Privacy
    unit: Annotated[str, Field(description="what one record is, of which one may be replaced")]
    errors: Annotated[dict[str, Any] | None, Field(description="the answer's `uncertainty`")]
    receipt: Annotated[str, Field(description="SHA-256 of the receipt's signed statement")]
    model: Annotated[str, Field(description="SHA-256 of the answer's `estimate`, as RFC 8785 writes it")]
    software: str


class SignedModel(BaseModel):
    """A model with its card, the signature over the card's RFC 8785 bytes, and the key (both base64)."""

    model: Annotated[dict[str, Any], Field(description="the answer's `estimate`")]
    card: Card
    signature: str
    public_key: str

    @property
    def texts(self) -> dict[str, str]:
        """The card and its signature, as formats with texts alone hold them."""
        return {
            "card": rfc8785.dumps(self.card.model_dump(mode="json")).decode(),
            "signature": self.signature,
            "public_key": self.public_key,
        }


def signed_model(session: Session, caller: Principal, job: Job) -> SignedModel:
    """The model of a job with its card.

    Raises:
        NotFound: there is no answer yet, or it is somebody else's.
    """
    view = views.job_view(session, caller, job)
    receipt = view.receipt
    if view.estimate is None or receipt is None:
        raise NotFound("A model is for whoever asked, once the job is committed. Ask again then.")
    estimate: dict[str, Any] = view.model_dump(mode="json")["estimate"]
    card = _card(session, view, receipt, estimate)
    signer = signer_of(session)
    signature = signer.sign(rfc8785.dumps(card.model_dump(mode="json")))
    return SignedModel(model=estimate, card=card, signature=signature, public_key=signer.public_key)


def _card(session: Session, view: JobView, receipt: Receipt, estimate: dict[str, Any]) -> Card:
    about = receipt.statement.dataset
    found = [session.get(Dataset, each) for each in ([about] if isinstance(about, str) else about)]
    units = {json.dumps(json.loads(each.dataset_schema).get("unit")) for each in found if each}
    return Card(
        kind=view.kind,
        job=view.id,
        dataset=about,
        privacy=view.privacy,
        unit="one row" if units <= {"null"} else "all rows of one unit",
        errors=view.model_dump(mode="json")["uncertainty"],
        receipt=_digest(receipt.statement.model_dump(mode="json")),
        model=_digest(estimate),
        software=f"privest {version('privest')}",
    )


def _digest(content: Any) -> str:
    return hashlib.sha256(rfc8785.dumps(content)).hexdigest()
