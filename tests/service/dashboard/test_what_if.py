"""What if: ε found by what is needed, as the interface finds it; the curve of errors is of one solver."""

import re
from html import unescape
from typing import Any, NoReturn

import pytest

from privest.privacy.accounting import PrivacyTarget
from privest_service.dashboard.pages.what_if import _curve
from privest_service.datasets.schemas import SCHEMA
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.questions import QueryTarget, ResolvedQuery
from privest_service.estimates.service import Planner
from privest_service.reports.formatting import number, typed
from testing.scenes import Desk, analyst_called, owner_called
from testing.server import Caller, Server

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
    plan = planner.make_plan(question)
    curve = _curve(planner, question, kind, plan)
    here = [error for at, error in curve if at == pytest.approx(epsilon)]
    assert here == [pytest.approx(plan.expected_error.standard_deviation)]
    assert len(curve) > 1


_COLUMNS = [
    {"name": name, "type": "number", "low": 0, "high": most} for name, most in (("age", 110), ("dose", 3))
]


@pytest.fixture
def asked(site: Server) -> tuple[Caller, str]:
    """An owner with a table."""
    owner = owner_called(site, "What if")
    made = owner.upload(b"age,dose\n" + b"40,1\n" * 400, {"kind": "table", "columns": _COLUMNS}, "rows.csv")
    assert made.status_code == 201, made.text
    return owner, made.json()["id"]


def _settled(page: str) -> str:
    """The question that a page asks if its button is pressed."""
    (question,) = re.findall(r'name="question" value="([^"]*)"', page)
    return unescape(question)


@pytest.mark.parametrize(
    ("said", "privacy"),
    [
        ("within=0.1", {"target": {"within": 0.1}}),
        ("within=4&of=age", {"target": {"columns": {"age": 4}}}),
        ("share=25", {"share": 0.25}),
    ],
)
def test_epsilon_is_found_as_the_interface_finds_it(
    site: Server, asked: tuple[Caller, str], said: str, privacy: dict[str, Any]
) -> None:
    owner, dataset = asked
    body = {"dataset": {"id": dataset}, "privacy": privacy | {"delta": 1e-6}}
    planned = owner.post("/v1/estimates/frechet-mean/plan", json=body).json()
    found = planned["privacy"]["epsilon"]
    desk = Desk(site, owner.key)
    page = desk.get(f"/what-if?dataset={dataset}&delta=1e-6&epsilon=&{said}").text
    assert f"<strong>{typed(found)}</strong>." in page
    for column in planned["columns"]:
        told = rf"<bdi>{column['name']}</bdi></td><td class=\"n\">± {number(column['radius_95'])}<"
        assert re.search(told, page), column
    assert _settled(page) == f"dataset={dataset}&delta=1e-6&epsilon={found!r}"
    sent = desk.post("/what-if", {"question": _settled(page), "key": said})
    job = sent.headers["location"].rpartition("/")[2]
    assert owner.ended(job)["privacy"]["epsilon"] == found


@pytest.mark.parametrize(("rows", "figure"), [("", "within"), ("usual", "radius_95")])
def test_accuracy_is_for_any_records_or_for_usual_ones(
    site: Server, asked: tuple[Caller, str], rows: str, figure: str
) -> None:
    """A solver of directions promises much less where nothing is taken for granted."""
    owner, dataset = asked
    privacy = {"target": {figure: 0.7}, "delta": 1e-6}
    body = {"dataset": {"id": dataset}, "privacy": privacy, "rank": 1}
    found = owner.post("/v1/estimates/robust-pca/plan", json=body)
    assert found.status_code == 200, found.text
    said = f"dataset={dataset}&kind=robust-pca&rank=1&delta=1e-6&within=0.7&rows={rows}"
    page = Desk(site, owner.key).get(f"/what-if?{said}").text
    assert f"<strong>{found.json()['privacy']['epsilon']:g}</strong>." in page
    assert 'name="rows"' in page
    assert 'name="rows"' not in Desk(site, owner.key).get(f"/what-if?dataset={dataset}").text


