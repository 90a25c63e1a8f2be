"""The whole life of an owner in browsers, and of an analyst: nobody calls the interface by hand."""

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import FilePayload, Page, expect

from testing.browser import Visitor
from testing.server import ADMIN_KEY, Server, until

Visit = Callable[..., Visitor]

PURPOSE = "the yearly report on doses"

WARD = "age,dose\n" + "".join(f"{20 + 7 * i % 70},{i % 30 / 10}\n" for i in range(300))
FILE: FilePayload = {"name": "ward.csv", "mimeType": "text/csv", "buffer": WARD.encode()}


@pytest.fixture
def people(visit: Visit, site: Server) -> tuple[Visitor, Visitor]:
    """An owner and an analyst whom the administrator made on its pages, each signed in with its first key."""
    admin = visit(site)
    admin.enter(ADMIN_KEY)

    def made(path: str, name: str, **fields: str) -> Visitor:
        admin.open(path)
        admin.page.get_by_label("Name", exact=True).fill(name)
        for label, value in fields.items():
            admin.page.get_by_label(label).fill(value)
        admin.page.get_by_role("button", name="Make it").click()
        expect(admin.page.get_by_role("status")).to_contain_text(f"A key for {name}, shown this once")
        key = admin.page.locator("code.key").inner_text()
        admin.open(path)
        assert key not in admin.page.content()
        visitor = visit(site)
        visitor.sign_in(key)
        return visitor

    analyst = made("/dashboard/admin/analysts", "Mira Kessler")
    return made("/dashboard/admin", "Lakeside", **{"Budget ε": "2", "Budget δ": "1e-6"}), analyst


def test_a_life_without_one_call_by_hand(site: Server, people: tuple[Visitor, Visitor]) -> None:
    owning, asking = people
    page, questions = owning.page, asking.page
    expect(questions.locator("main")).to_contain_text("Nothing is granted to you yet")
    link = questions.locator("code", has_text="/dashboard/analysts?analyst=").inner_text()
    expect(page.get_by_role("heading", name="Three steps to begin with")).to_be_visible()
    _upload(owning)
    _be_alerted(owning)
    _grant(page, link)
    job = _ask(asking)
    _approve(owning)
    expect(questions.locator("svg#mean")).to_be_visible()  # it came by itself
    expect(questions.locator("main")).to_contain_text("At most")
    asking.check_accessibility()
    asking.open("/dashboard/answers")
    expect(questions.get_by_role("list").filter(has_text="Ward 9")).to_have_count(1)
    _renew(owning)
    _acts(owning, job)
    _report(page, owning)
    page.get_by_role("button", name="Verify now").click()
    expect(page.locator("h1")).to_have_text("The whole ledger is sound")
    (file,) = (site.directory / "notices").glob("*/alerts.jsonl")
    told = until(lambda: [each for each in _lines(file.read_text()) if each["type"] == "budget.renewed"])
    assert told[0]["facts"] == {"window": 2}
    (asked,) = (each for each in _lines(file.read_text()) if each["type"] == "question.requested")
    assert asked["facts"]["question"] == job


def _report(page: Page, owning: Visitor) -> None:
    """The auditor's report, from the ledger: all of this life in words, and the verifier's own."""
    owning.open("/dashboard/ledger")
    with page.expect_popup() as opened:
        page.get_by_role("button", name="Report to print").click()
    report = opened.value
    for words in (
        "Lakeside",
        "Mira Kessler",
        "Ward 9",
        PURPOSE,
        "as agreed",
        "Question approved",
        "Budget renewed",
    ):
        expect(report.locator("body")).to_contain_text(words)
    expect(report.locator("body")).not_to_contain_text("NOT SOUND")
    report.close()


def _lines(text: str) -> list[dict[str, dict[str, object]]]:
    """Notices in a file, without one that is being written."""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _upload(owning: Visitor) -> None:
    """Bring a table by the wizard, which the first page leads to."""
    page = owning.page
    page.get_by_role("link", name="Upload a table").click()
    page.locator("input[name=file]").set_input_files(FILE)
    for name, low, high in (("age", "0", "110"), ("dose", "0", "3")):
        column = page.get_by_role("group", name=name, exact=True)
        column.get_by_label("Lowest").fill(low)
        column.get_by_label("Highest").fill(high)
    page.locator("[name=name]").fill("Ward 9")
    page.get_by_role("button", name="Upload").click()
    page.wait_for_url("**/datasets/ds_*")
    expect(page.get_by_role("status")).to_contain_text("All 300 records fit")


