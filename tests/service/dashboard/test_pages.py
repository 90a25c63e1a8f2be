"""Budgets on pages: live updates, plans, grants, warnings, freezes, the administrator's view."""

import re
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from testing.browser import Visitor
from testing.scenes import analyst_called, answered, dataset_called, owner_called
from testing.server import ADMIN_KEY, Server, problem, until

Visit = Callable[..., Visitor]


def _share(text: str) -> str:
    """The first share in a text, as people read it."""
    found = re.search(r"<?[\d.]+ %", text)
    assert found is not None, text
    return found[0]


def _main(page: Page) -> str:
    return page.locator("main").inner_text()


# While one looks


@pytest.mark.few(1)
@pytest.mark.parametrize("path", ["/dashboard", "/dashboard/ledger"])
def test_a_question_of_another_process_appears_by_itself(site: Server, visit: Visit, path: str) -> None:
    owner, analyst = owner_called(site, "Watching"), analyst_called(site, "Ursula Brandt")
    dataset = dataset_called(owner, "Watched rows")
    assert owner.grant(dataset, analyst).status_code == 200
    visitor = visit(site)
    visitor.enter(owner.key)
    with visitor.page.expect_response("**/dashboard/events"):
        visitor.open(path)
    expect(visitor.page.locator("#live")).to_be_visible()
    expect(visitor.page.locator("table.entries tbody tr")).to_have_count(1)
    visitor.page.evaluate("window.stays = true")
    answered(analyst, dataset)
    newest = visitor.page.locator("table.entries tbody tr").first
    expect(newest).to_contain_text("Ursula Brandt")
    expect(newest).to_contain_text("Watched rows")
    expect(newest).to_contain_text("answered")
    assert visitor.page.evaluate("window.stays"), "the page was not loaded again"
    visitor.check_accessibility()


def test_what_an_administrator_froze_has_no_button_that_ends_it(site: Server, visit: Visit) -> None:
    owner, visitor = owner_called(site, "Stopped"), visit(site)
    assert site.admin.patch(f"/v1/owners/{owner.id}/budget", json={"frozen": True}).status_code == 200
    visitor.enter(owner.key)
    visitor.open("/dashboard")
    expect(visitor.page.get_by_text("until an administrator ends the freeze")).to_be_visible()
    expect(visitor.page.get_by_text("Questions are stopped")).to_be_visible()
    expect(visitor.page.get_by_role("button", name="freeze")).to_have_count(0)


def test_a_frozen_budget_says_so_in_all_open_pages(site: Server, visit: Visit) -> None:
    owner, visitor = owner_called(site, "Frozen"), visit(site)
    dataset = dataset_called(owner, "Cold rows")
    visitor.enter(owner.key)
    visitor.open("/dashboard")
    page = visitor.page
    page.get_by_role("button", name="Freeze the budget").click()
    expect(page.get_by_text("Your budget is frozen.")).to_be_visible()
    problem(owner.estimate(dataset), 409, "account-frozen")
    visitor.open(f"/dashboard/what-if?dataset={dataset}&epsilon=0.1")
    assert "frozen" in page.get_by_role("alert").inner_text().lower()
    assert "covers" not in _main(page)
    visitor.open("/dashboard")
    page.get_by_role("button", name="End the freeze").click()
    expect(page.get_by_text("Your budget is frozen.")).to_have_count(0)
    answered(owner, dataset)


# Plans


def test_a_plan_foretells_what_is_spent_in_the_end(site: Server, visit: Visit) -> None:
    owner, visitor = owner_called(site, "Planning"), visit(site)
    dataset = dataset_called(owner, "Planned rows")
    before = owner.budget()
    visitor.enter(owner.key)
    visitor.open("/dashboard")
    page = visitor.page
    page.get_by_role("button", name="Plan it").click()
    page.wait_for_url("**/what-if?**")
    page.locator("input[name=epsilon]").fill("0.7")
    page.get_by_label("δ").fill("1e-6")
    page.get_by_role("button", name="Plan it").click()
    page.wait_for_url("**delta=1e-6**")
    assert "The budget covers this." in page.get_by_role("status").inner_text()
    foretold = _share(
        page.get_by_role("region", name="The budget with this question").locator(".big").inner_text()
    )
    assert page.locator("svg#gauge title").first.text_content() == "Share of the budget spent"
    assert page.locator("svg#curve").is_visible()
    visitor.check_accessibility()
    assert owner.budget() == before
    answered(owner, dataset, epsilon=0.7)
    visitor.open("/dashboard")
    assert page.locator("svg#gauge .figure").text_content() == foretold
    visitor.open("/dashboard/datasets")
    assert page.locator("tbody td").nth(5).inner_text() == foretold


