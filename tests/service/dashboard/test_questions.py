"""The pages on which an owner decides on questions: what they show, and what comes of a decision."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from testing.browser import Visitor
from testing.scenes import Desk, analyst_called, dataset_called, owner_called
from testing.server import Caller, Server

Visit = Callable[..., Visitor]


def _asked(analyst: Caller, dataset: str, epsilon: float) -> str:
    answer = analyst.estimate(dataset, epsilon=epsilon, delta=1e-6, reuse=False)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def test_an_owner_grants_with_terms_and_decides_on_what_is_asked(site: Server, visit: Visit) -> None:
    owner, analyst = owner_called(site, "Deciding"), analyst_called(site, "Ines Roth")
    dataset, visitor = dataset_called(owner, "Rows to ask about"), visit(site)
    visitor.enter(owner.key)
    visitor.open("/dashboard/questions")
    page = visitor.page
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    assert owner.grant(dataset, analyst, approval="required", purpose="the yearly report").status_code == 200
    visitor.open("/dashboard/analysts")
    row = page.get_by_role("region", name="Grants").get_by_role("row").filter(has_text="Ines Roth")
    expect(row).to_contain_text("each question is approved")
    row.get_by_role("link", name="Change the limit").click()
    expect(page.get_by_label("I approve each question")).to_be_checked()  # so that a new cap keeps it
    visitor.picture("terms")
    page.get_by_label("Most ε of one question").fill("0.5")
    page.get_by_role("button", name="Save").click()
    expect(row).to_contain_text("at most ε 0.5 for one question")
    told = owner.get(f"/v1/datasets/{dataset}/grants/{analyst.id}").json()
    assert (told["approval"], told["purpose"], told["max_epsilon"]) == ("required", "the yearly report", 0.5)
    first, second = _asked(analyst, dataset, 0.2), _asked(analyst, dataset, 0.1)
    visitor.open("/dashboard/questions")
    expect(page.get_by_role("link", name="Questions 2 waiting")).to_be_visible()
    visitor.check_accessibility()
    page.locator(f"a[href$='/questions/{first}']").click()
    for words in ("Ines Roth", "the yearly report", "Rows to ask about", "of the time instead of 50 %"):
        expect(page.locator("main")).to_contain_text(words)
    visitor.check_accessibility()
    visitor.picture("question")
    page.get_by_label("Reason").fill("as agreed")
    page.get_by_label("I have decided").check()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("status")).to_contain_text("Approved")
    assert analyst.ended(first)["state"] == "committed"
    page.locator(f"a[href$='/questions/{second}']").click()
    page.get_by_label("Reason").fill("once is enough")
    page.get_by_label("I have decided").check()
    page.get_by_role("button", name="Deny").click()
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    assert analyst.get(f"/v1/jobs/{second}").json()["approval"]["reason"] == "once is enough"
    assert owner.budget()["queries"] == 1


def test_a_tag_is_shown_as_it_was_written_to_whoever_asked_and_to_the_owner(
    site: Server, visit: Visit
) -> None:
    owner, analyst = owner_called(site, "Tagged"), analyst_called(site, "Ines Roth")
    dataset, tag = dataset_called(owner, "Rows to ask about"), '<img src=x onerror=alert(1)> & "more"'
    assert owner.grant(dataset, analyst, approval="required").status_code == 200
    visitor = visit(site)
    page = visitor.page
    visitor.enter(analyst.key)
    visitor.open(f"/dashboard/what-if?dataset={dataset}&epsilon=0.2")
    page.get_by_label("Tag").fill(tag)
    visitor.check_accessibility()
    page.get_by_role("button", name="Ask it").click()
    expect(page.locator("main")).to_contain_text(tag)
    job = page.url.rpartition("/")[2]
    assert analyst.get(f"/v1/jobs/{job}").json()["tag"] == tag
    untagged = _asked(analyst, dataset, 0.1)
    visitor.open("/dashboard/answers")
    expect(page.locator(f"a[href$='/answers/{untagged}']")).to_have_count(1)
    visitor.picture("tags-of-questions")
    page.get_by_role("link", name=tag).click()
    expect(page.get_by_role("heading", level=2).filter(has_text="mean")).to_have_count(1)
    expect(page.locator("main")).to_contain_text(f"Only those tagged {tag}.")
    visitor.check_accessibility()
    visitor.picture("tags-of-one")
    desk = Desk(site, owner.key)
    verdict = {"decision": "approve"}
    assert owner.post(f"/v1/jobs/{job}/decision", json=verdict).status_code == 200
    assert analyst.ended(job)["state"] == "committed"
    written = "&lt;img src=x onerror=alert(1)&gt; &amp; &#34;more&#34;"
    entry = max(each["seq"] for each in owner.get(f"/v1/owners/{owner.id}/ledger").json()["entries"])
    for path in (f"/questions/{job}", "/questions?which=decided", f"/ledger/{entry}"):
        assert written in desk.get(path).text, path
    visitor.open(f"/dashboard/answers/{job}")
    expect(page.locator("main")).to_contain_text(f"tagged {tag}")


def test_an_analyst_reads_what_became_of_its_questions(site: Server) -> None:
    owner, analyst = owner_called(site, "Asked"), analyst_called(site, "Ines Roth")
    dataset = dataset_called(owner, "Rows to ask about")
    terms = {"approval": "required", "purpose": "the yearly report", "max_epsilon": 0.5}
    told = {"kinds": ["frechet-mean", "bounds"], "expires": "2199-01-31T23:59:59Z"}
    assert owner.grant(dataset, analyst, **terms, **told).status_code == 200
    desk = Desk(site, analyst.key)
    words = ("the owner", "yearly report", "t most ε 0.5", "nly mean, bounds", "ntil 31 Jan 2199")
    for path in ("/granted", f"/granted/{dataset}"):
        page = desk.get(path).text
        assert not [each for each in words if each not in page], path
    denied, withdrawn = _asked(analyst, dataset, 0.2), _asked(analyst, dataset, 0.1)
    assert "waits for approval" in desk.get(f"/answers/{denied}").text
    verdict = {"decision": "deny", "reason": "asked before"}
    assert owner.post(f"/v1/jobs/{denied}/decision", json=verdict).status_code == 200
    assert desk.post(f"/answers/{denied}/withdraw").status_code == 409
    assert desk.post(f"/answers/{withdrawn}/withdraw").status_code == 303
    for job, said in ((denied, "asked before"), (withdrawn, "You withdrew it")):
        page = desk.get(f"/answers/{job}").text
        assert said in page
        assert "Withdraw it" not in page
    assert owner.get("/v1/requests").json()["requests"] == []


def test_a_form_drops_no_terms_that_it_did_not_show(site: Server, visit: Visit) -> None:
    owner, analyst = owner_called(site, "Careful", 1.0), analyst_called(site, "Ines Roth")
    dataset, visitor = dataset_called(owner, "Rows to ask about"), visit(site)
    assert owner.grant(dataset, analyst, approval="required").status_code == 200
    visitor.expects(422, 409)
    visitor.enter(owner.key)
    visitor.open("/dashboard/analysts")
    visitor.page.get_by_text("Somebody whose name is not in the list").click()
    visitor.page.get_by_label("Analyst's id").fill(analyst.id)
    visitor.page.get_by_role("button", name="Grant", exact=True).click()
    expect(visitor.page.get_by_role("alert")).to_contain_text("has a grant with terms")
    job = _asked(analyst, dataset, 1.0)
    assert owner.estimate(dataset, epsilon=1.0, delta=1e-6).json()["state"] == "committed"
    visitor.open(f"/dashboard/questions/{job}")
    page = visitor.page
    page.get_by_label("I have decided").check()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("alert")).to_contain_text("goes on waiting")
    assert analyst.post(f"/v1/jobs/{job}/withdrawal").status_code == 200
    page.get_by_label("I have decided").check()
    page.get_by_role("button", name="Deny").click()
    expect(page.locator("main")).to_contain_text("It was withdrawn")


@pytest.mark.costly
def test_an_owner_finds_what_it_decided_and_what_ended_otherwise(site: Server, visit: Visit) -> None:
    owner, other, analyst = (
        owner_called(site, "Looking back"),
        owner_called(site, "Somebody else"),
        analyst_called(site, "Ines Roth"),
    )
    datasets = [dataset_called(each, "Rows to ask about") for each in (owner, other)]
    for each, dataset in zip((owner, other), datasets, strict=True):
        assert each.grant(dataset, analyst, approval="required").status_code == 200
    approved, denied, withdrawn, waiting = (
        _asked(analyst, datasets[0], epsilon) for epsilon in (0.2, 0.1, 0.15, 0.12)
    )
    decide = {"decision": "approve", "reason": "as agreed"}
    assert owner.post(f"/v1/jobs/{approved}/decision", json=decide).status_code == 200
    decide = {"decision": "deny", "reason": "once is enough"}
    assert owner.post(f"/v1/jobs/{denied}/decision", json=decide).status_code == 200
    assert analyst.post(f"/v1/jobs/{withdrawn}/withdrawal").status_code == 200
    assert analyst.ended(approved)["state"] == "committed"
    foreign = _asked(analyst, datasets[1], 0.2)
    assert other.post(f"/v1/jobs/{foreign}/decision", json=decide).status_code == 200
    desk = Desk(site, owner.key)
    lists = {
        which: {job for job in (approved, denied, withdrawn, waiting, foreign) if f'/{job}"' in page}
        for which in ("waiting", "decided", "approved", "denied", "withdrawn", "expired")
        if (page := desk.get(f"/questions?which={which}").text)
    }
    assert lists == {
        "waiting": {waiting},
        "decided": {approved, denied, withdrawn},
        "approved": {approved},
        "denied": {denied},
        "withdrawn": {withdrawn},
        "expired": set[str](),
    }
    assert desk.get("/questions?which=mine").status_code == 422
    older = desk.get(f"/questions?which=decided&before={denied}").text
    assert (approved in older, denied in older) == (True, False)
    assert foreign not in desk.get(f"/questions?which=decided&before={foreign}").text
    visitor = visit(site)
    page = visitor.page
    visitor.enter(owner.key)
    visitor.open("/dashboard/acts?kind=question.denied")
    page.get_by_role("region", name="Acts").get_by_role("link", name=denied).click()
    region = page.get_by_role("region", name="What became of it")
    for words in ("denied", "once is enough", "Nothing was charged."):
        expect(region).to_contain_text(words)
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    visitor.check_accessibility()
    page.get_by_role("link", name="Questions decided").click()
    rows = page.get_by_role("region", name="Questions").get_by_role("row")
    expect(rows).to_have_count(4)
    expect(rows.filter(has_text="approved, ")).to_contain_text("as agreed")
    expect(rows.filter(has_text="not decided")).to_contain_text("withdrawn")
    visitor.check_accessibility()
    page.get_by_role("link", name="Not decided in time").click()
    expect(page.locator("main")).to_contain_text("There are none.")
    page.get_by_role("link", name="Waiting", exact=True).click()
    expect(rows).to_have_count(2)
    phone = visit(site, viewport="phone")
    phone.enter(owner.key)
    phone.open("/dashboard/questions?which=decided")
    cells = phone.page.get_by_role("cell").filter(has_text="approved, ")
    assert [box["height"] < 60 for cell in cells.all() if (box := cell.bounding_box())] == [True]
    phone.check_accessibility()


def test_what_ended_with_a_grant_or_a_dataset_says_so(site: Server) -> None:
    """To its owner, who revoked or deleted, and to the analyst."""
    owner, analyst = owner_called(site, "Revoking"), analyst_called(site, "Ines Roth")
    of_grant, of_dataset = (dataset_called(owner, name) for name in ("Revoked", "Deleted"))
    for each in (of_grant, of_dataset):
        assert owner.grant(each, analyst, approval="required").status_code == 200
    asked = [_asked(analyst, each, 0.1) for each in (of_grant, of_dataset)]
    taken_back = _asked(analyst, of_grant, 0.2)
    assert analyst.post(f"/v1/jobs/{taken_back}/withdrawal").status_code == 200
    assert owner.delete(f"/v1/datasets/{of_grant}/grants/{analyst.id}").status_code == 204
    assert owner.delete(f"/v1/datasets/{of_dataset}").status_code == 204
    owners, analysts = Desk(site, owner.key), Desk(site, analyst.key)
    for job, theirs, mine in (
        (asked[0], "You revoked the grant while it waited", "Your grant was revoked while it waited"),
        (asked[1], "You deleted the dataset while it waited", "The dataset was deleted while it waited"),
        (taken_back, "The analyst withdrew it", "You withdrew it"),
    ):
        assert theirs in owners.get(f"/questions/{job}").text
        assert mine in analysts.get(f"/answers/{job}").text