def _be_alerted(owning: Visitor) -> None:
    """Have notices written into a file, after a name that is none."""
    page = owning.page
    owning.expects(422)
    owning.open("/dashboard/budget")
    page.get_by_role("link", name="Alerts and witnesses").click()
    page.get_by_text("A file that the operator keeps").click()
    page.get_by_label("Name of the file").fill("My alerts")
    page.get_by_role("button", name="Add it").locator("visible=true").click()
    expect(page.get_by_label("Name of the file")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#why-name")).to_contain_text("small letters")
    owning.check_accessibility()
    page.get_by_label("Name of the file").fill("alerts")
    page.get_by_role("button", name="Add it").locator("visible=true").click()
    expect(page.get_by_role("status")).to_contain_text("File added.")
    page.get_by_role("button", name="Try ").click()
    expect(page.get_by_role("heading", name="Alerts and witnesses")).to_be_visible()
    page.get_by_text("A webhook: a program").click()
    page.get_by_label("Address").fill("https://hooks.example/privest")
    page.get_by_role("button", name="Add it").locator("visible=true").click()
    secret = page.locator("code.key").inner_text()
    assert secret.startswith("whsec_")
    owning.open("/dashboard/notices")
    assert secret not in page.content()
    webhook = page.get_by_role("row").filter(has_text="Webhook")
    webhook.get_by_text("Remove", exact=True).click()
    webhook.get_by_role("button", name="Remove it").click()
    expect(page.get_by_role("row").filter(has_text="File")).to_be_visible()
    expect(webhook).to_have_count(0)


def _grant(page: Page, link: str) -> None:
    """Grant by the analyst's address, which chooses the name; each question is approved."""
    page.goto(link)
    expect(page.locator("select[name=analyst]").locator("option:checked")).to_have_text("Mira Kessler")
    page.get_by_label("Cap ε").fill("1")
    assert page.get_by_label("Cap δ").input_value() == "1e-6"
    page.get_by_text("Approval, publishing").click()
    page.get_by_label("I approve each question").check()
    page.get_by_label("Purpose").fill(PURPOSE)
    page.get_by_role("button", name="Grant", exact=True).click()
    expect(page.get_by_role("region", name="Grants")).to_contain_text(PURPOSE)


def _ask(asking: Visitor) -> str:
    """Plan and ask, which has to be approved; the job."""
    page = asking.page
    asking.open("/dashboard")
    for words in ("Each question is approved by the owner", PURPOSE, "of a cap of 1 at δ = 1e−6"):
        expect(page.locator("main")).to_contain_text(words)
    page.get_by_role("link", name="Plan a question on Ward 9").click()
    page.locator("[name=epsilon]").fill("0.8")
    page.locator("[name=delta]").fill("1e-6")
    page.get_by_role("button", name="Plan it").click()
    expect(page.get_by_role("status")).to_contain_text("Your cap covers this.")
    expect(page.locator("main")).to_contain_text("The owner of the data decides on it first.")
    page.get_by_role("button", name="Ask it").click()
    page.wait_for_url("**/answers/job_*")
    expect(page.get_by_role("status").first).to_contain_text("waits for approval")
    asking.check_accessibility()
    return page.url.rpartition("/")[2]


def _approve(owning: Visitor) -> None:
    """Find the question in the navigation, read it, and approve it."""
    page = owning.page
    owning.open("/dashboard")
    page.get_by_role("link", name="Questions 1 waiting").click()
    page.get_by_role("region", name="Questions").get_by_role("link").click()
    for words in ("Mira Kessler", PURPOSE, "of the time instead of 50 %"):
        expect(page.locator("main")).to_contain_text(words)
    owning.check_accessibility()
    page.get_by_label("Reason").fill("as agreed")
    page.get_by_label("I have decided").check()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("status")).to_contain_text("Approved")


def _renew(owning: Visitor) -> None:
    """Set a rule and a pace, renew the budget by hand, and raise it."""
    page = owning.page
    owning.open("/dashboard/budget")
    rule = page.get_by_role("region", name="Renew it by rule")
    rule.get_by_label("A window opens").select_option("year")
    rule.get_by_label("Most windows").fill("many")
    rule.get_by_role("button", name="Set the rule").click()
    expect(page.locator("#why-most")).to_have_text("Must be a whole number.")
    expect(rule.get_by_label("A window opens")).to_have_value("year")  # what was right stays
    owning.check_accessibility()
    rule.get_by_label("Most windows").fill("3")
    rule.get_by_label("Fewest days").fill("0")
    rule.get_by_role("button", name="Set the rule").click()
    together = page.get_by_role("region", name="What all windows promise together")
    expect(together).to_contain_text("The next one opens by itself on 1 Jan")
    expect(together.get_by_role("row").filter(has_text="there may ever be")).to_contain_text("3e−6")
    page.get_by_label("Most that seven days").fill("75")
    page.get_by_role("button", name="Set the pace").click()
    expect(together).to_contain_text("Seven days may take at most 75 % of a window.")
    page.get_by_label("I know that people in my data").check()
    page.get_by_role("button", name="Open window 2").click()
    promised = page.get_by_role("region", name="What each window promises")
    expect(promised.locator("tbody tr")).to_have_count(2)
    page.get_by_role("region", name="Raise it").get_by_label("ε").fill("2.5")
    page.get_by_label("I know that it cannot be lowered").check()
    page.get_by_role("button", name="Raise it").click()
    expect(promised.locator("tbody tr").first).to_contain_text("2.5")


def _acts(owning: Visitor, job: str) -> None:
    """All of it is in the record of acts, which can be searched."""
    page = owning.page
    owning.open("/dashboard/acts")
    acts = page.get_by_role("region", name="Acts").last
    for words in (
        "Owner created",
        "Dataset made",
        "Channel for notices made",
        "Grant made",
        "Question approved",
        "as agreed",
        "Rules for windows and pace set",
        "Budget renewed",
        "Budget raised",
        "Signed in",
    ):
        expect(acts).to_contain_text(words)
    owning.check_accessibility()
    page.get_by_label("Search").fill(job)
    page.get_by_role("button", name="Show").click()
    expect(acts.locator("tbody tr")).to_have_count(1)
    expect(acts).to_contain_text("Question approved")
