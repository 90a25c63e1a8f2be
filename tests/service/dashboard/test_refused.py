"""What an analyst reads of questions that were denied or refused at once, and what a plan finds privately."""

import json
import re
from collections.abc import Callable
from html import unescape
from urllib.parse import urlencode

from playwright.sync_api import expect

from privest_service.reports.formatting import rounded_down
from testing.browser import Visitor
from testing.scenes import Desk, analyst_called, dataset_called, owner_called
from testing.server import Caller, Server

Visit = Callable[..., Visitor]

_COLUMNS = [
    {"name": "age", "type": "number", "low": 0, "high": 110},
    {"name": "dose", "type": "number"},
    {"name": "ward", "type": "category", "categories": ["a", "b"]},
]
_ROWS = "age,dose,ward\n" + "".join(f"{20 + i % 70},{i % 30 / 10},{'ab'[i % 2]}\n" for i in range(3000))


def _table(owner: Caller) -> str:
    declared = {"schema": json.dumps({"kind": "table", "columns": _COLUMNS}), "name": "Ward 9"}
    made = owner.post("/v1/datasets", files={"file": ("ward.csv", _ROWS.encode())}, data=declared)
    assert made.status_code == 201, made.text
    return made.json()["id"]


def test_a_denied_question_says_what_was_asked_and_leads_on(site: Server, visit: Visit) -> None:
    owner, analyst = owner_called(site, "Denying"), analyst_called(site, "Ines Roth")
    dataset = _table(owner)
    assert owner.grant(dataset, analyst, approval="required").status_code == 200
    asked = analyst.estimate(dataset, epsilon=0.6, delta=1e-6, columns=["dose"]).json()
    assert asked["state"] == "requested"
    visitor = visit(site)
    page = visitor.page
    visitor.enter(owner.key)
    visitor.open(f"/dashboard/questions/{asked['id']}")
    expect(page.get_by_role("region", name="What it costs")).to_contain_text("first finds privately")
    verdict = {"decision": "deny", "reason": "doses are not for this study"}
    assert owner.post(f"/v1/jobs/{asked['id']}/decision", json=verdict).status_code == 200
    told = analyst.get(f"/v1/jobs/{asked['id']}").json()["approval"]
    assert told["decided_at"] is not None
    visitor = visit(site)
    page = visitor.page
    visitor.enter(analyst.key)
    visitor.open("/dashboard/answers")
    expect(page.get_by_role("list").filter(has_text="denied")).to_contain_text("doses are not for this study")
    visitor.open(f"/dashboard/answers/{asked['id']}")
    region = page.get_by_role("region", name="Where it stands")
    for words in ("Columns", "dose", "by an owner of the data", "doses are not for", "write to the owner"):
        expect(region).to_contain_text(words)
    expect(region).not_to_contain_text("Denying")  # analysts are not told who owners are
    visitor.check_accessibility()
    region.get_by_role("link", name="Plan it with less").click()
    expect(page.get_by_label("ε", exact=True)).to_have_value("0.3")
    expect(page.locator("input[name=columns]:checked")).to_have_count(1)
    assert page.locator("input[name=columns]:checked").get_attribute("value") == "dose"
    finding = page.get_by_text("first finds privately what nobody declared")
    plan = analyst.plan(dataset, epsilon=0.3, delta=1e-6, columns=["dose"]).json()["finding"]
    expect(finding).to_contain_text(f"in {plan['rounds']} rounds")
    expect(finding).to_contain_text("25 % of the question's own budget")
    assert round(plan["share"], 3) == 0.25
    visitor.check_accessibility()
    phone = visit(site, viewport="phone", scheme="dark")
    phone.enter(analyst.key)
    phone.open(f"/dashboard/granted/{dataset}")
    gap = phone.page.get_by_role("cell", name="refused").first.bounding_box()
    assert gap is not None
    assert gap["height"] < 60  # a word is not broken letter by letter
    phone.check_accessibility()
    phone.open(f"/dashboard/answers/{asked['id']}")
    phone.check_accessibility()
    phone.page.get_by_role("link", name="My questions").last.click()
    expect(phone.page.get_by_role("heading", name="My questions")).to_be_visible()
    desk = Desk(site, analyst.key)
    for kind, more in (("frechet-mean", {"columns": "age"}), ("bounds", {})):
        address = urlencode({"dataset": dataset, "kind": kind, "epsilon": 0.3, "delta": 1e-6} | more)
        asked = {name: [value] if name == "columns" else value for name, value in more.items()}
        plan = analyst.plan(dataset, kind=kind, epsilon=0.3, delta=1e-6, **asked).json()
        told = "first finds privately" in desk.get(f"/what-if?{address}").text
        assert told == (plan["finding"] is not None), kind


