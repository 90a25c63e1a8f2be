"""Answers as models for other programs: JSON, ONNX and PMML, each with a card that this service signs."""

import hashlib
import json
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any, Literal
from xml.etree import ElementTree as Xml

import numpy as np
import rfc8785
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from privest.arrays import Array
from privest.estimators.federation import Federated
from privest.estimators.linear_model.logistic_regression import LogisticPlan
from privest_service.datasets.models import Dataset
from privest_service.estimates import views
from privest_service.estimates.plans import stored_plan
from privest_service.estimates.schemas import JobView, Privacy
from privest_service.jobs.models import Job
from privest_service.ledger.receipts import Receipt
from privest_service.problems import Invalid, NotFound
from privest_service.security.principals import Principal
from privest_service.signing import signer_of

Format = Literal["json", "onnx", "pmml"]

_PMML = "http://www.dmg.org/PMML-4_4"
_OPSET, _IR = 17, 9
"""Versions of ONNX that runtimes of the last years read."""

_NO_CHANCES = ("sigmoid", "savage")
"""Losses whose scores tell sides and no chances."""


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


@dataclass(frozen=True)
class _Linear:
    """A linear classifier: the chances of its classes are the softmax of its scores.

    Attributes:
        features: their names.
        classes: their names.
        weights: (classes, features).
        intercept: (classes,).
    """

    features: list[str]
    classes: list[str]
    weights: Array
    intercept: Array


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


def written(job: Job, told: SignedModel, form: Format) -> tuple[bytes, str]:
    """A model as a file of a format, and its media type.

    Raises:
        Invalid: the format is for classifiers, or this service has it not.
    """
    if form == "json":
        return told.model_dump_json().encode(), "application/json"
    linear = _linear(job, told.model)
    return _onnx(linear, told) if form == "onnx" else _pmml(linear, told)


def _linear(job: Job, estimate: dict[str, Any]) -> _Linear:
    """The classifier of an answer.

    Raises:
        Invalid: it is none, or one whose scores tell no chances.
    """
    plan: Any = stored_plan(job.kind, job.plan)
    if isinstance(plan, Federated):
        plan = plan.course
    if not isinstance(plan, LogisticPlan):
        raise Invalid("onnx and pmml are for classifiers. Ask for json.")
    if plan.spec.loss in _NO_CHANCES:
        raise Invalid("onnx and pmml need chances, and scores of this loss tell none. Ask for json.")
    weights, intercept = np.atleast_2d(estimate["coefficients"]), np.atleast_1d(estimate["intercept"])
    if len(weights) == 1:  # of two classes: a score is of the second against the first
        weights, intercept = np.vstack([0 * weights, weights]), np.append(0.0, intercept)
    return _Linear(list(plan.shape.features), list(estimate["classes"]), weights, intercept)


def _onnx(linear: _Linear, told: SignedModel) -> tuple[bytes, str]:
    """A model of `features`, (rows, features) doubles, that gives `probabilities` and `label`.

    Raises:
        Invalid: this service was installed without onnx.
    """
    try:
        import onnx  # noqa: PLC0415 - optional, and heavy
    except ImportError:
        raise Invalid("This service has no ONNX. Ask for json or pmml.") from None
    make: Any = onnx.helper
    double, text = onnx.TensorProto.DOUBLE, onnx.TensorProto.STRING
    classes = len(linear.classes)
    nodes = [
        make.make_node("MatMul", ["features", "weights"], ["product"]),
        make.make_node("Add", ["product", "intercept"], ["scores"]),
        make.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
        make.make_node("ArgMax", ["scores"], ["place"], axis=1, keepdims=0),
        make.make_node("Gather", ["classes", "place"], ["label"]),
    ]
    graph = make.make_graph(
        nodes,
        "privest",
        [make.make_tensor_value_info("features", double, ["rows", linear.weights.shape[1]])],
        [
            make.make_tensor_value_info("label", text, ["rows"]),
            make.make_tensor_value_info("probabilities", double, ["rows", classes]),
        ],
        [
            make.make_tensor("weights", double, linear.weights.T.shape, linear.weights.T.ravel().tolist()),
            make.make_tensor("intercept", double, [classes], linear.intercept.tolist()),
            make.make_tensor("classes", text, [classes], [each.encode() for each in linear.classes]),
        ],
    )
    model = make.make_model(
        graph, producer_name="privest", opset_imports=[make.make_opsetid("", _OPSET)], ir_version=_IR
    )
    make.set_model_props(model, _properties(told) | {"features": json.dumps(linear.features)})
    return model.SerializeToString(), "application/octet-stream"


def _properties(told: SignedModel) -> dict[str, str]:
    """The card and its signature, as formats with texts alone hold them."""
    return {
        "card": rfc8785.dumps(told.card.model_dump(mode="json")).decode(),
        "signature": told.signature,
        "public_key": told.public_key,
    }


def _pmml(linear: _Linear, told: SignedModel) -> tuple[bytes, str]:
    """A RegressionModel with a table for each class, whose softmax are the chances."""
    root = Xml.Element("PMML", {"xmlns": _PMML, "version": "4.4"})
    header = Xml.SubElement(root, "Header")
    for name, value in _properties(told).items():
        Xml.SubElement(header, "Extension", {"name": name, "value": value})
    fields = Xml.SubElement(root, "DataDictionary", {"numberOfFields": str(len(linear.features) + 1)})
    target = Xml.SubElement(
        fields, "DataField", {"name": "label", "optype": "categorical", "dataType": "string"}
    )
    for each in linear.classes:
        Xml.SubElement(target, "Value", {"value": each})
    model = Xml.SubElement(
        root,
        "RegressionModel",
        {"functionName": "classification", "normalizationMethod": "softmax", "targetFieldName": "label"},
    )
    mining = Xml.SubElement(model, "MiningSchema")
    Xml.SubElement(mining, "MiningField", {"name": "label", "usageType": "target"})
    for name in linear.features:
        Xml.SubElement(fields, "DataField", {"name": name, "optype": "continuous", "dataType": "double"})
        Xml.SubElement(mining, "MiningField", {"name": name})
    for each, intercept, weights in zip(
        linear.classes, linear.intercept.tolist(), linear.weights.tolist(), strict=True
    ):
        table = Xml.SubElement(
            model, "RegressionTable", {"intercept": repr(intercept), "targetCategory": each}
        )
        for name, weight in zip(linear.features, weights, strict=True):
            Xml.SubElement(table, "NumericPredictor", {"name": name, "coefficient": repr(weight)})
    return Xml.tostring(root, encoding="utf-8", xml_declaration=True), "application/xml"
