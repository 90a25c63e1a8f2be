"""An auditor's report over HTTP: it tells what the ledger does, of one owner alone, and harms nobody."""

import asyncio
import csv
import json
import re
import tracemalloc
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi.responses import StreamingResponse
from sqlalchemy import select, text

from privest_service import acts
from privest_service.cli import main
from privest_service.dashboard.pages.report import _with_room
from privest_service.database import Database
from privest_service.ledger import entries
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account, Entry
from privest_service.ledger.units import Charge
from privest_service.limits import REPORTS, VERIFICATIONS, Limiter
from privest_service.problems import TooManyRequests, Unavailable
from privest_service.reports import behind, endpoints, page, record, sheet
from privest_service.reports.endpoints import FORMS, Form, reported
from privest_service.reports.formatting import spent_percent
from privest_service.reports.verifying import Verifier
from privest_service.workers.service import Workers
from testing.scenes import Desk, analyst_called, answered, dataset_called, owner_called
from testing.server import SIGNER, Caller, Server, problem
from testing.world import World

HOSTILE = "=1+1;=2+2 <script>alert(1)</script>"
"""A name that a spreadsheet would compute, and a browser run."""

REASON = "@SUM(1+1)*cmd|' /C calc'!A0 </td><img src=x onerror=alert(1)>"


def report(caller: Caller, owner: Caller, form: str = "csv", **more: Any) -> Any:
    return caller.get(f"/v1/owners/{owner.id}/report", params={"format": form, **more})


def sections(caller: Caller, owner: Caller, **more: Any) -> dict[str, list[dict[str, str]]]:
    """The rows of a report, by what they are of."""
    answer = report(caller, owner, **more)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    found: dict[str, list[dict[str, str]]] = {}
    for row in csv.DictReader(answer.content.decode("utf-8-sig").splitlines()):
        found.setdefault(row["Section"], []).append(row)
    return found