@pytest.mark.few(1)
@pytest.mark.parametrize("composition", ["gdp", "basic"])
def test_a_plan_that_is_too_dear_says_what_would_fit(site: Server, visit: Visit, composition: str) -> None:
    owner, visitor = owner_called(site, "Poor", 1.0, composition), visit(site)
    dataset = dataset_called(owner, "Dear rows")
    answered(owner, dataset, epsilon=0.3704, delta=1e-6)
    before = owner.budget()
    visitor.enter(owner.key)
    visitor.open(f"/dashboard/what-if?dataset={dataset}&epsilon=3&delta=1e-6")
    alert = visitor.page.get_by_role("alert").inner_text()
    assert "would be refused" in alert
    assert "The budget covers this" not in _main(visitor.page)
    visitor.check_accessibility()
    found = re.search(r"largest that still fits has ε = (\d+(?:\.\d+)?)", alert)
    assert found is not None, alert
    visitor.open(f"/dashboard/what-if?dataset={dataset}&epsilon={found[1]}&delta=1e-6")
    assert "The budget covers this" in _main(visitor.page)
    assert owner.budget() == before
    problem(owner.estimate(dataset, epsilon=3, delta=1e-6), 409, "budget-exceeded")


def test_a_plan_of_nonsense_is_explained(site: Server, visit: Visit) -> None:
    owner, visitor = owner_called(site, "Typing"), visit(site)
    dataset = dataset_called(owner, "Rows")
    visitor.expects(422)
    visitor.enter(owner.key)
    for asked, words in {
        "epsilon=much": "number",
        "epsilon=-1": "above 0",
        "epsilon=0.1&options={": "must be a JSON object",
        'epsilon=0.1&options={"steps": -1}': "steps",
        "epsilon=0.1&kind=robust-pca&rank=2": "",
    }.items():
        answer = visitor.open(f"/dashboard/what-if?dataset={dataset}&{asked}")
        assert answer.status == 422, asked
        assert words in visitor.page.get_by_role("alert").inner_text(), asked
        assert visitor.page.locator("input[name=epsilon]").is_visible(), "the form is there to mend it"
    visitor.check_accessibility()


# Grants


def test_a_grant_is_made_capped_and_revoked(site: Server, visit: Visit) -> None:
    owner, analyst = owner_called(site, "Granting"), analyst_called(site, "Ida Moreau")
    dataset, visitor = dataset_called(owner, "Shared rows"), visit(site)
    problem(analyst.estimate(dataset), 404, "not-found")
    visitor.enter(owner.key)
    visitor.open("/dashboard/analysts")
    page = visitor.page
    assert "Nobody but you." in _main(page)
    page.get_by_text("Somebody whose name is not in the list").click()
    page.get_by_label("Analyst's id").fill(f" {analyst.id} ")
    page.get_by_label("Cap ε").fill("0.3")  # its δ is that of the budget
    page.get_by_role("button", name="Grant", exact=True).click()
    row = page.get_by_role("region", name="Grants").locator("tbody tr").filter(has_text="Ida Moreau")
    expect(row).to_contain_text("Shared rows")
    expect(row).to_contain_text("ε 0.3, δ 1e−5")
    known = page.locator("select[name=analyst] option")
    assert [(each.get_attribute("value"), each.text_content()) for each in known.all()] == [
        ("", "choose a name"),
        (analyst.id, "Ida Moreau"),
    ]
    visitor.check_accessibility()
    answered(analyst, dataset)
    problem(analyst.estimate(dataset, epsilon=0.29, delta=1e-6), 409, "budget-exceeded")
    visitor.open("/dashboard/analysts")
    spent = owner.budget()["spent"]["epsilon"]
    expect(row.locator("td").nth(3)).to_have_text("1")
    assert float(row.locator("td").nth(4).inner_text()) == pytest.approx(spent, rel=0.01)
    assert page.locator("svg#by-analyst title").first.text_content()
    row.get_by_role("link", name="Change the limit").click()
    expect(page.locator("select[name=analyst]")).to_have_value(analyst.id)
    assert float(page.get_by_label("Cap ε").input_value()) == 0.3
    page.get_by_label("Cap ε").fill("1")
    page.get_by_role("button", name="Save").click()
    expect(row).to_contain_text("ε 1, δ 1e−5")
    answered(analyst, dataset, epsilon=0.29)
    row.locator("summary", has_text="Revoke").click()
    visitor.check_accessibility()
    row.get_by_label("Reason, for the record").fill("the study is over")
    row.get_by_role("button", name="Revoke it").click()
    expect(page.get_by_text("Nobody but you.")).to_be_visible()
    (act,) = (each for each in owner.get("/v1/acts").json()["acts"] if each["kind"] == "grant.revoked")
    assert act["reason"] == "the study is over"
    problem(analyst.estimate(dataset), 404, "not-found")


