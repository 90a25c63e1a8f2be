"""Answers are told with what the run found out of them; old ones, with the forecast of their plan."""

import json
from dataclasses import replace

from privest.metadata import VectorsMetadata
from privest.privacy.cost import PrivacyTarget
from privest_service.estimates.views import read_answer
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
