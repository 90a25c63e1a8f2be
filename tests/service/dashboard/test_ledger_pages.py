"""The ledger on pages: searched, filtered and paged, an entry in words, what was tampered with, exports."""

import csv
import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import select, text

from privest_service.cli import main
from privest_service.exports.verify import verify_file
from privest_service.jobs.models import Job
from testing.browser import Visitor
from testing.scenes import Desk, Hospital, answered, books, dataset_called, owner_called
from testing.server import Server

Visit = Callable[..., Visitor]


def _numbers(page: Page) -> list[int]:
    """Numbers of the entries on a page, from the top."""
    return [int(each) for each in page.locator("table.entries tbody td:first-child").all_inner_texts()]


def _walk(page: Page) -> Iterator[int]:
    """The entries of this page and of all older ones."""
    while True:
        yield from _numbers(page)
        older = page.locator("a[rel=next]")
        if not older.count():
            return
        older.click()
        page.wait_for_load_state()


@pytest.fixture
def at_ledger(anna: Hospital, visit: Visit) -> Visitor:
    visitor = visit(anna.server)
    visitor.enter(anna.owner.key)
    visitor.open("/dashboard/ledger")
    return visitor


@pytest.mark.few(2)
@pytest.mark.parametrize("wanted", ["name", "part of a name", "number", "job"])
def test_entries_are_found(anna: Hospital, at_ledger: Visitor, wanted: str) -> None:
    job = anna.jobs["loadings"]
    entries = anna.owner.ledger()
    blood = {each["seq"] for each in entries if each["dataset"] == anna.datasets["Blood panels"]}
    jonas = {each["seq"] for each in entries if each["submitter"] == anna.analysts[1].id}
    typed, expected = {
        "name": ("blood PANELS", blood),
        "part of a name": ("Lindq", jonas),
        "number": ("#7", {7}),
        "job": (job, {each["seq"] for each in entries if each["job"] == job}),
    }[wanted]
    page = at_ledger.page
    page.get_by_role("searchbox").fill(typed)
    page.keyboard.press("Enter")
    page.wait_for_url("**/ledger?**")
    assert expected
    assert list(_walk(page)) == sorted(expected, reverse=True)
    at_ledger.open("/dashboard/ledger?text=nobody%20has%20this%20name")
    assert "No entries match." in page.locator("main").inner_text()


@pytest.mark.few(2)
@pytest.mark.parametrize("field", ["analyst", "dataset", "kind", "state"])
def test_entries_are_filtered(anna: Hospital, at_ledger: Visitor, field: str) -> None:
    page, entries = at_ledger.page, anna.owner.ledger()
    with books(anna.server) as database, database.read() as session:
        jobs = {job.id: job for job in session.scalars(select(Job).where(Job.owner_id == anna.owner.id))}

    def value(entry: dict[str, str]) -> str:
        if entry["kind"] == "limit":
            return "limit" if field == "state" else ""
        column = {"analyst": "submitter_id", "dataset": "dataset_id"}.get(field, field)
        return getattr(jobs[entry["job"]], column)

    options = page.locator(f"select[name={field}] option").all()
    choices = [chosen for each in options if (chosen := each.get_attribute("value"))]
    assert {value(each) for each in entries} - {""} <= set(choices)
    for choice in choices:
        at_ledger.open("/dashboard/ledger")
        page.locator(f"select[name={field}]").select_option(choice)
        page.get_by_role("button", name="Show").click()
        page.wait_for_url(f"**{field}={choice}**")
        assert list(_walk(page)) == [each["seq"] for each in entries if value(each) == choice], choice


def test_older_pages_lose_and_double_nothing(anna: Hospital, at_ledger: Visitor) -> None:
    newest = anna.owner.ledger()[0]["seq"]
    assert newest > 50
    found = list(_walk(at_ledger.page))
    assert found == list(range(newest, 0, -1))
    assert "before=" in at_ledger.page.url


def test_an_entry_is_told_in_words_and_verified(anna: Hospital, at_ledger: Visitor) -> None:
    at_ledger.open(f"/dashboard/ledger?text={anna.jobs['ellipse']}")
    page = at_ledger.page
    page.locator("table.entries a").first.click()
    page.wait_for_url("**/ledger/*")
    told = page.locator("main").inner_text()
    for words in (
        "Mean",
        "you",
        "Diffusion tensors",
        anna.jobs["ellipse"],
        "when any one of 400 records",
    ):
        assert words in told
    assert re.search(r"Gaussian noise, σ = [\d.]+.* on the mean gradient, in clips, \d+ steps?", told)
    assert re.search(
        r"Gaussian noise, σ = [\d.]+, on (a sum|\d+ sums) of “\w+” over all records, to which no record adds",
        told,
    )
    assert page.locator(".checks li").count() == 5
    assert page.locator(".checks li.good").count() == 5
    assert page.locator(".checks").inner_text().count("✓") == 5
    page.get_by_text("The receipt", exact=True).click()
    expect(page.locator("pre").last).to_contain_text('"signature"')
    page.get_by_text("The mechanism in full").click()
    expect(page.locator("pre").first).to_contain_text('"releases"')
    at_ledger.check_accessibility()
    here = int(page.url.rpartition("/")[2].partition("?")[0])
    page.locator("a[rel=prev]").click()
    expect(page.locator("h1")).to_have_text(f"Entry {here - 1}")
    at_ledger.open("/dashboard/ledger/1")
    assert "Budget set" in page.locator("main").inner_text()
    assert page.locator("a[rel=prev]").count() == 0
    at_ledger.check_accessibility()