class _Page(HTMLParser):
    """The elements of a page, and its texts beside its style."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags, self.given, self.texts = set[str](), set[str](), list[str]()
        self.targets = set[str]()
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.given |= {name for name, _ in attrs if (tag, name) != ("a", "href")}
        self.targets |= {value or "" for name, value in attrs if (tag, name) == ("a", "href")}

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is None and data.strip():
            self.texts.append(data.strip())


@pytest.fixture
def story(server: Server) -> tuple[Caller, Caller, str]:
    """An owner, an analyst and a dataset, all with hostile names; questions, decisions and two windows."""
    owner, analyst = owner_called(server, HOSTILE), analyst_called(server, f"{HOSTILE}, A")
    dataset = dataset_called(owner, f"{HOSTILE}, D")
    owner.grant(dataset, analyst, approval="required", purpose=HOSTILE)
    assert owner.estimate(dataset, epsilon=0.25, delta=1e-6).status_code == 200
    asked = [analyst.estimate(dataset, epsilon=each, delta=1e-6, wait=0).json()["id"] for each in (0.1, 0.2)]
    for job, decision in zip(asked, ("approve", "deny"), strict=True):
        told = owner.post(f"/v1/jobs/{job}/decision", json={"decision": decision, "reason": REASON})
        assert told.status_code == 200, told.text
    owner.ended(asked[0])
    channel = {"kind": "webhook", "url": "https://example.org/privest", "events": ["budget.spent"]}
    assert owner.post(f"/v1/owners/{owner.id}/channels", json=channel).status_code == 201
    window = {"headers": {"Privest-Reason": REASON.encode()}, "json": {"window": "new"}}
    assert owner.patch(f"/v1/owners/{owner.id}/budget", **window).status_code == 200
    assert owner.estimate(dataset, epsilon=0.3, delta=1e-6, reuse=False).status_code == 200
    return owner, analyst, dataset


def test_a_report_tells_what_the_ledger_does(story: tuple[Caller, Caller, str]) -> None:
    owner, analyst, dataset = story
    found, owner_name = sections(owner, owner), f"'{HOSTILE}".replace(";", ";'")
    # Every movement of every window, as the interface tells them.
    for window in (1, 2):
        page = owner.get(f"/v1/owners/{owner.id}/ledger", params={"window": window}).json()
        told = [row for row in found["entry"] if row["Window"] == str(window)]
        entries = page["entries"][::-1]
        assert [int(row["Number"]) for row in told] == [each["seq"] for each in entries]
        for row, each in zip(told, entries, strict=True):
            assert (float(row["ε"]), float(row["δ"])) == (each["epsilon"], each["delta"])
            assert row["When (UTC)"] == each["at"][:19].replace("T", " ")
            asker = {
                None: "An administrator" if window == 1 else owner_name,
                owner.id: "the owner",
                analyst.id: f"'{HOSTILE}, A".replace(";", ";'"),
            }
            assert row["Who"] == asker[each["submitter"]]
            assert row["State"] == ("" if each["kind"] == "limit" else "answered")
    # Costs at the budget's δ, and what is left, are those of the budget.
    budget = owner.budget()
    first, second = found["window"]
    assert (float(second["ε"]), float(second["δ"])) == tuple(budget["limit"].values())
    spent = float(second["Cost (ε at the budget's δ)"])
    assert budget["spent"]["epsilon"] <= spent <= budget["spent"]["epsilon"] * (1 + 1e-5)
    last = found["entry"][-1]
    assert float(last["Cost (ε at the budget's δ)"]) == spent
    assert 0 <= 1 - budget["share"] - float(last["Left after it (share)"]) < 1e-5
    together = budget["windows"]["so_far"]["promise"]
    assert float(found["promise"][0]["ε"]) == pytest.approx(together["epsilon"], rel=1e-5)
    assert found["promise"][0]["Details"] == "2 windows"
    # Who took what share.
    shares = {row["Who"]: row for row in found["taken by"] if row["Window"] == "1"}
    assert {name: row["Questions"] for name, row in shares.items()} == {
        "The owner": "1",
        f"'{HOSTILE}, A".replace(";", ";'"): "1",
    }
    assert sum(float(row["Taken (share)"]) for row in shares.values()) == pytest.approx(
        float(first["Taken (share)"]), rel=1e-4
    )
    # Who learned what, and when, over all windows.
    asked = [row for row in found["entry"] if row["Who"] and row["State"]]
    of = [(row["Who"].replace("the owner", "The owner"), row["What"]) for row in asked]
    learned = {(row["Who"], row["What"]): row for row in found["learned"]}
    assert {key: int(row["Questions"]) for key, row in learned.items()} == Counter(of)
    for key, row in learned.items():
        moments = [each["When (UTC)"] for each, name in zip(asked, of, strict=True) if name == key]
        assert (row["When (UTC)"], row["Last (UTC)"]) == (min(moments), max(moments))
    assert [row["Details"] for row in found["dataset"]] == [f"60 records; {dataset}"]
    # Decisions, and acts.
    approved, denied = found["request"]
    approval = f"approved by the owner; purpose: {HOSTILE}".replace(";=", ";'=")
    assert (approved["State"], approved["Details"]) == ("answered", approval)
    assert denied["State"] == "denied, not charged"
    assert denied["Details"].startswith("denied by the owner; ")
    assert approved["Reason"] == denied["Reason"] == f"'{REASON}"
    assert 0 < float(approved["Cost (ε at the budget's δ)"]) < 0.1
    assert approved["Taken (share)"] == ""  # it is in the line of its charge
    assert denied["Cost (ε at the budget's δ)"] == denied["Taken (share)"] == ""
    done = owner.get("/v1/acts", params={"limit": 500}).json()["acts"][::-1]
    assert [(int(row["Number"]), row["What"]) for row in found["act"]] == [
        (each["seq"], each["title"]) for each in done
    ]
    # The verifier's word, and where the chains end.
    (word,) = found["verified"]
    key = owner.get("/v1/ledger/keys").json()["keys"][0]
    assert word["State"] == "sound"
    assert word["Details"] == f"with key {key['id']}: {key['public_key']}"
    heads = owner.get(f"/v1/owners/{owner.id}/ledger/heads").json()
    ends = [row["Details"] for row in found["end of chain"]]
    assert sorted(ends) == sorted(each["hash"] for each in heads["heads"] + heads["acts"])
    names = [row["What"] for row in found["end of chain"]]
    assert names[0] == "Budget, window 1"
    assert names[-1] == "Acts"
    assert len(names) == len(set(names)) == 7
    # What is in force, with the caps.
    grant, key, channel = found["in force"]
    assert (grant["What"], grant["State"]) == ("grant", "without a cap of its own")
    assert grant["Details"].startswith("each question is approved by the owner; ")
    assert (key["What"], channel["What"]) == ("key of the owner", "channel: webhook")


def test_names_and_reasons_harm_nobody(story: tuple[Caller, Caller, str]) -> None:
    owner, _, _ = story
    for rows in sections(owner, owner).values():
        for name, cell in ((name, cell) for row in rows for name, cell in row.items()):
            if name not in ("ε", "δ", "Cost (ε at the budget's δ)"):
                assert not re.search(r"(^|[;\t])\s*[=+\-@]", cell), cell
    answer = report(owner, owner, "html")
    told = _Page(answer.text)
    assert told.tags.isdisjoint({"script", "img", "iframe", "object", "link", "form", "base"})
    assert all(target.startswith("#") for target in told.targets)
    assert not [name for name in told.given if name.startswith("on") or name in ("src", "href", "style")]
    for words in (HOSTILE, REASON, f"{HOSTILE}, A", f"{HOSTILE}, D"):
        assert words in told.texts or any(words in each for each in told.texts), words
    assert any(re.fullmatch(r"not charged", each) for each in told.texts), "the question that was denied"
    assert not [each for each in told.texts if re.search(r"\d\d:\d\d:\d\d", each) and '"heads"' not in each]
    policy = answer.headers["content-security-policy"]
    assert policy == page.POLICY
    assert "script" not in policy
    assert "'unsafe" not in policy
    huge = owner.patch(
        f"/v1/owners/{owner.id}/budget", json={"frozen": True}, headers={"Privest-Reason": b"x" * 10**6}
    )
    assert huge.status_code >= 400
    assert "x" * 20 not in report(owner, owner, "html").text


def test_published_answers_are_in_force_until_they_are_withdrawn(server: Server) -> None:
    owner, ada, reader = owner_called(server, "Clinic"), server.analyst(), analyst_called(server, HOSTILE)
    dataset = dataset_called(owner, "Patients")
    owner.grant(dataset, ada, publish="allowed")
    body = {"job": answered(ada, dataset), "readers": [reader.id], "sql": True}
    assert ada.put("/v1/published/patients", json=body).status_code == 200

    def shown() -> list[tuple[str, str]]:
        found = sections(owner, owner)["in force"]
        assert all(row["When (UTC)"] for row in found)
        return [
            (row["State"], row["Details"])
            for row in found
            if row["What"].startswith("published answer: mean")
        ]

    reads = HOSTILE.replace(";=", ";'=")
    told = f"patients; readers: {reads}, whoever has the database's reading role"
    assert shown() == [("read by others", told)]
    assert "Published answers" in _Page(report(owner, owner, "html").text).texts
    owner.grant(dataset, ada)
    assert shown() == [("held back", told)]
    assert owner.delete("/v1/published/patients").status_code == 204
    assert shown() == []
    assert "Published answers" not in _Page(report(owner, owner, "html").text).texts


def test_movements_name_columns_and_are_told_of_the_budget_as_it_is_now(server: Server) -> None:
    """Pages and the report say the same share of a question, before a raise and after it."""
    owner = server.owner()
    columns = [
        {"name": name, "type": "number", "low": 0, "high": most} for name, most in (("age", 110), ("dose", 3))
    ]
    made = owner.upload(b"age,dose\n" + b"40,1\n" * 200, {"kind": "table", "columns": columns}, "rows.csv")
    assert owner.estimate(made.json()["id"], epsilon=0.5, columns=["dose"]).json()["state"] == "committed"
    before = sections(owner, owner)["entry"]
    assert [row["What"] for row in before] == ["Budget set", "mean of dose"]
    left = [float(row["Left after it (share)"]) for row in before]
    assert left[0] == 1.0 > left[1] > 0.0
    raised = owner.patch(f"/v1/owners/{owner.id}/budget", json={"epsilon": 2.0, "delta": 1e-5})
    assert raised.status_code == 200, raised.text
    after = sections(owner, owner)["entry"]
    assert after[1]["Left after it (share)"] == after[2]["Left after it (share)"]
    assert float(after[1]["Left after it (share)"]) > left[1]
    assert float(after[1]["Taken (share)"]) < float(before[1]["Taken (share)"])
    page = Desk(server, owner.key).get("/ledger").text
    assert spent_percent(float(after[1]["Taken (share)"])) in page
    assert spent_percent(float(before[1]["Taken (share)"])) not in page


def test_nothing_of_another_owner_is_in_it(server: Server, story: tuple[Caller, Caller, str]) -> None:
    owner, analyst, dataset = story
    other = owner_called(server, "Quillon")
    own = dataset_called(other, "Own rows")
    other.grant(own, analyst)
    assert analyst.estimate(own, epsilon=0.1, delta=1e-6).status_code == 200
    for form in ("html", "csv"):
        told = report(other, other, form).text
        assert own in told
        assert not [each for each in (owner.id, dataset, "60 records; ds") if each in told.replace(own, "")]
        assert not [each for each in (other.id, own, "Quillon") if each in report(owner, owner, form).text]
    assert sections(server.admin, owner)["entry"] == sections(owner, owner)["entry"]
    problem(report(other, owner), 404, "not-found")
    problem(report(analyst, owner), 403, "forbidden")
    problem(report(server.admin, Caller(server, "own_nobody", "")), 404, "not-found")
    problem(report(owner, owner, "pdf"), 422, "invalid")
    problem(report(owner, owner, keys="x"), 422, "invalid")


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_chain_that_was_cut_is_told(start_server: Callable[..., Server]) -> None:
    """The last charge of all accounts is gone, and the accounts are as they were before it."""
    server = start_server()
    owner = owner_called(server, "Cut")
    dataset = dataset_called(owner, "Rows")
    for epsilon in (0.1, 0.2):
        assert owner.estimate(dataset, epsilon=epsilon, delta=1e-6).status_code == 200
    assert "fault" not in sections(owner, owner)
    database = Database(server.database_url)
    with database.write() as session:
        guard = session.scalars(text("SELECT sql FROM sqlite_master WHERE name = 'entries_no_delete'")).one()
        session.execute(text("DROP TRIGGER entries_no_delete"))
        for account in session.scalars(select(Account).where(Account.owner_id == owner.id)):
            last, before = session.scalars(
                select(Entry).where(Entry.account_id == account.id).order_by(Entry.seq.desc()).limit(2)
            ).all()
            session.delete(last)
            account.seq, account.head = before.seq, before.hash
            for name in entries.SUMS_AFTER:
                setattr(account, name, getattr(before, name))
        session.flush()
        session.execute(text(guard))
    database.close()
    found = sections(owner, owner)
    assert found["verified"][0]["State"].startswith("NOT SOUND")
    assert [each for each in found["fault"] if "receipt" in each["Details"]], found["fault"]
    told = report(owner, owner, "html").text
    assert "does not verify" in told
    assert "Nothing was found to be changed" not in told


async def _begin(verifying: Verifier) -> None:
    verifying.begin(verifying.who, [], lambda _: None)


def test_callers_have_few_reports_made_at_a_time() -> None:
    """One is read out and verified; another may be on its way to the caller."""
    nothing: Any = None
    limiter, who = Limiter(), "own_x"
    verifying = Verifier(nothing, limiter, nothing, SIGNER, who)
    with limiter.hold(VERIFICATIONS, who), pytest.raises(TooManyRequests):
        asyncio.run(_begin(verifying))

    async def another() -> None:
        await anext(_with_room(verifying))

    with limiter.hold(REPORTS, who), limiter.hold(REPORTS, who), pytest.raises(TooManyRequests):
        asyncio.run(another())


@pytest.mark.costly
def test_a_long_record_takes_no_more_memory_than_a_short_one(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept of an entry or an act would be more than a thousand bytes each."""
    monkeypatch.setattr(record, "_AT_ONCE", 20)
    monkeypatch.setattr(behind, "_AT_ONCE", 20)
    world = World.make(database)

    def longer(by: int) -> None:
        with database.write() as session:
            account = ledger.owner_account(session, world.owner)
            limits = Charge(*(getattr(account, f"{name}_limit") for name in entries.AMOUNTS))
            for _ in range(by):
                entries.append(session, [account], "limit", None, None, [limits])
                acts.record(session, world.owner, "budget.raised", subject=world.owner)

    def peaks() -> list[int]:
        found = list[int]()
        for form in (page, sheet):
            tracemalloc.start()
            with database.read(snapshot=True) as session:
                told = record.record(session, world.owner)
                assert sum(1 for _ in form.body(record.summary(session, world.owner), told)) > 10
            found.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        return found

    longer(100)
    peaks()  # what is loaded once
    short = peaks()
    longer(400)
    for before, after in zip(short, peaks(), strict=True):
        assert after - before < 600 * 2 * 400


