"""The curve of errors: it is of one solver, and the plan that is looked at lies on it."""

from typing import Any, NoReturn

import pytest

from privest.privacy.cost import PrivacyTarget
from privest_service.dashboard.pages.what_if import _curve
from privest_service.datasets.schemas import SCHEMA
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.planning import Planner
from privest_service.estimates.questions import QueryTarget, ResolvedQuery

ASKED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "frechet-mean": ({"kind": "points", "manifold": {"name": "spd", "dim": 2}, "radius": 1.0}, {}),
    "robust-pca": ({"kind": "vectors", "dim": 6}, {"rank": 2}),
    "matrix-completion": ({"kind": "partial-vectors", "dim": 8, "known": 0.5}, {"rank": 2}),
    "logistic-regression": (
        {"kind": "labelled", "features": ["a", "b"], "label": "y", "classes": ["0", "1"], "norm_bound": 1.0},
        {},
    ),
}


def _no_worker(*_: object, **__: object) -> NoReturn:
    raise AssertionError("light plans are made here")


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("epsilon", [0.05, 0.3, 2.0])
def test_the_plan_lies_on_its_curve(name: str, epsilon: float) -> None:
    (schema, options), kind, planner = ASKED[name], KINDS[name], Planner(_no_worker)
    shape = SCHEMA.validate_python(schema).shape(5000)
    body = {"dataset": {"id": "ds_1"}, "privacy": {"epsilon": epsilon}, **options}
    choices = kind.resolved(kind.request.model_validate(body), shape)
    subject = QueryTarget("ds_1", "own_1", shape, PrivacyTarget(epsilon, 1e-6))
    question = ResolvedQuery("own_1", kind, (subject,), choices)
    plan = planner.plan(question)
    curve = _curve(planner, question, kind, plan)
    here = [error for at, error in curve if at == pytest.approx(epsilon)]
    assert here == [pytest.approx(plan.expected_error.standard_deviation)]
    assert len(curve) > 1