def test_a_grant_that_cannot_be_is_explained(site: Server, visit: Visit) -> None:
    owner, analyst = owner_called(site, "Mistaken"), analyst_called(site, "Ida Moreau")
    dataset, visitor = dataset_called(owner, "Shared rows"), visit(site)
    assert owner.grant(dataset, analyst).status_code == 200
    answered(analyst, dataset)
    visitor.expects(422)
    visitor.enter(owner.key)
    visitor.open("/dashboard/analysts")
    page = visitor.page
    page.get_by_text("Somebody whose name is not in the list").click()
    for who, epsilon, delta, words in (
        ("anl_nobody", "", "", "is no analyst here"),
        (owner.id, "", "", "is no analyst here"),
        (analyst.id, "0.1", "1e-5", "More than this cap is spent already"),
        (analyst.id, "plenty", "1e-5", "must be a number"),
        (analyst.id, "nan", "1e-5", "must be a number"),
        (analyst.id, "1_0", "1e-5", "must be a number"),
        (analyst.id, "٣", "1e-5", "must be a number"),
        (analyst.id, "-1", "1e-5", "above"),
        (analyst.id, "", "1e-6", "both"),
    ):
        page.get_by_label("Analyst's id").fill(who)
        page.get_by_label("Cap ε").fill(epsilon)
        page.get_by_label("Cap δ").fill(delta)
        with page.expect_navigation() as led:
            page.get_by_role("button", name="Grant", exact=True).click()
        assert led.value is not None
        assert led.value.status == 422, words
        assert words in page.get_by_role("alert").inner_text()
        assert page.get_by_label("Analyst's id").input_value() == who, "what was typed stays"
        assert page.get_by_label("Cap ε").input_value() == epsilon
    visitor.check_accessibility()


# Warnings


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("epsilon", "level", "scheme"), [(0.79, None, "light"), (0.8, "warn", "light"), (0.96, "bad", "dark")]
)
def test_the_overview_warns_in_time(
    site: Server, visit: Visit, epsilon: float, level: str | None, scheme: str
) -> None:
    owner = owner_called(site, "Nearly there", 1.0, "basic")
    answered(owner, dataset_called(owner, "Rows"), epsilon=epsilon)
    visitor = visit(site, scheme=scheme)
    visitor.enter(owner.key)
    visitor.open("/dashboard")
    notices = visitor.page.locator("main .notice")
    if level is None:
        expect(notices).to_have_count(0)
    else:
        assert re.search(rf"\b{level}\b", notices.get_attribute("class") or "")
        assert f"{round(100 * epsilon)} % of your budget is spent." in notices.inner_text()
        left = re.search(r"still fits has ε = (\d+(?:\.\d+)?)", notices.inner_text())
        assert left is not None
        assert float(left[1]) == pytest.approx(1 - epsilon)
    assert visitor.page.locator(f"svg#gauge .spent.{level or 'good'}").count() == 1
    visitor.check_accessibility()


def test_a_budget_that_is_gone_says_so(site: Server, visit: Visit) -> None:
    owner, visitor = owner_called(site, "Done", 0.5, "basic"), visit(site)
    answered(owner, dataset_called(owner, "Rows"), epsilon=0.5)
    visitor.enter(owner.key)
    visitor.open("/dashboard")
    assert "100 % of your budget is spent. Every further question is refused." in " ".join(
        visitor.page.locator("main .notice").inner_text().split()
    )


# The administrator


@pytest.mark.parametrize("backend", ["sqlite"])
def test_the_administrator_sees_all_owners_and_stops_one(
    start_server: Callable[..., Server], visit: Visit
) -> None:
    server = start_server()
    first, second = owner_called(server, "St. Anna Hospital"), owner_called(server, "Bay Clinic")
    dataset = dataset_called(first, "Rows")
    answered(first, dataset, epsilon=0.5)
    visitor = visit(server)
    visitor.enter(ADMIN_KEY)
    visitor.open("/dashboard/admin")
    page = visitor.page
    row = page.locator("tbody tr").filter(has_text=first.id)
    assert "St. Anna Hospital" in row.inner_text()
    assert page.locator("tbody tr").count() == 2
    visitor.check_accessibility()
    row.get_by_role("button", name="Freeze").click()
    expect(row).to_contain_text("frozen")
    problem(first.estimate(dataset), 409, "account-frozen")
    page.get_by_role("link", name="Only frozen").click()
    page.wait_for_url("**/admin?frozen=true")
    assert page.locator("tbody tr").count() == 1
    assert second.id not in _main(page)
    row.get_by_role("button", name="End the freeze").click()
    expect(row).to_contain_text("open")
    assert urlsplit(page.url).path == "/dashboard/admin"
    answered(first, dataset)
    visitor.open("/dashboard/admin?frozen=true")
    assert "None." in _main(page)
    visitor.open("/dashboard/admin/service")
    assert "Ready." in page.get_by_role("status").inner_text()
    queue = page.locator("#h-queue ~ dl").inner_text()
    assert "up" in queue
    assert "1 job at a time, by this machine" in queue
    assert until(lambda: not first.budget()["frozen"])