class _Workers:
    """Workers that verify once they are let, or never come to an end."""

    def __init__(self, *, lost: bool = False) -> None:
        self.let, self.asked, self._lost = asyncio.Event(), asyncio.Event(), lost

    async def in_worker(self, _: str, function: Callable[..., Any], *args: Any) -> Any:
        self.asked.set()
        await self.let.wait()
        if self._lost:
            raise Unavailable
        return function(*args)


async def _texts(answer: StreamingResponse) -> AsyncIterator[str]:
    """The pieces of an answer."""
    async for piece in answer.body_iterator:
        yield piece if isinstance(piece, str) else bytes(piece).decode()


@pytest.mark.parametrize("form", ["html", "csv"])
def test_all_but_the_verdict_is_sent_before_there_is_one(
    database: Database, monkeypatch: pytest.MonkeyPatch, form: Form
) -> None:
    """Whoever waits for it is shown now and then that more will come: proxies end what is silent."""
    monkeypatch.setattr(endpoints, "_SILENCE", 0.001)
    world, workers, limiter = World.make(database), _Workers(), Limiter()
    verifying = Verifier(database, limiter, cast("Workers", workers), SIGNER, world.owner)

    async def read() -> tuple[str, str]:
        answer = await reported(verifying, world.owner, form, [])
        before, pieces = "", _texts(answer)
        first = await anext(pieces)
        assert "verifier" in first or first.startswith("\ufeffSection,")
        while not (workers.asked.is_set() and before.endswith(FORMS[form].PAUSE * 3)):
            before += await anext(pieces)
        with pytest.raises(TooManyRequests), limiter.hold(VERIFICATIONS, world.owner):
            pass
        workers.let.set()
        after = "".join(
            [piece if isinstance(piece, str) else bytes(piece).decode() async for piece in pieces]
        )
        await asyncio.sleep(0)  # in which what is held is given back
        with limiter.hold(VERIFICATIONS, world.owner):
            pass
        return before, after

    before, after = asyncio.run(read())
    assert "Budget set" in before
    assert "Owner created" in before
    for word in ("Nothing was found", "Is the record intact") if form == "html" else ("verified", "sound"):
        assert word in after
        assert word not in before