@pytest.mark.costly
def test_what_was_tampered_with_is_seen(site: Server, visit: Visit) -> None:
    owner, visitor = owner_called(site, "Tampered with"), visit(site)
    dataset = dataset_called(owner, "Rows")
    for epsilon in (0.1, 0.11, 0.12):
        answered(owner, dataset, epsilon=epsilon)
    visitor.enter(owner.key)
    page = visitor.page

    def verified() -> str:
        visitor.open("/dashboard/ledger")
        page.get_by_role("button", name="Verify now").click()
        page.wait_for_url("**/ledger/verify")
        visitor.check_accessibility()
        told = page.locator("main").inner_text()
        visitor.open("/dashboard/report")
        sound = page.locator(".word.good").count() == 1
        assert sound == ("No fault was found" in told)
        return told

    told = verified()
    assert "The whole ledger is sound" in told
    assert "No fault was found" in told
    _make_cheaper(site, owner.id, 3)
    for seq in (2, 3, 4):  # each is verified with those before it, and the one after
        visitor.open(f"/dashboard/ledger/{seq}")
        assert page.locator(".checks li.bad").count() >= 1, seq
    assert "✗" in page.locator(".checks").inner_text()
    assert "this does not hold" in page.locator(".checks").inner_text()
    visitor.check_accessibility()
    told = verified()
    assert "Something is wrong with this ledger" in told
    assert re.search(r"entry 3\b", told)
    assert "No fault was found" not in told
    visitor.open("/dashboard")
    assert "The record does not verify." in page.get_by_role("alert").inner_text()


def _make_cheaper(server: Server, owner_id: str, seq: int) -> None:
    """Change an entry, as somebody with the database in hand could, whose guards are put back afterwards."""
    with books(server) as database, database.write() as session:
        named = "SELECT sql FROM sqlite_master WHERE name = 'entries_no_update'"
        guard = session.scalars(text(named)).one()
        session.execute(text("DROP TRIGGER entries_no_update"))
        changed = session.execute(
            text(
                "UPDATE entries SET epsilon = 1 WHERE seq = :seq AND account_id = "
                "(SELECT id FROM accounts WHERE owner_id = :owner AND scope = 'owner')"
            ),
            {"seq": seq, "owner": owner_id},
        )
        assert changed.rowcount == 1  # pyright: ignore
        session.execute(text(guard))


def test_exports_are_downloaded_and_verify(
    anna: Hospital, at_ledger: Visitor, capsys: pytest.CaptureFixture[str]
) -> None:
    key = anna.owner.get("/v1/ledger/keys").json()["keys"][0]["public_key"]
    page = at_ledger.page
    with page.expect_download() as begun:
        page.get_by_role("link", name="Export to verify").click()
    export = begun.value.path()
    assert begun.value.suggested_filename.endswith(".jsonl")
    report = verify_file(str(export), [key])
    assert report.faults == []
    assert report.entries > anna.owner.ledger()[0]["seq"]
    assert main(["verify-ledger", "--export", str(export), "--key", key]) == 0
    assert "entries" in capsys.readouterr().out
    with page.expect_download() as begun:
        page.get_by_role("button", name="Report as CSV").click()
    assert begun.value.suggested_filename.endswith(".csv")
    rows = list(csv.DictReader(begun.value.path().read_text("utf-8-sig").splitlines()))
    told = [(int(row["Number"]), float(row["ε"])) for row in rows if row["Section"] == "entry"]
    assert told == [(each["seq"], each["epsilon"]) for each in reversed(anna.owner.ledger())]


def test_a_search_that_makes_no_sense_is_explained(anna: Hospital) -> None:
    desk = Desk(anna.server, anna.owner.key)
    for asked in ("state=lost", "before=x", "before=0", "window=0", f"text={'x' * 101}"):
        answer = desk.get(f"/ledger?{asked}")
        assert answer.status_code == 422, asked
        assert asked.partition("=")[0] in answer.text
    assert desk.get("/ledger?window=2").status_code == 404
    assert "No entries match." in desk.get("/ledger?text=%25").text, "it is no pattern"
