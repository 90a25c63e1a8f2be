"""Answers as models for other programs: JSON, ONNX and PMML, each with a card that this service signs."""

from privest_service.estimates.exported.cards import SignedModel, signed_model
from privest_service.estimates.exported.files import Format, written

__all__ = ["Format", "SignedModel", "signed_model", "written"]
