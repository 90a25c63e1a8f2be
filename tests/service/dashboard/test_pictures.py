"""The pictures of docs/dashboard.md: a hospital, eight weeks after it came."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from testing.browser import Visitor
from testing.history import signing_key
from testing.scenes import Hospital, answered, dataset_called, hospital, owner_called
from testing.server import ADMIN_KEY, Caller, Server, until

Visit = Callable[..., Visitor]

BAD_FILE = b"""age,dose,sex,ill
61,1.5,0,yes
40,0.5,1,no
,0.5,1,no
55,1.0,0,perhaps
47,many,0,yes
52,0.5,1,no
"""


@pytest.fixture
def seen(visit: Visit, anna: Hospital) -> Callable[..., Visitor]:
    """Opens a page of the hospital."""

    def open_page(path: str, **how: str) -> Visitor:
        visitor = visit(anna.server, **how)
        visitor.enter(anna.owner.key)
        visitor.open(f"/dashboard{path}")
        if visitor.page.locator("body[data-events]").count():
            expect(visitor.page.locator("#live")).to_be_visible()
        return visitor

    return open_page


def test_the_sign_in(site: Server, visit: Visit) -> None:
    visitor = visit(site)
    visitor.open("/dashboard/sign-in")
    visitor.picture("dashboard-sign-in", full_page=False)


def test_the_overview(seen: Callable[..., Visitor]) -> None:
    visitor = seen("")
    visitor.page.set_viewport_size({"width": 1280, "height": 945})
    visitor.picture("dashboard-overview", full_page=False)


def test_the_overview_at_night_on_a_phone(seen: Callable[..., Visitor]) -> None:
    seen("", scheme="dark", viewport="phone").picture("dashboard-phone", full_page=False)


def test_who_learned_what(seen: Callable[..., Visitor]) -> None:
    seen("/learned").picture("dashboard-learned")


def test_the_datasets(seen: Callable[..., Visitor]) -> None:
    seen("/datasets").picture("dashboard-datasets")


def test_a_report(seen: Callable[..., Visitor]) -> None:
    seen("/report").picture("dashboard-report", full_page=False)


def test_a_file_with_faults(seen: Callable[..., Visitor]) -> None:
    visitor = seen("/datasets/new")
    visitor.expects(422)
    page = visitor.page
    page.locator("input[name=file]").set_input_files(
        [{"name": "ward-8.csv", "mimeType": "text/csv", "buffer": BAD_FILE}]
    )
    for name, low, high in (("age", "18", "110"), ("dose", "0", "3")):
        column = page.get_by_role("group", name=name)
        column.get_by_label("Type").select_option("number")
        column.get_by_label("Lowest").fill(low)
        column.get_by_label("Highest").fill(high)
    page.get_by_role("group", name="ill").get_by_label("Categories").fill("no\nyes")
    page.locator("[name=name]").fill("Ward 8, 2025")
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("alert")).to_be_focused()
    expect(page.get_by_label("instead")).to_have_count(3)
    visitor.picture("dashboard-upload")


def test_the_ledger(seen: Callable[..., Visitor]) -> None:
    seen("/ledger?state=committed").picture("dashboard-ledger", full_page=False)


def test_an_entry(seen: Callable[..., Visitor], anna: Hospital) -> None:
    visitor = seen(f"/ledger?text={anna.jobs['loadings']}")
    visitor.page.locator("tbody a").first.click()
    visitor.page.wait_for_url("**/ledger/*")
    visitor.picture("dashboard-entry")


def test_the_analysts(seen: Callable[..., Visitor]) -> None:
    seen("/analysts").picture("dashboard-analysts")


def test_a_plan_that_is_covered(seen: Callable[..., Visitor], anna: Hospital) -> None:
    dataset = anna.datasets["Diffusion tensors"]
    seen(f"/what-if?dataset={dataset}&epsilon=0.5&delta=1e-6").picture("dashboard-what-if")


def test_a_plan_that_is_too_dear(seen: Callable[..., Visitor], anna: Hospital) -> None:
    dataset = anna.datasets["Blood panels"]
    seen(f"/what-if?dataset={dataset}&epsilon=3.2&delta=1e-6").picture("dashboard-over-budget")


@pytest.mark.parametrize("what", ["ellipse", "loadings", "coefficients"])
def test_an_answer(seen: Callable[..., Visitor], anna: Hospital, what: str) -> None:
    seen(f"/answers/{anna.jobs[what]}").picture(f"dashboard-{what}")


def test_what_an_analyst_may_ask(anna: Hospital, visit: Visit) -> None:
    visitor = visit(anna.server)
    visitor.enter(anna.analysts[0].key)
    visitor.open("/dashboard/granted")
    visitor.picture("dashboard-granted")


def _decided(anna: Hospital, visit: Visit) -> None:
    """What waits for the hospital, and the rules and alerts that it set."""
    owner, (analyst, _) = anna.owner, anna.analysts
    dataset, told = anna.datasets["Blood panels"], f"/v1/owners/{anna.owner.id}"
    terms = {"approval": "required", "purpose": "the yearly report on anaemia", "max_epsilon": 0.5}
    assert owner.grant(dataset, analyst, **terms).status_code == 200
    asked = {"kind": "robust-pca", "rank": 2, "epsilon": 0.3, "delta": 1e-6}
    job = analyst.estimate(dataset, **asked).json()["id"]
    rules = {"renewal": {"every": "year", "most": 5}, "pace": 0.25}
    assert owner.patch(f"{told}/budget", json=rules).status_code == 200
    for channel in ({"kind": "file", "name": "alerts"}, {"kind": "webhook", "url": "https://[::1]/x"}):
        made = owner.post(f"{told}/channels", json=channel | {"heads": "day"})
        assert made.status_code == 201
        assert owner.post(f"{told}/channels/{made.json()['id']}/test").status_code == 204
    visitor = visit(anna.server)
    visitor.enter(owner.key)
    for path, name in ((f"/questions/{job}", "question"), ("/budget", "budget")):
        visitor.open(f"/dashboard{path}")
        visitor.picture(f"dashboard-{name}")
    until(lambda: not [each for each in _channels(owner) if not (each["delivered_at"] or each["last_error"])])
    visitor.open("/dashboard/notices")
    visitor.picture("dashboard-notices")


def _channels(owner: Caller) -> list[dict[str, str | None]]:
    return owner.get(f"/v1/owners/{owner.id}/channels").json()["channels"]


@pytest.mark.costly
@pytest.mark.parametrize("backend", ["sqlite"])
def test_the_owners_and_what_one_decides(
    start_server: Callable[..., Server], visit: Visit, tmp_path: Path
) -> None:
    server = start_server(signing_key_file=signing_key(tmp_path), notice_dir=tmp_path)
    _decided(hospital(server, queries=30), visit)
    clinic = owner_called(server, "Bay Clinic", 1.0)
    answered(clinic, dataset_called(clinic, "Heart rates"), epsilon=0.93)
    registry = owner_called(server, "Cancer registry of the north", 2.0, "basic")
    answered(registry, dataset_called(registry, "Cases"), epsilon=1.64)
    assert registry.patch(f"/v1/owners/{registry.id}/budget", json={"frozen": True}).status_code == 200
    visitor = visit(server)
    visitor.sign_in(ADMIN_KEY)
    visitor.picture("dashboard-admin")
    visitor.open("/dashboard/admin/service")
    visitor.picture("dashboard-service")
