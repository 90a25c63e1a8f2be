"""Pages for everybody: without scripts, by keyboard, in the dark, on a phone, by a screen reader."""

from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from testing.browser import Visitor
from testing.history import signing_key
from testing.scenes import (
    Hospital,
    admin_pages,
    all_pages,
    analyst_called,
    analyst_pages,
    dataset_called,
    hospital,
    owner_called,
)
from testing.server import ADMIN_KEY, Server, csv_of, spd

Visit = Callable[..., Visitor]

WHAT_IS_FOCUSED = """() => {
    const at = document.activeElement, box = at.getBoundingClientRect(), style = getComputedStyle(at);
    return {
        tag: at.tagName,
        text: at.getAttribute("aria-label") || at.labels?.[0]?.textContent || at.textContent
            || at.querySelector("title")?.textContent || "",
        shown: box.right > 0 && box.bottom > 0 && box.width > 0,
        outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
    };
}"""

OPENED = "all => all.forEach(each => { each.open = true; })"

on_both = pytest.mark.parametrize(("scheme", "viewport"), [("light", "desktop"), ("dark", "phone")])


@pytest.mark.few(1)
@on_both
def test_nothing_keeps_people_out_of_any_page(
    anna: Hospital, visit: Visit, scheme: str, viewport: str
) -> None:
    visitor = visit(anna.server, scheme=scheme, viewport=viewport)
    visitor.expects(403, 404, 422)
    visitor.open("/dashboard/sign-in")
    visitor.check_accessibility()
    _fits(visitor.page)
    visitor.sign_in(anna.owner.key)
    for path, status in [*all_pages(anna), ("/report", 200)]:
        assert visitor.open(f"/dashboard{path}").status == status
        _looked_at(visitor)


@pytest.mark.few(1)
@on_both
def test_nor_of_the_administrators(anna: Hospital, visit: Visit, scheme: str, viewport: str) -> None:
    visitor = visit(anna.server, scheme=scheme, viewport=viewport)
    visitor.enter(ADMIN_KEY)
    for path in admin_pages(anna):
        assert visitor.open(f"/dashboard{path}").status == 200
        _looked_at(visitor)


@pytest.mark.few(1)
@on_both
def test_nor_of_an_analysts(anna: Hospital, visit: Visit, scheme: str, viewport: str) -> None:
    visitor = visit(anna.server, scheme=scheme, viewport=viewport)
    visitor.enter(anna.analysts[0].key)
    for path in analyst_pages(anna):
        assert visitor.open(f"/dashboard{path}").status == 200
        _looked_at(visitor)


@pytest.mark.few(1)
@on_both
def test_nor_of_a_list_of_channels(site: Server, visit: Visit, scheme: str, viewport: str) -> None:
    owner, visitor = owner_called(site, "With channels"), visit(site, scheme=scheme, viewport=viewport)
    for name in ("first", "second"):
        quiet = {"kind": "file", "name": name, "events": ["budget.renewed"]}
        assert owner.post(f"/v1/owners/{owner.id}/channels", json=quiet).status_code == 201
    visitor.enter(owner.key)
    visitor.open("/dashboard/notices")
    _looked_at(visitor)


def _looked_at(visitor: Visitor) -> None:
    """Check a page as it comes, and with all that can be opened."""
    for _ in range(2):
        visitor.check_accessibility()
        _fits(visitor.page)
        visitor.page.locator("details").evaluate_all(OPENED)


def _fits(page: Page) -> None:
    """Nothing of the page itself lies beyond the screen's edge."""
    wide = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] <= wide[1], page.url