def test_a_refused_question_names_its_columns_and_leads_to_what_fits(site: Server, visit: Visit) -> None:
    owner, analyst = owner_called(site, "Refusing"), analyst_called(site, "Less")
    dataset = _table(owner)
    assert owner.grant(dataset, analyst, epsilon=0.3, delta=1e-6).status_code == 200
    asked = {"epsilon": 0.7, "delta": 1e-6, "columns": ["age", "dose"]}
    assert analyst.estimate(dataset, **asked).status_code == 409
    label = {"label": "ward", "features": ["age"], "epsilon": 0.7, "delta": 1e-6}
    assert analyst.estimate(dataset, kind="logistic-regression", **label).status_code == 409
    (later, act) = owner.get("/v1/acts", params={"kind": "question.refused"}).json()["acts"]
    assert act["details"]["columns"] == ["age", "dose"]
    assert (later["details"]["columns"], later["details"]["label"]) == (["ward", "age"], "ward")
    told = Desk(site, owner.key).get("/acts?kind=question.refused").text
    assert "columns: age, dose" in told
    room = rounded_down(act["details"]["room"])
    assert f"by the analyst&#39;s own cap; with room for ε {room} at that δ" in told
    visitor = visit(site)
    page = visitor.page
    visitor.enter(analyst.key)
    visitor.open("/dashboard/answers")
    rows = page.get_by_role("region", name="Refused at once").locator("tbody tr")
    expect(rows.first).to_contain_text("logistic regression of ward by age")
    expect(rows.last).to_contain_text(f"it had room for ε {room}")
    visitor.check_accessibility()
    rows.last.get_by_role("link", name="Plan with less").click()
    expect(page.get_by_text("Your cap covers this")).to_be_visible()
    chosen = page.locator("input[name=columns]:checked").evaluate_all("all => all.map(each => each.value)")
    assert chosen == ["age", "dose"]
    expect(page.get_by_role("button", name="Ask it")).to_be_visible()
    phone = visit(site, viewport="phone", scheme="dark")
    phone.enter(analyst.key)
    phone.open("/dashboard/answers")
    phone.check_accessibility()


def _refused(page: str) -> list[list[str]]:
    """The rows of refusals on a page, without their moments."""
    rows = re.findall(r"<tr><td data-label=\"Asked.*?</tr>", page, re.DOTALL)
    return [[unescape(re.sub("<[^>]+>", "", cell)) for cell in row.split("</td>")[1:-1]] for row in rows]


def test_an_analyst_reads_of_refusals_what_they_told_it(site: Server) -> None:
    owners, analyst = [owner_called(site, name, 0.5) for name in ("One", "Two")], analyst_called(site, "Ada")
    first, second, third = (dataset_called(owners[place], f"Rows {place}") for place in (0, 1, 1))
    for owner, dataset, terms in (
        (owners[0], first, {"epsilon": 0.3, "delta": 1e-6}),
        (owners[1], second, {"kinds": ["frechet-mean"]}),
        (owners[1], third, {}),
    ):
        assert owner.grant(dataset, analyst, **terms).status_code == 200
    desk = Desk(site, analyst.key)
    assert _refused(desk.get("/answers").text) == []
    assert analyst.estimate(first, epsilon=0.4, delta=1e-6).status_code == 409
    assert analyst.estimate(second, kind="bounds", epsilon=0.1).status_code == 403
    assert analyst.estimate(third, epsilon=2.0, delta=1e-6).status_code == 409
    mean, neither = "mean", "neither your cap nor your grant: ask the owner"
    room = rounded_down(analyst.plan(first, epsilon=0.4, delta=1e-6).json()["room"]["epsilon"])
    expected = [
        [mean, f"Rows 1 ({third[:12]}…)", "2", neither, ""],
        ["bounds", f"Rows 1 ({second[:12]}…)", "", "your grant", ""],
        [mean, "Rows 0", "0.4", f"your capit had room for ε {room}", "Plan with less"],
    ]
    assert _refused(desk.get("/answers").text) == expected
    # Of several owners' data the list would tell whose budget it was, and of one a freeze from the budget.
    body = {"dataset": [{"id": first}, {"id": third}], "privacy": {"epsilon": 0.2, "delta": 1e-5}}
    body["dataset"][1]["privacy"] = {"epsilon": 0.9, "delta": 1e-5}
    both = analyst.post("/v1/estimates/frechet-mean", json=body, headers={"Idempotency-Key": "both"})
    assert both.status_code == 409, both.text
    (act, *_) = owners[1].get("/v1/acts", params={"kind": "question.refused"}).json()["acts"]
    assert act["details"]["several"] is True
    assert _refused(desk.get("/answers").text) == expected
    assert owners[1].patch(f"/v1/owners/{owners[1].id}/budget", json={"frozen": True}).status_code == 200
    assert analyst.estimate(third, epsilon=2.0, delta=1e-6).status_code == 409
    assert _refused(desk.get("/answers").text) == [expected[0], *expected]
    assert owners[1].delete(f"/v1/datasets/{third}/grants/{analyst.id}").status_code == 204
    assert [row[1] for row in _refused(desk.get("/answers").text)] == ["Rows 1", "Rows 0"]
    other = Desk(site, analyst_called(site, "Nobody").key)
    assert "None that is known." in other.get("/answers").text
