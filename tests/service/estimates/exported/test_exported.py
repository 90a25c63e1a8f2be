"""Other programs compute the same chances from an exported model, and its card is signed."""

import hashlib
import json
from typing import Any
from xml.etree import ElementTree as Xml

import numpy as np
import onnxruntime
import pytest
import rfc8785

from privest_service.signing import is_signature
from testing.server import LABELLED, Caller, Server, told_apart

PMML = "{http://www.dmg.org/PMML-4_4}"
ROWS = np.random.default_rng(3).normal([10.0, 0.0], [2.0, 0.1], (200, 2))
CLASSES = {2: ["0", "1"], 3: ["0", "1", "2"]}


@pytest.fixture
def backend() -> str:
    """One database: models are made of what was read."""
    return "sqlite"


def asked(owner: Caller, classes: int = 2, **options: Any) -> dict[str, Any]:
    """A job that fits a classifier, committed."""
    dataset = owner.dataset(told_apart(classes=classes, apart=2.0), LABELLED | {"classes": CLASSES[classes]})
    return owner.estimate(dataset, kind="logistic-regression", epsilon=2.0, **options).json()


def model(caller: Caller, job: dict[str, Any], form: str) -> bytes:
    answer = caller.get(f"/v1/jobs/{job['id']}/model?format={form}")
    assert answer.status_code == 200, answer.text
    return answer.content


def chances(estimate: dict[str, Any]) -> np.ndarray:
    """The chances that the answer's own numbers give."""
    scores = ROWS @ np.atleast_2d(estimate["coefficients"]).T + estimate["intercept"]
    if scores.shape[1] == 1:
        scores = np.hstack([0 * scores, scores])
    return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


def by_pmml(content: bytes) -> np.ndarray:
    tables = Xml.fromstring(content).findall(  # noqa: S314 - of our own server
        f"{PMML}RegressionModel/{PMML}RegressionTable"
    )
    scores = [
        float(table.get("intercept", "nan"))
        + ROWS @ [float(each.get("coefficient", "nan")) for each in table.iter(f"{PMML}NumericPredictor")]
        for table in tables
    ]
    return np.exp(scores).T / np.exp(scores).sum(axis=0)[:, None]


@pytest.mark.parametrize("classes", [2, 3])
def test_other_runtimes_compute_the_same_chances(server: Server, classes: int) -> None:
    owner = server.owner(5.0)
    job = asked(owner, classes)
    expected = chances(job["estimate"])
    content = model(owner, job, "onnx")
    session = onnxruntime.InferenceSession(content)
    label, probabilities = session.run(["label", "probabilities"], {"features": ROWS})
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    assert [*label] == [CLASSES[classes][place] for place in expected.argmax(axis=1)]
    np.testing.assert_allclose(by_pmml(model(owner, job, "pmml")), expected, atol=1e-12)
    props = session.get_modelmeta().custom_metadata_map
    assert json.loads(props["features"]) == ["a", "b"]
    assert is_signature(props["signature"], props["card"].encode(), props["public_key"])


def test_the_card_says_what_it_is_and_is_signed(server: Server) -> None:
    owner = server.owner(5.0)
    job = asked(owner)
    told = json.loads(model(owner, job, "json"))
    card = told["card"]
    assert told["model"] == job["estimate"]
    assert card["model"] == hashlib.sha256(rfc8785.dumps(job["estimate"])).hexdigest()
    assert card["receipt"] == hashlib.sha256(rfc8785.dumps(job["receipt"]["statement"])).hexdigest()
    assert (card["privacy"], card["errors"], card["unit"]) == (job["privacy"], job["uncertainty"], "one row")
    assert card["software"].startswith("privest ")
    assert told["public_key"] == job["receipt"]["public_key"]
    assert is_signature(told["signature"], rfc8785.dumps(card), told["public_key"])
    assert not is_signature(told["signature"], rfc8785.dumps(card | {"unit": "x"}), told["public_key"])
    pmml = Xml.fromstring(model(owner, job, "pmml"))  # noqa: S314 - of our own server
    (extension, *_) = pmml.iter(f"{PMML}Extension")
    assert json.loads(extension.get("value", "")) == card


def test_models_are_for_whoever_asked_and_for_what_has_one(server: Server) -> None:
    owner, analyst = server.owner(8.0), server.analyst()
    dataset = owner.dataset(told_apart(apart=2.0), LABELLED)
    owner.grant(dataset, analyst)
    job = analyst.estimate(dataset, kind="logistic-regression", epsilon=1.0).json()
    assert model(analyst, job, "onnx")
    assert owner.get(f"/v1/jobs/{job['id']}/model").status_code == 404
    assert "whoever asked" in owner.get(f"/v1/jobs/{job['id']}/model").json()["detail"]
    sides = owner.estimate(dataset, kind="logistic-regression", epsilon=1.0, loss="sigmoid").json()
    score = owner.estimate(
        dataset, kind="classifier-score", epsilon=1.0, coefficients=[0.1, 0.0], intercept=-1.0
    ).json()
    for other, said in ((sides, "tell none"), (score, "for classifiers")):
        assert json.loads(model(owner, other, "json"))["model"] == other["estimate"]
        for form in ("onnx", "pmml"):
            refused = owner.get(f"/v1/jobs/{other['id']}/model?format={form}")
            assert refused.status_code == 422
            assert said in refused.json()["detail"]
    assert owner.get(f"/v1/jobs/{sides['id']}/model?format=pickle").status_code == 422