def test_all_of_it_is_usable_without_scripts(site: Server, visit: Visit) -> None:
    owner, analyst = owner_called(site, "No scripts"), analyst_called(site, "Ida Moreau")
    visitor = visit(site, java_script=False)
    page = visitor.page
    visitor.sign_in(owner.key)
    assert page.title() == "Overview · Privest"
    page.get_by_role("link", name="Upload a dataset").click()
    page.get_by_role("link", name="Points on a manifold").click()
    page.locator("[name=name]").fill("Plain rows")
    page.locator("[name=manifold]").select_option("spd")
    page.locator("[name=dim]").fill("2")
    page.locator("input[name=file]").set_input_files(
        [{"name": "rows.csv", "mimeType": "text/csv", "buffer": csv_of(spd(50, 2))}]
    )
    page.get_by_role("button", name="Upload").click()
    page.wait_for_url("**/datasets/ds_*")
    (dataset,) = [each["id"] for each in owner.get("/v1/datasets").json()["datasets"]]
    page.get_by_role("link", name="Grant", exact=True).click()
    page.get_by_text("Somebody whose name is not in the list").click()
    page.locator("[name=other]").fill(analyst.id)
    page.get_by_role("button", name="Grant", exact=True).click()
    expect(page.get_by_role("region", name="Grants")).to_contain_text("Ida Moreau")
    assert analyst.estimate(dataset).json()["state"] == "committed"
    page.get_by_role("link", name="What if").click()
    page.get_by_role("button", name="Plan it").click()
    expect(page.get_by_role("status")).to_contain_text("The budget covers this.")
    expect(page.locator("svg#curve")).to_be_visible()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Ledger").click()
    page.locator("[name=analyst]").select_option(analyst.id)
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in")
    visitor.open("/dashboard")
    assert urlsplit(page.url).path == "/dashboard/sign-in"


def test_the_first_stop_of_the_keyboard_leads_to_the_content(anna: Hospital, visit: Visit) -> None:
    visitor = visit(anna.server)
    visitor.enter(anna.owner.key)
    visitor.open("/dashboard")
    visitor.page.keyboard.press("Tab")
    focused = visitor.page.evaluate(WHAT_IS_FOCUSED)
    assert focused["text"] == "To the content"
    assert focused["shown"]
    visitor.page.keyboard.press("Enter")
    assert visitor.page.evaluate("document.activeElement.id") == "content"


@pytest.mark.few(1)
@pytest.mark.parametrize("path", ["", "/ledger", "/analysts", "/datasets/new"])
def test_every_stop_of_the_keyboard_is_seen_and_named(anna: Hospital, visit: Visit, path: str) -> None:
    visitor = visit(anna.server)
    page = visitor.page
    visitor.enter(anna.owner.key)
    visitor.open(f"/dashboard{path}")
    stops = []
    for _ in range(400):
        page.keyboard.press("Tab")
        focused = page.evaluate(WHAT_IS_FOCUSED)
        if focused["tag"] == "BODY" or (stops and focused["text"] == "To the content"):
            break
        stops.append(focused)
    assert stops[0]["text"] == "To the content"
    assert len(stops) > 9
    for stop in stops:
        assert stop["shown"], stop
        assert stop["outlined"], stop
        assert stop["text"].strip(), stop
    assert any(stop["text"] == "Sign out" for stop in stops)


def test_a_person_at_the_keyboard_stops_all_queries(site: Server, visit: Visit) -> None:
    owner, visitor = owner_called(site, "By keyboard"), visit(site)
    dataset_called(owner, "Rows")
    visitor.sign_in(owner.key)
    page = visitor.page
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Freeze the budget":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_text("Your budget is frozen.")).to_be_visible()
    assert owner.budget()["frozen"]


@pytest.mark.costly
@pytest.mark.parametrize("backend", ["postgresql"])
def test_all_pages_are_there_on_the_other_database(
    start_server: Callable[..., Server], visit: Visit, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = start_server(signing_key_file=signing_key(tmp_path_factory.mktemp("key")))
    story = hospital(server, queries=12)
    visitor = visit(server)
    visitor.expects(403, 404, 422)
    visitor.sign_in(story.owner.key)
    for path, status in all_pages(story):
        assert visitor.open(f"/dashboard{path}").status == status, path
    visitor.open("/dashboard/ledger?text=blood")
    assert visitor.page.locator("tbody tr").count() > 1
    visitor.page.get_by_role("button", name="Verify now").click()
    expect(visitor.page.locator("h1")).to_have_text("The whole ledger is sound")
