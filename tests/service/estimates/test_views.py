"""Answers and jobs as they are shown: with what the run found out, and without their estimator."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privest.data.metadata import VectorsMetadata
from privest.privacy.accounting import PrivacyTarget
from privest_service.estimates.views import read_answer
from testing.server import Caller, Server, books_balance
from testing.toy_estimator import ToyMeanSpec, plan

PLAN = replace(plan(ToyMeanSpec(2), VectorsMetadata(100, 3), PrivacyTarget(1.0, 1e-6)), warnings=("planned",))
USUAL = replace(PLAN, expected_error=replace(PLAN.expected_error, radius_95=3.0))
FOUND = {"of": "the mean", "standard_deviation": 1.0, "radius_95": 3.0, "warnings": ["found"]}


def test_an_answer_that_found_out_nothing_has_the_forecast() -> None:
    told = read_answer(PLAN, json.dumps({"mean": [1.0]}))
    assert told.estimate == {"mean": [1.0]}
    assert told.uncertainty is not None
    assert told.uncertainty["standard_deviation"] == PLAN.expected_error.standard_deviation
    assert told.warnings == ("planned",)


def test_what_the_run_found_out_replaces_the_forecast() -> None:
    told = read_answer(USUAL, json.dumps({"mean": [1.0], "uncertainty": FOUND}))
    assert told.estimate == {"mean": [1.0]}
    assert told.uncertainty is not None
    assert (told.uncertainty["of"], told.uncertainty["standard_deviation"]) == ("the mean", 1.0)
    assert told.warnings == ("planned", "found")


def test_a_surprise_is_told_and_twice_the_forecast_is_none() -> None:
    for radius, surprises in ((1.4, True), (1.5, False), (2.0, False)):
        forecast = replace(PLAN.expected_error, radius_95=radius)
        told = read_answer(replace(PLAN, expected_error=forecast), json.dumps({"uncertainty": FOUND}))
        assert ("times what the plan foretold" in told.warnings[-1]) is surprises


TOYS = (sys.executable, "-m", "testing.with_toys")
VECTORS = {"kind": "vectors", "dim": 3, "norm_bound": 2.0}


def ask(owner: Caller, dataset: Any, key: str) -> dict[str, Any]:
    body = {"dataset": dataset, "privacy": {"epsilon": 1.0}, "rounds": 2}
    answer = owner.post(
        "/v1/estimates/toy-mean", headers={"Idempotency-Key": key, "Prefer": "wait=240"}, json=body
    )
    assert answer.json()["state"] == "committed", answer.text
    return answer.json()


@pytest.mark.costly
@pytest.mark.parametrize("backend", ["sqlite"])
def test_jobs_outlive_their_estimator(
    tmp_path: Path, new_database: Callable[[str], str], backend: str
) -> None:
    url = new_database(backend)
    server = Server(tmp_path, url, TOYS, fresh=True)
    try:
        owner = server.owner(epsilon=20.0, delta=1e-3)
        rows = 0.1 * np.random.default_rng(3).standard_normal((400, 3))
        one, two = (owner.dataset(rows, VECTORS) for _ in range(2))
        asked = [ask(owner, {"id": one}, "one"), ask(owner, [{"id": one}, {"id": two}], "both")]
        asked.append(ask(owner, {"id": one, "dummy": True}, "dummy"))
    finally:
        server.stop()

    later = Server(tmp_path, url)  # which knows of no such estimator
    try:
        owner = replace(owner, server=later)
        for before in asked:
            answer = owner.get(f"/v1/jobs/{before['id']}")
            assert answer.status_code == 200, answer.text
            job = answer.json()
            for name in ("kind", "state", "estimate", "charges", "receipt", "dummy"):
                assert job[name] == before[name], name
            assert job["uncertainty"].items() <= before["uncertainty"].items()  # all that the run found out
            assert "does not have any more" in job["privacy"]["mechanism"]
            for name in ("epsilon", "mu"):
                charged = 0.0 if before["dummy"] else before["privacy"][name]
                assert job["privacy"][name] == pytest.approx(charged, rel=1e-6)
            receipt = owner.get(f"/v1/jobs/{before['id']}/receipt")
            assert receipt.status_code == (404 if before["dummy"] else 200)
        assert books_balance(later)
    finally:
        later.stop()
