"""What an owner's pages say: one price everywhere, what limits, when windows open, where chains end."""

import html
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from privest_service.cli import main
from privest_service.ledger import renewals
from privest_service.ledger.models import WindowRules
from privest_service.ledger.service import owner_account
from privest_service.reports.formatting import day, left_percent, rounded_down, rounded_up, spent_percent
from testing.history import past
from testing.scenes import Desk, analyst_called, answered, books, dataset_called, owner_called
from testing.server import ADMIN_KEY, Caller, Server, until


def _text(page: str) -> str:
    """The words of a page, in one line."""
    body = re.sub(r"<style.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(body).split())


def _rows(page: str, table: int = 0) -> list[str]:
    """The rows of a table, in words."""
    return [_text(row) for row in re.findall(r"<tr>.*?</tr>", page.split("<table")[1:][table], re.DOTALL)]


@pytest.fixture
def asked(site: Server) -> tuple[Caller, str]:
    """An owner with one dataset and a question about it."""
    owner = owner_called(site, "One price")
    dataset = dataset_called(owner, "Rows")
    answered(owner, dataset, epsilon=0.3, delta=1e-6)
    return owner, dataset


def test_one_question_has_one_price_everywhere(site: Server, asked: tuple[Caller, str]) -> None:
    owner, dataset = asked
    desk, budget = Desk(site, owner.key), owner.budget()
    cost, share = rounded_up(budget["spent"]["epsilon"]), spent_percent(budget["share"])
    assert cost != "0.3", "what it costs at the budget's δ is not what it asked for"
    for path in ("", "/ledger"):
        (newest, first) = _rows(desk.get(path).text)[1:]
        assert f"ε {cost} {share} answered" in newest, path
        assert first.endswith("budget set: ε 3, δ 1e−5 budget set"), path
    entry = _text(desk.get("/ledger/2").text)
    assert f"ε at your budget's δ {cost} Share of the budget {share}" in entry
    assert "Asked with ε 0.3, δ 1e−6" in entry
    assert f"ε {cost} at your δ, {share} of the budget" in desk.get("").text, "beside its mark in the chart"
    _, _, movements = desk.get("/report").text.partition("Every movement of the budget</h2>")
    told = next(row for row in _rows(movements) if "answered" in row)
    assert f" {cost} {share} " in told
    assert " 0.3 " not in told
    planned = _text(desk.get(f"/what-if?dataset={dataset}&epsilon=0.3&delta=1e-6&options=").text)
    assert f"ε at your budget's δ {cost}" in planned
    assert f"charges ε {cost} at the δ of your budget, {share} of it, and cannot be undone" in planned


def test_what_is_given_back_has_the_price_of_its_charge(site: Server) -> None:
    owner = owner_called(site, "Given back")
    dataset = dataset_called(owner, "Rows")
    with books(site) as database:
        past(database, owner, [dataset], [], since=datetime.now(UTC) - timedelta(weeks=1), queries=12)
    rows = _rows(Desk(site, owner.key).get("/ledger").text)
    given_back = [each for each in rows if each.endswith(" given back") and " −ε " in each]
    assert given_back
    for row in given_back:
        price = row.partition(" −")[2].removesuffix(" given back").replace("−", "")
        assert "0 %" not in price.split(" ", 2)[2:], row
        assert [each for each in rows if each.endswith(f"{price} given back") and "−" not in each], row
    place = given_back[0].split()[0]
    entry = _text(Desk(site, owner.key).get(f"/ledger/{place}").text)
    assert f"Share of the budget {given_back[0].split('−')[2].removesuffix(' given back')}" in entry


def test_the_overview_says_why_and_of_what(site: Server) -> None:
    owner = owner_called(site, "Why")
    dataset = dataset_called(owner, "Rows")
    for epsilon in (0.1, 0.11, 0.12):
        answered(owner, dataset, epsilon=epsilon, delta=4e-6)
    page, budget = Desk(site, owner.key).get("").text, owner.budget()
    told = _text(page)
    assert '<a href="/dashboard/ledger#h-verify">Is the record intact?</a>' in page
    today = day(datetime.now(UTC))
    assert f"come to its end on {today}, when the δ of all questions came to 1e−5, its δ." in told
    spent, share = rounded_up(budget["spent"]["epsilon"]), spent_percent(budget["share"])
    assert f"So it is that ε {spent} of 3 is {share}." in told


def test_a_grant_without_a_cap_says_what_limits_it(site: Server) -> None:
    owner, analyst = owner_called(site, "Limits"), analyst_called(site, "Nora Free")
    open_, closed = dataset_called(owner, "Open"), dataset_called(owner, "Closed")
    for each in (open_, closed):
        assert owner.grant(each, analyst).status_code == 200
    desk = Desk(site, owner.key)
    assert "none of its own limited by your budget 0 " in _text(desk.get("/analysts").text)
    assert owner.patch(f"/v1/owners/{owner.id}/budget", json={"pace": 0.25}).status_code == 200
    assert owner.put(f"/v1/datasets/{closed}/cap", json={"epsilon": 1, "delta": 1e-5}).status_code == 200
    rows = [row for row in _rows(desk.get("/analysts").text, 1) if "limited by" in row]
    assert ["the dataset's cap of ε 1, with room for ε" in row for row in rows] == [False, True]
    assert all("limited by your budget, 25 % of it in seven days" in row for row in rows)


def test_a_frozen_owner_is_not_offered_to_ask(site: Server, asked: tuple[Caller, str]) -> None:
    owner, dataset = asked
    desk, plan = Desk(site, owner.key), f"/what-if?dataset={dataset}&epsilon=0.2&delta=1e-6"
    assert "Ask it" in desk.get(plan).text
    for who in (owner, site.admin):
        assert who.patch(f"/v1/owners/{owner.id}/budget", json={"frozen": True}).status_code == 200
        told = _text(desk.get(plan).text)
        assert "is frozen. Nothing can be asked until the freeze ends" in told
        assert "Ask it" not in told
        assert who.patch(f"/v1/owners/{owner.id}/budget", json={"frozen": False}).status_code == 200
    assert "Ask it" in desk.get(plan).text


@pytest.mark.parametrize("every", ["week", "month", "quarter", "year"])
def test_the_form_says_when_a_rule_would_open_a_window(site: Server, every: str) -> None:
    owner = owner_called(site, f"By the {every}")
    desk = Desk(site, owner.key)
    page = desk.get("/budget").text
    (option,) = re.findall(rf'<option value="{every}">([^<]+)</option>', page)
    foretold = option.rpartition(": next on ")[2]
    for least in ("", "0", "500"):
        given = {"every": every, "promise": "per-window", "least_days": least}
        shown = desk.post("/budget/rules", given | {"see": "yes"})
        assert shown.status_code == 200
        (option,) = re.findall(rf'<option value="{every}" selected>([^<]+)</option>', shown.text)
        promised = option.rpartition(": next on ")[2]
        assert least or promised == foretold
        assert _in_force(owner).get("every") is None, "it was only looked at"
    wrong = desk.post("/budget/rules", {"every": every, "promise": "per-window", "most": "x", "see": "yes"})
    assert wrong.status_code == 422
    desk.post("/budget/rules", {"every": every, "promise": "per-window", "most": "2"})
    due = _in_force(owner)["next"]
    assert day(datetime.fromisoformat(due)) == foretold
    last = desk.post(
        "/budget/rules", {"every": every, "promise": "per-window", "most": "1", "see": "yes"}
    ).text
    assert f'<option value="{every}" selected>' in last
    assert "none, as this one is the last" in last


def _in_force(owner: Caller) -> dict[str, str]:
    return owner.budget()["windows"]


def test_a_year_that_is_set_in_november_waits_until_the_january_after_the_next(
    site: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = owner_called(site, "November")
    began = datetime(2026, 11, 23, tzinfo=UTC)
    monkeypatch.setattr(renewals, "now", lambda: began + timedelta(hours=1))
    with books(site) as database, database.write() as session:
        session.add(WindowRules(owner_id=owner.id, began_at=began))
        session.flush()
        opens = renewals.would_open(session, owner_account(session, owner.id), None, None)
        sooner = renewals.would_open(session, owner_account(session, owner.id), None, 30)
    assert sooner["year"] == datetime(2027, 1, 1, tzinfo=UTC)
    assert opens["year"] == datetime(2028, 1, 1, tzinfo=UTC)


def test_an_entry_of_a_limit_says_who_set_it_why_and_what_was_before(site: Server) -> None:
    owner = owner_called(site, "Raised")
    desk, told = Desk(site, owner.key), f"/v1/owners/{owner.id}/budget"
    first = _text(desk.get("/ledger/1").text)
    assert "What Budget set By An administrator Reason" in first
    assert "Now ε 3 at δ 1e−5 Before none: it is the first of its window" in first
    why = {"Privest-Reason": "the yearly study"}
    for epsilon, reason in ((4, why), (5, {})):
        assert owner.patch(told, json={"epsilon": epsilon}, headers=reason).status_code == 200
    second = _text(desk.get("/ledger/2").text)
    assert "What Budget raised By Raised with key" in second
    assert "Reason the yearly study" in second
    assert "Now ε 4 at δ 1e−5 Before ε 3 at δ 1e−5" in second
    third = _text(desk.get("/ledger/3").text)
    assert "Reason none was given" in third
    assert "Now ε 5 at δ 1e−5 Before ε 4 at δ 1e−5" in third
    (day,) = re.findall(r'href="/dashboard(/acts\?first=[\d-]+&amp;last=[\d-]+)"', desk.get("/ledger/2").text)
    assert "the yearly study" in desk.get(html.unescape(day)).text
    assert owner.patch(told, json={"window": "new"}).status_code == 200
    renewed = _text(desk.get("/ledger/1").text)
    assert "What Budget renewed By Raised" in renewed
    assert "Now ε 5 at δ 1e−5 Before none: it is the first of its window" in renewed
    assert "What Budget raised By Raised" in _text(desk.get("/ledger/2?window=1").text)


def test_an_entry_and_its_question_lead_to_each_other(site: Server, asked: tuple[Caller, str]) -> None:
    owner, dataset = asked
    desk = Desk(site, owner.key)
    analyst = analyst_called(site, "Approved")
    assert owner.grant(dataset, analyst, approval="required").status_code == 200
    job = analyst.estimate(dataset, epsilon=0.1, delta=1e-6).json()["id"]
    assert "What it cost" not in _text(desk.get(f"/questions/{job}").text.rpartition("Your decision")[2])
    verdict = {"decision": "approve", "reason": "as agreed"}
    assert owner.post(f"/v1/jobs/{job}/decision", json=verdict).status_code == 200
    until(lambda: owner.ledger()[0]["state"] == "committed")
    entry, question = desk.get("/ledger/3").text, desk.get(f"/questions/{job}").text
    assert "Approved by One price with key" in _text(entry)
    assert "Reason as agreed" in _text(entry)
    assert f'href="/dashboard/questions/{job}">The question, and your decision<' in entry
    assert 'href="/dashboard/ledger/3?window=1">entry 3<' in question
    own = desk.get("/ledger/2").text
    assert "Approved not needed" in _text(own)
    (answer,) = re.findall(r'href="/dashboard(/answers/job_\w+)">The question, and its answer<', own)
    assert 'href="/dashboard/ledger/2?window=1">entry 2<' in desk.get(answer).text
    theirs = Desk(site, analyst.key).get(f"/answers/{job}")
    assert theirs.status_code == 200
    assert "/ledger/" not in theirs.text
    verified = _text(desk.post("/ledger/verify").text)
    assert (
        "3 receipts of 2 answers (one to you for each, and one more to the analyst if an analyst asked)"
        in verified
    )
    assert "3 receipts of 2 answers (one for the owner of each" in _text(desk.get("/report").text)
    (key,) = owner.get("/v1/ledger/keys").json()["keys"]
    assert f"checked with {key['public_key']} Compare it" in verified
    assert f"Its id {key['id']} The beginning of" in verified


def test_the_budget_page_says_what_is_left_of_what_until_when(
    site: Server, asked: tuple[Caller, str]
) -> None:
    owner, _ = asked
    desk, budget = Desk(site, owner.key), owner.budget()
    left, most = left_percent(1 - budget["share"]), rounded_down(budget["largest_query"]["epsilon"])
    told = _text(desk.get("/budget").text)
    assert f"{left} of the budget, which is ε 3 at δ 1e−5. The largest single question that fits" in told
    assert f"that fits has ε {most} at δ 1e−5, because a tenth of δ is kept" in told
    assert "It does not expire: what is left stays until it is spent." in told
    rules = {"renewal": {"every": "month"}}
    assert owner.patch(f"/v1/owners/{owner.id}/budget", json=rules).status_code == 200
    until_when = day(datetime.fromisoformat(_in_force(owner)["next"]))
    told = _text(desk.get("/budget").text)
    assert f"{left} of the present window, which is ε 3" in told
    assert f"It is there until {until_when} (UTC). Then a window opens" in told


def test_an_entry_names_the_columns_that_were_asked_about(site: Server) -> None:
    owner = owner_called(site, "Columns")
    columns = [
        {"name": name, "type": "number", "low": 0, "high": most} for name, most in (("age", 110), ("dose", 3))
    ]
    made = owner.upload(b"age,dose\n" + b"40,1\n" * 200, {"kind": "table", "columns": columns}, "rows.csv")
    answered(owner, made.json()["id"], columns=["dose"])
    assert "What Mean of dose By you" in _text(Desk(site, owner.key).get("/ledger/2").text)


def test_signed_ends_are_downloaded_and_held_against_a_later_export(
    site: Server, asked: tuple[Caller, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    owner, dataset = asked
    desk = Desk(site, owner.key)
    link = 'href="/dashboard/ledger/heads" download>Download the signed ends<'
    assert link in desk.get("/ledger").text
    assert link in desk.post("/ledger/verify").text
    kept, export = desk.get("/ledger/heads"), tmp_path / "ledger.jsonl"
    name = re.findall(r'attachment; filename="(heads-own_\w+-\d{4}-\d\d-\d\d\.json)"', str(kept.headers))[0]
    (tmp_path / name).write_text(kept.text)
    answered(owner, dataset, epsilon=0.2)
    export.write_text(desk.get("/ledger/export").text)
    key = owner.get("/v1/ledger/keys").json()["keys"][0]["public_key"]
    command = ["verify-ledger", "--export", str(export), "--key", key, "--heads", str(tmp_path / name)]
    assert main(command) == 0
    (tmp_path / name).write_text(kept.text.replace('"seq": 2', '"seq": 1'))
    assert main(command) == 1
    assert "does not go through its head" in capsys.readouterr().out


def test_the_overview_begins_with_what_is_left_and_until_when(
    site: Server, asked: tuple[Caller, str]
) -> None:
    owner, _ = asked
    desk, left = Desk(site, owner.key), left_percent(1 - owner.budget()["share"])
    assert f"{left} left does not expire" in _text(desk.get("").text)
    rules = {"renewal": {"every": "month"}}
    assert owner.patch(f"/v1/owners/{owner.id}/budget", json=rules).status_code == 200
    until_when = day(datetime.fromisoformat(_in_force(owner)["next"]))
    assert f"{left} left until {until_when} (UTC)" in _text(desk.get("").text)


def test_a_form_that_was_refused_says_what_to_do_at_the_field(site: Server) -> None:
    """Each field that is wrong bears why, and the browser goes to the first of them."""
    owner = owner_called(site, "Lowering")
    desk = Desk(site, owner.key)

    def wrong(page: str) -> list[tuple[str, str]]:
        fields = re.findall(r'<input name="(\w+)"[^>]*aria-invalid="true"[^>]* autofocus>', page)
        why = dict(re.findall(r'<p class="why" role="alert" id="why-(\w+)">([^<]*)<', page))
        return [(field, why[field]) for field in fields]

    lower = "Can be raised but not lowered: freeze the budget to stop further queries."
    form = {"sure": "yes", "reason": ""}
    for epsilon, delta, fields in (("2", "1e-5", ["epsilon"]), ("4", "1e-6", ["delta"])):
        refused = desk.post("/budget", data=form | {"epsilon": epsilon, "delta": delta})
        assert refused.status_code == 422
        assert wrong(refused.text) == [(field, lower) for field in fields]
        assert refused.text.count(lower) == 1, "told once, where it belongs"
    told = owner.patch(f"/v1/owners/{owner.id}/budget", json={"epsilon": 2.0}).json()
    assert told["detail"] == "A budget can be raised but not lowered. Freeze it to stop further queries."
    assert [fault["location"] for fault in told["faults"]] == ["epsilon"]
    nobody = {"analyst": "anl_nobody", "dataset": dataset_called(owner, "Rows")}
    refused = _text(desk.post("/analysts", data=nobody).text)
    assert "Nothing was changed. Correct what is said here, and send it again." in refused
    assert "The request is not valid" not in refused


def test_a_table_of_keys_says_whose_they_are_and_who_issued_them(site: Server) -> None:
    owner = owner_called(site, "Keeper of keys")
    first = owner.get(f"/v1/owners/{owner.id}/keys").json()["keys"][0]["id"]
    assert owner.post(f"/v1/owners/{owner.id}/keys", json={"scopes": ["read"]}).status_code == 201
    page = Desk(site, owner.key).get("/keys").text
    assert "Owner Keeper of keys own_" in _text(page)
    rows = [re.search(r'data-label="Issued by">(.*?)</td>', row) for row in page.split("<tr>")[2:]]
    assert [_text(row[1]) for row in rows if row] == [
        f"the key {first[:12]}…",
        "an administrator, or the platform",
    ]


def test_the_form_of_a_grant_begins_with_the_cap_in_force(site: Server) -> None:
    """Whoever saves it unchanged, by whatever link it was opened, takes no cap away."""
    owner, analyst = owner_called(site, "Capping"), analyst_called(site, "Ida Moreau")
    dataset = dataset_called(owner, "Shared rows")
    assert owner.grant(dataset, analyst, epsilon=0.7, delta=1e-6, purpose="a trial").status_code == 200
    page = Desk(site, owner.key).get(f"/analysts?analyst={analyst.id}&dataset={dataset}").text
    fields = dict(re.findall(r'<input name="(\w+)"[^>]* value="([^"]*)"', page))
    assert (fields["epsilon"], fields["delta"], fields["purpose"]) == ("0.7", "1e-6", "a trial")
    assert "<button>Save</button>" in page
    assert "<button>Grant</button>" in Desk(site, owner.key).get("/analysts").text


def _largest(page: str) -> str:
    """What a page says of the largest question, beside a form that sets a budget or a cap."""
    return _text("".join(re.findall(r"<p[^>]* data-largest>.*?</p>", page, re.DOTALL)))


KEPT = "because a tenth of δ is kept for questions with random batches."


@pytest.mark.parametrize("composition", ["gdp", "basic"])
def test_a_form_says_the_largest_question_before_a_budget_or_a_cap_is_saved(
    site: Server, composition: str
) -> None:
    owner, analyst = owner_called(site, "Asking once", 1.0, composition), analyst_called(site, "Once")
    dataset, desk = dataset_called(owner, "Rows"), Desk(site, owner.key)
    why = f", {KEPT}" if composition == "gdp" else "."
    mosts = ("0.993", "1.98", "0.496") if composition == "gdp" else ("1", "2", "0.5")
    assert _largest(desk.get("/budget").text) == f"One question has at most ε {mosts[0]} at δ 1e−5{why}"

    raised = desk.post("/budget", {"epsilon": "2", "delta": "1e-5", "see": "yes"})
    assert raised.status_code == 200
    assert _largest(raised.text) == f"One question has at most ε {mosts[1]} at δ 1e−5{why}"
    assert 'name="epsilon" required inputmode="decimal" value="2"' in raised.text
    cap = {"analyst": analyst.id, "dataset": dataset, "epsilon": "0.5", "delta": "", "see": "yes"}
    capped = desk.post("/analysts", cap)
    assert capped.status_code == 200
    assert _largest(capped.text) == f"One question has at most ε {mosts[2]} at δ 1e−5{why}"
    assert owner.budget()["limit"]["epsilon"] == 1.0, "it was only shown"
    assert analyst.get(f"/v1/datasets/{dataset}").status_code == 404, "so was the grant"
    for path, form in (("/budget", {"epsilon": "2"}), ("/analysts", cap | {"epsilon": "-1"})):
        assert desk.post(path, form | {"see": "yes"}).status_code == 422
    told = _text(desk.get("/budget").text)
    assert f"The largest single question that fits has ε {mosts[0]} at δ 1e−5" in told

    admin = Desk(site, ADMIN_KEY)
    assert _largest(admin.get("/admin").text) == f"One question has at most ε 0.994 at δ 1e−6, {KEPT}"
    form = {"name": "Not made", "epsilon": "2", "delta": "1e-5", "composition": composition, "see": "yes"}
    seen = admin.post("/admin/owners", form).text
    assert _largest(seen) == f"One question has at most ε {mosts[1]} at δ 1e−5{why}"
    assert "Not made" not in _text(seen)
    assert 'value="Not made"' in seen


def test_a_plan_that_takes_too_much_leads_to_the_largest_that_fits(site: Server) -> None:
    """The link plans exactly the largest ε, which is then admitted."""
    owner = owner_called(site, "Asking all", 1.0)
    dataset, desk = dataset_called(owner, "Rows"), Desk(site, owner.key)
    page = desk.get(f"/what-if?dataset={dataset}&epsilon=1&delta=1e-5").text
    assert "The largest that still fits has ε = 0.993093398 at this δ." in _text(page)
    (link,) = re.findall(r'href="/dashboard(/what-if\?[^"]*)">Plan with that', page)
    assert "The budget covers this." in _text(desk.get(html.unescape(link)).text)
    answered(owner, dataset, epsilon=0.993093398, delta=1e-5)
    assert owner.budget()["share"] <= 1
