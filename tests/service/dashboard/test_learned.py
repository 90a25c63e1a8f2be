"""Who learned what, and when: one table for everybody, whose rows lead to their questions."""

import re
from collections.abc import Callable
from datetime import datetime
from html import unescape
from typing import Any

from playwright.sync_api import expect

from privest_service.reports.formatting import moment
from testing.browser import Visitor
from testing.scenes import Desk, Hospital, analyst_called, answered, dataset_called, owner_called
from testing.server import Server

Visit = Callable[..., Visitor]


def test_an_owner_finds_who_learned_what_and_when(anna: Hospital, visit: Visit) -> None:
    """Every number is what the ledger tells over HTTP, and a press shows these questions."""
    asked: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for each in anna.owner.ledger():
        if each["kind"] == "debit":
            asked.setdefault((each["submitter"], each["dataset"], each["estimate"]), []).append(each)
    asked = {key: all_ for key, all_ in asked.items() if any(each["state"] != "voided" for each in all_)}
    visitor = visit(anna.server)
    page = visitor.page
    visitor.enter(anna.owner.key)
    visitor.open("/dashboard")
    page.get_by_role("link", name="Who learned what, and when").click()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(len(asked))
    numbers = [int(each) for each in rows.locator("td:nth-child(4) a").all_inner_texts()]
    assert sorted(numbers) == sorted(
        sum(each["state"] != "voided" for each in all_) for all_ in asked.values()
    )
    moments = rows.locator("time").evaluate_all("all => all.map(each => each.dateTime)")
    told = sorted(zip(moments[::2], moments[1::2], strict=True))
    days = [sorted(f"{each['at'][:19]}+00:00" for each in all_) for all_ in asked.values()]
    assert told == sorted((each[0], each[-1]) for each in days)
    assert moments[1::2] == sorted(moments[1::2], reverse=True)  # whoever asked last stands first
    last = rows.last
    number = int(last.locator("a").inner_text())
    who, dataset = last.locator("td").first.inner_text(), last.locator("td").nth(1).inner_text()
    last.locator("a").click()
    shown = page.locator("table.entries tbody tr")
    expect(shown.first).to_contain_text(dataset)
    assert page.get_by_label("Analyst").locator("option:checked").inner_text() == who
    charged = shown.filter(has_not_text="given back")
    assert charged.count() == number


def test_it_is_of_one_owner_alone_and_of_what_is_charged(site: Server) -> None:
    owner, other, analyst = (
        owner_called(site, "Told"),
        owner_called(site, "Apart"),
        analyst_called(site, "Una"),
    )
    mine, rows_of = dataset_called(owner, "Mine"), dataset_called(other, "Not mine")
    for each, dataset in ((owner, mine), (other, rows_of)):
        assert each.grant(dataset, analyst).status_code == 200
    desk = Desk(site, owner.key)
    assert "Nobody was answered anything yet" in desk.get("/learned").text
    for dataset in (mine, rows_of):
        assert analyst.estimate(dataset, epsilon=0.1, delta=1e-6, reuse=False).status_code == 200
    assert analyst.estimate(mine, epsilon=0.1, delta=1e-6, reuse=False).status_code == 200
    told = desk.get("/learned").text
    assert re.findall(r'aria-label="([^"]*)"', told.split("<tbody>")[1]) == [
        "2 questions of Una: mean of Mine"
    ]
    assert "Not mine" not in told
    assert Desk(site, analyst.key).get("/learned").status_code == 403


def test_it_tells_columns_purposes_and_moments(site: Server) -> None:
    owner, analyst = owner_called(site, "Tables"), analyst_called(site, "Una")
    columns = [
        {"name": name, "type": "number", "low": 0, "high": most} for name, most in (("age", 110), ("dose", 3))
    ]
    schema = {"kind": "table", "columns": columns}
    dataset = owner.upload(b"age,dose\n" + b"40,1\n" * 200, schema, "rows.csv").json()["id"]
    assert owner.grant(dataset, analyst, purpose="trial of a <drug>").status_code == 200
    for asker, chosen in ((owner, ["age"]), (analyst, ["dose"]), (analyst, ["age", "dose"])):
        answered(asker, dataset, columns=chosen, epsilon=0.1, delta=1e-6)
    page = Desk(site, owner.key).get("/learned").text
    theirs, own = re.findall(r"<tr>.*?</tr>", page.split("<tbody>")[1], re.DOTALL)
    assert "for: trial of a &lt;drug&gt;" in theirs
    assert "for:" not in own
    told = [re.findall(r'<small class="muted name">(of [^<]*)<', row) for row in (theirs, own)]
    assert told == [["of age, dose", "of dose"], ["of age"]]
    last = max(entry["at"] for entry in owner.ledger() if entry["submitter"] == analyst.id)
    assert f">{moment(datetime.fromisoformat(last))}</time>" in theirs
    # Of many questions the latest three are told, and that there are others.
    for number in range(2):
        answered(analyst, dataset, columns=["dose"], epsilon=0.2 + number / 100, delta=1e-6)
    theirs = Desk(site, owner.key).get("/learned").text.split("<tbody>")[1].partition("</tr>")[0]
    assert re.findall(r'<small class="muted(?: name)?">(of [^<]*|in [^<]*)<', theirs) == [
        "of dose",
        "of age, dose",
        "in the latest 3 questions",
    ]


def test_the_overview_says_when_all_of_the_record_was_last_verified(site: Server) -> None:
    owner = owner_called(site, "Verifying")
    desk = Desk(site, owner.key)
    assert "Nobody has verified the whole record on these pages yet." in desk.get("").text
    assert desk.post("/ledger/verify").status_code == 200
    (act,) = owner.get("/v1/acts", params={"kind": "ledger.verified"}).json()["acts"]
    assert act["details"] == {"entries": 1, "faults": 0}
    overview = desk.get("").text
    assert (
        f">{moment(datetime.fromisoformat(act['at']))}</time> was verified then: no fault was found."
        in overview
    )
    assert "does not verify" not in overview


def test_a_refusal_after_asking_leads_to_a_plan_with_less(site: Server) -> None:
    owner, analyst = owner_called(site, "Dear"), analyst_called(site, "Rosa")
    dataset = dataset_called(owner, "Rows")
    assert owner.grant(dataset, analyst, epsilon=0.3, delta=1e-6).status_code == 200
    desk = Desk(site, analyst.key)
    question = f"dataset={dataset}&kind=frechet-mean&epsilon=0.8&delta=1e-6"
    refused = desk.post("/what-if", data={"question": question, "key": "a" * 32})
    assert refused.status_code == 409
    (less,) = re.findall(r'href="[^"]*(/what-if\?[^"]*)">Plan it with less', refused.text)
    assert "Back to what you may ask" in refused.text
    # It is the largest that fits: a little more does not.
    (largest,) = re.findall(r"epsilon=([\d.]+)", less)
    assert "Plan with that" not in desk.get(unescape(less)).text
    more = unescape(less).replace(largest, str(float(largest) * 1.001))
    assert "Plan with that" in desk.get(more).text