@pytest.mark.parametrize("form", ["html", "csv"])
def test_a_verifier_that_comes_to_no_end_is_told(database: Database, form: Form) -> None:
    world, workers, limiter = World.make(database), _Workers(lost=True), Limiter()
    verifying = Verifier(database, limiter, cast("Workers", workers), SIGNER, world.owner)

    async def read() -> str:
        workers.let.set()
        answer = await reported(verifying, world.owner, form, [])
        return "".join([piece async for piece in _texts(answer)])

    told = asyncio.run(read())
    assert "came to no end" in told
    assert "ot verified" in told or "NOT VERIFIED" in told
    assert "Nothing was found" not in told


def test_whoever_leaves_ends_what_is_made_for_it(database: Database) -> None:
    world, workers, limiter = World.make(database), _Workers(), Limiter()
    verifying = Verifier(database, limiter, cast("Workers", workers), SIGNER, world.owner)

    async def leave() -> None:
        answer = await reported(verifying, world.owner, "html", [])
        pieces = cast("AsyncGenerator[str]", answer.body_iterator)
        await anext(pieces)
        await workers.asked.wait()
        await pieces.aclose()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)
        with limiter.hold(VERIFICATIONS, world.owner):
            pass

    asyncio.run(leave())


@pytest.mark.parametrize("backend", ["sqlite"])
def test_the_ends_that_a_report_shows_are_held_against_a_ledger(
    start_server: Callable[..., Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start_server()
    owner = owner_called(server, HOSTILE)
    dataset = dataset_called(owner, "Rows")
    assert owner.estimate(dataset, epsilon=0.1, delta=1e-6).status_code == 200
    key = owner.get("/v1/ledger/keys").json()["keys"][0]["public_key"]
    kept, export = tmp_path / "report.html", tmp_path / "ledger.jsonl"
    kept.write_text(report(owner, owner, "html").text)
    assert owner.estimate(dataset, epsilon=0.2, delta=1e-6).status_code == 200

    def verified() -> int:
        export.write_text(owner.get(f"/v1/owners/{owner.id}/ledger/export").text)
        return main(["verify-ledger", "--export", str(export), "--key", key, "--heads", str(kept)])

    assert verified() == 0
    content = kept.read_text()
    shown = unescape(content.partition('<pre id="heads">')[2].partition("</pre>")[0])
    (end,) = [each["hash"] for each in json.loads(shown)["acts"]]
    for planted, told in ((content.replace(end, "0" * 64), "no true signature"), ("<p>", "signed heads")):
        kept.write_text(planted)
        assert verified() != 0
        output = capsys.readouterr()
        assert told in output.out + output.err