def test_what_is_too_fast_or_frozen_is_not_called_covered(site: Server, asked: tuple[Caller, str]) -> None:
    """The pages that speak of what is left say what the pace leaves of it, and that all is frozen."""
    owner, dataset = asked
    desk, question = Desk(site, owner.key), f"/what-if?dataset={dataset}&delta=1e-6&epsilon=0.5"
    assert "The budget covers this" in desk.get(question).text
    set_pace = site.admin.patch(f"/v1/owners/{owner.id}/budget", json={"pace": 0.001})
    assert set_pace.status_code == 200, set_pace.text
    page = desk.get(question).text
    assert "may not be spent this fast" in page
    assert "covers this." not in page
    for path in ("", "/budget"):
        assert "may be spent at present: seven days may take 0.1 %" in desk.get(path).text, path
    assert owner.estimate(dataset, epsilon=0.5, delta=1e-6).status_code == 409
    for path in ("", "/budget", "/analysts"):
        assert "Your budget is frozen" not in desk.get(path).text, path
    frozen = owner.patch(f"/v1/owners/{owner.id}/budget", json={"frozen": True})
    assert frozen.status_code == 200, frozen.text
    for path in ("", "/budget", "/analysts"):
        assert "Your budget is frozen" in desk.get(path).text, path


def test_what_cannot_be_promised_for_all_records_is_offered_for_usual_ones(
    site: Server, asked: tuple[Caller, str]
) -> None:
    owner, dataset = asked
    desk = Desk(site, owner.key)
    asking = f"dataset={dataset}&kind=robust-pca&rank=1&delta=1e-6&within=0.01"
    page = desk.get(f"/what-if?{asking}")
    assert page.status_code == 422
    (link,) = re.findall(r'href="([^"]*)">Plan it for usual records', page.text)
    assert unescape(link).endswith(f"/what-if?{asking}&rows=usual")
    assert "Plan it for usual records" not in desk.get(f"/what-if?{asking}&rows=usual").text


def test_epsilon_is_said_or_found_once(site: Server, asked: tuple[Caller, str]) -> None:
    owner, dataset = asked
    desk = Desk(site, owner.key)
    for said, told in (
        ("within=1&epsilon=1", "fill in one of"),
        ("within=1&share=1", "fill in one of"),
        ("share=101", "<code>share</code>"),
        ("within=x", "number"),
        ("within=1e-9", "No ε reaches this"),
        ("within=1&of=height", "no column height"),
    ):
        page = desk.get(f"/what-if?dataset={dataset}&delta=1e-6&{said}")
        assert (page.status_code, told in page.text) == (422, True), (said, page.text)
        assert 'name="question"' not in page.text
    for question in (f"dataset={dataset}&within=0.1", f"dataset={dataset}"):
        sent = desk.post("/what-if", {"question": question, "key": question})
        assert sent.status_code == 422, "what was not planned with an ε is not asked"


@pytest.mark.parametrize(("cap", "begins"), [(0.2, "less"), (3.0, "0.5")])
def test_plan_and_ask_begins_with_what_fits(
    site: Server, asked: tuple[Caller, str], cap: float, begins: str
) -> None:
    owner, dataset = asked
    analyst = analyst_called(site, "Begins")
    assert owner.grant(dataset, analyst, epsilon=cap, delta=1e-6).status_code == 200
    desk = Desk(site, analyst.key)
    page = desk.get(f"/what-if?dataset={dataset}&delta=1e-6").text
    assert "Your cap covers this" in page
    tenth = analyst.post(
        "/v1/estimates/frechet-mean/plan",
        json={"dataset": {"id": dataset}, "privacy": {"share": 0.1, "delta": 1e-6}},
    ).json()["privacy"]["epsilon"]
    epsilon = float(_settled(page).partition("epsilon=")[2])
    assert epsilon == (0.5 if begins == "0.5" else tenth)
    (placeholder,) = re.findall(r'name="epsilon"[^>]*placeholder="([\d.]+)"', desk.get("/what-if").text)
    assert (placeholder == "0.5") == (begins == "0.5")


def test_a_plan_says_what_the_grant_does_not_allow_and_leads_to_one_that_it_does(
    site: Server, asked: tuple[Caller, str]
) -> None:
    owner, dataset = asked
    analyst = analyst_called(site, "At most")
    assert owner.grant(dataset, analyst, epsilon=2.0, delta=1e-6, max_epsilon=0.4).status_code == 200
    desk = Desk(site, analyst.key)
    page = desk.get(f"/what-if?dataset={dataset}&delta=1e-6&epsilon=0.9").text
    assert "Your grant does not allow this" in page
    assert 'name="question"' not in page
    (less,) = re.findall(r'href="[^"]*(/what-if\?[^"]*)">Plan with that', page)
    less = unescape(less)
    page = desk.get(less).text
    assert "Your cap covers this" in page
    assert desk.post("/what-if", {"question": _settled(page), "key": "at most"}).status_code == 303
