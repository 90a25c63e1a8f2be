"""What a hub takes of sites: their own questions, and answers that fit; all else ends the run."""

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest
import rfc8785

from privest import manifolds
from privest_service.database import Database
from privest_service.ledger.receipts import Receipt, ReceiptEntry, Statement
from privest_service.problems import Invalid
from privest_service.security.principals import Principal
from privest_service.signing import Signer
from privest_service.sites import hub as hub_of_sites
from privest_service.sites.schemas import LARGEST_RECEIPT, OfferedDataset
from testing.scenes import Desk
from testing.server import SPD3, Caller, Server, private_key_pem, problem, until
from testing.sites import BUDGET

SIZE = manifolds.get("spd", dim=3).dim
ANSWER = np.linspace(-0.1, 0.1, SIZE)
ANSWERED = {"point": np.eye(3).tolist(), "columns": None, "scales": None, "deviations": None}


@dataclass
class Played:
    """A hub, and two owners who play sites by hand."""

    owners: list[Caller]
    datasets: list[str]
    analyst: Caller

    def ask(self, **body: Any) -> str:
        """Ask about both datasets; return the job."""
        asked = self.analyst.post(
            "/v1/estimates/frechet-mean",
            headers={"Idempotency-Key": str(np.random.default_rng().integers(2**60))},
            json={
                "dataset": [{"id": each} for each in self.datasets],
                "privacy": {"epsilon": 0.01, "delta": 1e-7},
                "reuse": False,
            }
            | body,
        )
        assert asked.status_code == 202, asked.text
        return asked.json()["id"]

    def questions(self, place: int) -> list[dict[str, Any]]:
        """The questions that a site is asked, oldest first."""
        return self.owners[place].get("/v1/sites/questions").json()["questions"]

    def question(self, place: int) -> dict[str, Any]:
        """The newest of them."""
        return self.questions(place)[-1]

    def mark(self, place: int) -> str:
        """The mark of what a site is asked."""
        return str(self.owners[place].get("/v1/sites/questions").json()["mark"])

    def decide(self, place: int, decision: str = "accept", **why: Any) -> httpx.Response:
        path = f"/v1/sites/questions/{self.question(place)['job']}/decision"
        return self.owners[place].post(path, json={"decision": decision} | why)

    def begun(self, **body: Any) -> list[str]:
        """Ask, and have both sites accept; return what they call the question."""
        self.ask(**body)
        parts = [self.question(place)["job"] for place in range(2)]
        assert [self.decide(place).json()["state"] for place in range(2)] == ["accepted", "begun"]
        return parts

    def send(
        self, place: int, part: str, number: int, answer: Any = ANSWER, label: str = "gradient"
    ) -> httpx.Response:
        numbers = answer if isinstance(answer, bytes) else np.asarray(answer, "<f8").tobytes()
        return self.owners[place].post(
            f"/v1/sites/questions/{part}/answers/{number}",
            params={"label": label},
            content=numbers,
            headers={"Content-Type": "application/octet-stream"},
        )

    def state(self) -> tuple[str, list[tuple[str, str | None]]]:
        """The state of the newest job, and what its sites did, with their reasons."""
        newest = self.analyst.get("/v1/jobs").json()["jobs"][0]["id"]
        job = self.analyst.get(f"/v1/jobs/{newest}").json()
        return job["state"], [(each["state"], each["reason"]) for each in job["sites"]]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, new_database: Any) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("hub"), new_database("sqlite"))
    yield server
    server.stop()


@pytest.fixture
def played(hub: Server) -> Played:
    owners, analyst = [hub.owner(**BUDGET) for _ in range(2)], hub.analyst()
    datasets = list[str]()
    for n, owner in zip((400, 700), owners, strict=True):
        offered = {"name": "Patients", "n": n, "schema": SPD3}
        made = [owner.put("/v1/sites/datasets/ds_there", json=offered) for _ in range(2)]
        assert [each.status_code for each in made] == [200, 200], made[0].text
        assert made[0].json() == made[1].json()
        assert made[0].json()["at_site"] == "ds_there"
        datasets.append(made[0].json()["id"])
        assert owner.grant(datasets[-1], analyst).status_code == 200
    return Played(owners, datasets, analyst)


def test_an_offer_with_other_facts_is_refused_and_one_made_anew_has_the_caps_of_before(
    played: Played,
) -> None:
    owner, dataset = played.owners[0], played.datasets[0]
    other = {"name": "Patients", "n": 401, "schema": SPD3}
    problem(owner.put("/v1/sites/datasets/ds_there", json=other), 422, "invalid")
    assert owner.delete(f"/v1/datasets/{dataset}").status_code == 204
    again = owner.put("/v1/sites/datasets/ds_there", json=other).json()
    assert (again["n"], again["rows_of"]) == (401, dataset)


def test_sites_are_asked_and_the_charge_is_final_once_all_have_accepted(played: Played) -> None:
    job = played.ask()
    asked = played.question(0)
    assert (asked["dataset"], asked["place"], asked["state"]) == ("ds_there", 0, "asked")
    assert [part["n"] for part in asked["asked"]["parts"]] == [400, 700]
    assert asked["seed"] == played.question(1)["seed"]
    assert [played.decide(0).json()["state"] for _ in range(2)] == ["accepted", "accepted"]
    assert played.state()[0] == "reserved"
    assert played.decide(1).json()["state"] == "begun"
    assert played.state()[0] == "claimed"
    assert played.analyst.post(f"/v1/jobs/{job}/withdrawal").status_code == 409


def test_a_refusal_before_that_gives_all_back_with_its_reason(played: Played) -> None:
    before = [owner.budget()["spent"] for owner in played.owners]
    played.ask()
    assert played.decide(0).json()["state"] == "accepted"
    assert played.decide(1, "refuse", reason="Not today.").json()["state"] == "over"
    assert played.state() == ("voided", [("accepted", None), ("refused", "Not today.")])
    assert before == [owner.budget()["spent"] for owner in played.owners]
    assert played.owners[0].get("/v1/sites/questions").json()["questions"] == []


def test_the_analyst_reads_at_the_dashboard_how_far_each_site_is(played: Played) -> None:
    job = played.ask()
    desk = Desk(played.analyst.server, played.analyst.key)
    asked = desk.get(f"/answers/{job}").text
    assert "It waits for the sites of the data" in asked
    assert asked.count("<dd>asked</dd>") == 2
    played.decide(0)
    assert "<dd>accepted<small>its own ledger is charged</small></dd>" in desk.get(f"/answers/{job}").text
    played.decide(1, "refuse", reason="Not <b>today</b>.")
    refused = desk.get(f"/answers/{job}").text
    assert "<dd>accepted</dd>" in refused
    assert "<small>Not &lt;b&gt;today&lt;/b&gt;.</small>" in refused
    owned = Desk(played.owners[0].server, played.owners[0].key)
    assert "rows at its site" in owned.get("/datasets").text
    assert "The rows are at its site" in owned.get(f"/datasets/{played.datasets[0]}").text


def test_a_refusal_after_it_ends_the_run_which_stays_charged(played: Played) -> None:
    parts = played.begun()
    assert played.decide(1, "refuse", reason="The run failed at the site.").json()["state"] == "over"
    assert played.state()[0] == "failed"
    assert all(owner.budget()["spent"]["epsilon"] > 0 for owner in played.owners)
    problem(played.send(0, parts[0], 0), 409, "session-over")


def test_an_answer_is_taken_once_and_comes_back_pooled_the_same_to_all(played: Played) -> None:
    parts = played.begun()
    other = ANSWER[::-1].copy()
    with ThreadPoolExecutor(2) as both:
        first = both.submit(played.send, 0, parts[0], 0)
        answers = [played.send(1, parts[1], 0, other), first.result(), played.send(0, parts[0], 0)]
    assert [each.status_code for each in answers] == [200] * 3
    (found,) = {each.content for each in answers}
    weights = np.array([part["weight"] for part in _plan(played)["parts"]])
    expected = weights[0] * ANSWER + weights[1] * other
    assert np.array_equal(np.frombuffer(found, "<f8"), expected)


def _plan(played: Played) -> dict[str, Any]:
    body = {"dataset": [{"id": each} for each in played.datasets]}
    return played.analyst.post(
        "/v1/estimates/frechet-mean/plan", json=body | {"privacy": {"epsilon": 0.01, "delta": 1e-7}}
    ).json()


@pytest.mark.parametrize(
    "sent",
    [
        {"answer": np.full(SIZE, np.nan)},
        {"answer": np.full(SIZE, np.inf)},
        {"answer": b"1234567"},
        {"answer": b""},
        {"number": 1},
        {"number": 1_000_000},
    ],
)
def test_what_is_no_answer_of_the_run_ends_it(played: Played, sent: dict[str, Any]) -> None:
    parts = played.begun()
    refused = played.send(0, parts[0], sent.get("number", 0), sent.get("answer", ANSWER))
    assert refused.status_code in (409, 422), refused.text
    if refused.status_code == 409:
        assert played.state()[0] == "failed"
        assert played.state()[1][0][0] == "refused"
        problem(played.send(0, parts[0], 0), 409, "session-over")
    else:
        assert played.state()[0] == "claimed"


@pytest.mark.parametrize(
    "second", [{"answer": ANSWER[:-1]}, {"label": "other"}], ids=["another size", "another sum"]
)
def test_sites_that_part_company_end_the_run(played: Played, second: dict[str, Any]) -> None:
    parts = played.begun()
    with ThreadPoolExecutor(2) as both:
        told = [both.submit(played.send, 0, parts[0], 0), both.submit(played.send, 1, parts[1], 0, **second)]
    for each in told:
        problem(each.result(), 409, "session-over")
    assert played.state()[0] == "failed"


def test_what_a_site_decided_is_no_news_to_it(played: Played) -> None:
    """Its next look waits until all have accepted, so that a question takes one look and not two."""
    played.ask()
    before = played.mark(0), played.mark(1)
    assert played.decide(0).json()["state"] == "accepted"
    assert (played.mark(0), played.mark(1)) == before
    assert played.decide(1).json()["state"] == "begun"
    assert played.mark(0) != before[0]


def test_an_owner_is_in_one_run_at_a_time(played: Played) -> None:
    """Else two sites that take up two runs in another order would wait for each other."""
    first = played.begun()
    later = played.ask()
    assert [played.decide(place).json()["state"] for place in range(2)] == ["accepted", "accepted"]
    assert played.state()[0] == "reserved"
    states = [[each["state"] for each in played.questions(place)] for place in range(2)]
    assert states == [["begun", "accepted"]] * 2
    before = played.mark(0)
    path = f"/v1/sites/questions/{first[0]}/decision"
    assert played.owners[0].post(path, json={"decision": "refuse"}).status_code == 200
    # That run is over: the sites are asked once more, and the first to answer begins the next.
    assert played.mark(0) != before
    assert [[each["state"] for each in played.questions(place)] for place in range(2)] == [["asked"]] * 2
    assert played.decide(1).json()["state"] == "begun"
    assert [each["state"] for each in played.questions(0)] == ["begun"]
    assert played.analyst.get(f"/v1/jobs/{later}").json()["state"] == "claimed"


def _stay_away(played: Played, number: int) -> bool:
    """What the hub does once it has waited long for a number."""
    server = played.analyst.server
    database = Database(server.database_url, signer=Signer(server.signing_key.read_bytes()))
    whole = played.analyst.get("/v1/jobs").json()["jobs"][0]["id"]
    done = database.run(lambda session: hub_of_sites.leave_behind(session, whole, number))
    database.close()
    return done


def test_a_run_goes_on_without_a_site_if_the_question_says_so(played: Played) -> None:
    """What it gave counts, and from there on the others' weights add up to one; no error is stated."""
    parts = played.begun(may_leave=1)
    other = ANSWER[::-1].copy()
    with ThreadPoolExecutor(1) as both:
        first = both.submit(played.send, 0, parts[0], 0)
        pooled = played.send(1, parts[1], 0, other)
        assert first.result().content == pooled.content
    with ThreadPoolExecutor(1) as alone:
        second = alone.submit(played.send, 0, parts[0], 1, label="curvature")
        until(lambda: _stay_away(played, 1))
        assert np.array_equal(np.frombuffer(second.result().content, "<f8"), ANSWER)
    # What was given before it left is the same as ever, and it has no further say.
    assert played.send(0, parts[0], 0).content == pooled.content
    problem(played.send(1, parts[1], 1, other), 409, "session-over")
    assert played.questions(1) == []
    assert played.state() == ("claimed", [("accepted", None), ("left", "It stayed away.")])
    assert all(owner.budget()["spent"]["epsilon"] > 0 for owner in played.owners)
    # The last one stays, or there is no answer.
    assert not _stay_away(played, 2)


def test_a_site_that_gives_up_leaves_too(played: Played) -> None:
    played.begun(may_leave=1)
    assert played.decide(1, "refuse", reason="The run failed at the site.").json()["state"] == "over"
    assert played.state() == ("claimed", [("accepted", None), ("left", "The run failed at the site.")])
    played.decide(0, "refuse")
    assert played.state()[0] == "failed"


def test_no_run_goes_on_without_a_site_unasked_nor_with_a_liar(played: Played) -> None:
    parts = played.begun()
    with ThreadPoolExecutor(1) as alone:
        waits = alone.submit(played.send, 0, parts[0], 0)
        until(lambda: not _stay_away(played, 0))
        assert played.send(1, parts[1], 0).status_code == waits.result().status_code == 200
    played.decide(0, "refuse")
    parts = played.begun(may_leave=1)
    problem(played.send(1, parts[1], 0, np.full(SIZE, np.nan)), 409, "session-over")
    assert played.state()[0] == "failed"


@pytest.mark.parametrize("may_leave", [2, 100, -1])
def test_somebody_stays(played: Played, may_leave: int) -> None:
    body = {"dataset": [{"id": each} for each in played.datasets], "privacy": {"epsilon": 0.01}}
    asked = played.analyst.post("/v1/estimates/frechet-mean/plan", json=body | {"may_leave": may_leave})
    problem(asked, 422, "invalid")


def test_other_bits_for_the_same_answer_end_the_run(played: Played) -> None:
    parts = played.begun()
    with ThreadPoolExecutor(1) as other:
        waits = other.submit(played.send, 0, parts[0], 0)
        assert played.send(1, parts[1], 0).status_code == 200
        assert waits.result().status_code == 200
    problem(played.send(0, parts[0], 0, ANSWER + 1e-16), 409, "session-over")
    assert played.state()[0] == "failed"


def test_nobody_answers_for_another(played: Played) -> None:
    parts = played.begun()
    problem(played.send(1, parts[0], 0), 404, "not-found")
    problem(
        played.owners[1].post(f"/v1/sites/questions/{parts[0]}/decision", json={"decision": "refuse"}),
        404,
        "not-found",
    )


SIGNER = Signer(private_key_pem())


def receipt(question: dict[str, Any], **otherwise: Any) -> dict[str, Any]:
    """An honest site's receipt of a question, but for what is said otherwise, signed."""
    statement = Statement(
        job="job_at_the_site",
        kind=question["kind"],
        dataset="ds_there",
        adjacency="replace-one",
        entries=[],
        hub_job=question["job"],
        plan=question["plan"],
        answer="0" * 64,
        at="2026-11-28T12:00:00+00:00",
    ).model_copy(update=otherwise)
    signature = SIGNER.sign(rfc8785.dumps(statement.model_dump(mode="json")))
    return Receipt(statement=statement, signature=signature, public_key=SIGNER.public_key).model_dump()


def ended(played: Played, part: str, receipt: dict[str, Any], **result: Any) -> httpx.Response:
    return played.owners[0].post(f"/v1/sites/questions/{part}/end", json={"receipt": receipt} | result)


OTHERS: dict[str, dict[str, Any]] = {
    "another job": {"hub_job": "job_of_another_query"},
    "no job": {"hub_job": None},
    "another plan": {"plan": "1" * 64},
    "another estimator": {"kind": "robust-pca"},
    "another dataset": {"dataset": "ds_elsewhere"},
    "several datasets": {"dataset": ["ds_there", "ds_elsewhere"]},
    "entries of the ledger": {"entries": [ReceiptEntry(account=1, seq=1, hash="0" * 64)]},
    "a long one": {"commitments": ["0" * 64] * 1500},
}


def unsigned(good: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the receipt with signatures that do not hold."""
    keys = [{"public_key": key} for key in (Signer(private_key_pem()).public_key, "", "no key at all")]
    later = good["statement"] | {"at": "2026-11-29T12:00:00+00:00"}
    return [good | each for each in (*keys, {"signature": "c2lnbmVk"}, {"statement": later})]


def test_a_receipt_is_of_this_job_plan_estimator_and_dataset(played: Played) -> None:
    """A receipt that is refused is not kept, and the right one is taken after it."""
    (part, _), question = played.begun(), played.question(0)
    good = receipt(question)
    for why, other in OTHERS.items():
        assert ended(played, part, receipt(question, **other)).status_code == 422, why
    for other in unsigned(good):
        problem(ended(played, part, other), 422, "invalid")
    assert played.state() == ("claimed", [("accepted", None)] * 2)
    assert ended(played, part, good).status_code == 204
    newest = played.analyst.get("/v1/jobs").json()["jobs"][0]["id"]
    shown = played.analyst.get(f"/v1/jobs/{newest}").json()["sites"][0]["receipt"]
    assert shown["statement"]["hub_job"] == part
    assert shown["signature"] == good["signature"]


def test_a_receipt_is_used_once(played: Played) -> None:
    """A question that is asked again has the same plan, and needs a receipt of its own."""
    (first, _), question = played.begun(), played.question(0)
    assert ended(played, first, receipt(question)).status_code == 204
    played.decide(1, "refuse")
    (second, _), again = played.begun(), played.question(0)
    assert again["plan"] == question["plan"]
    problem(ended(played, second, receipt(question)), 422, "invalid")
    assert ended(played, second, receipt(again)).status_code == 204


def test_the_longest_receipt_that_is_taken(played: Played) -> None:
    (part, _), question = played.begun(), played.question(0)
    bare = len(json.dumps(receipt(question, person="p"), separators=(",", ":")))
    longest = LARGEST_RECEIPT - bare + 1
    problem(ended(played, part, receipt(question, person="p" * (longest + 1))), 422, "invalid")
    assert ended(played, part, receipt(question, person="p" * longest)).status_code == 204


def test_a_question_on_one_dataset_has_the_receipt_of_its_answer(played: Played) -> None:
    played.datasets = played.datasets[:1]
    job = played.ask()
    question = played.question(0)
    assert played.decide(0).json()["state"] == "begun"
    deep: Any = 0.0
    for _ in range(500):
        deep = [deep]
    problem(ended(played, job, receipt(question), result={"point": deep}), 422, "invalid")
    problem(ended(played, job, receipt(question), result=ANSWERED), 422, "invalid")
    text = json.dumps(ANSWERED, separators=(",", ":"))
    of_it = receipt(question, answer=hashlib.sha256(text.encode()).hexdigest())
    assert ended(played, job, of_it, result=ANSWERED).status_code == 204


def test_a_list_for_a_site_has_an_end_and_keeps_what_it_began_with(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest questions are listed until they are over, and then the next ones."""
    jobs = [played.ask() for _ in range(3)]
    everything = played.questions(0)
    assert len(everything) == len(jobs)
    monkeypatch.setattr(hub_of_sites, "LARGEST_LISTED", 2 * len(json.dumps(everything[0]["asked"])) + 50)
    server = played.analyst.server
    database = Database(server.database_url, signer=Signer(server.signing_key.read_bytes()))
    with database.read() as session:
        listed = hub_of_sites.questions(session, played.owners[0].id).questions
    assert [each.job for each in listed] == [each["job"] for each in everything[:2]]
    path = f"/v1/sites/questions/{everything[0]['job']}/decision"
    assert played.owners[0].post(path, json={"decision": "refuse"}).status_code == 200
    with database.read() as session:
        listed = hub_of_sites.questions(session, played.owners[0].id).questions
    assert [each.job for each in listed] == [each["job"] for each in everything[1:]]
    database.close()


def test_a_site_offers_so_many_datasets(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_of_sites, "MOST_OFFERED", 2)
    server, owner = played.analyst.server, Principal("owner", played.owners[0].id)
    database = Database(server.database_url, signer=Signer(server.signing_key.read_bytes()))
    offered = OfferedDataset.model_validate({"n": 5, "schema": SPD3})

    def offer(name: str) -> None:
        database.run(lambda session: hub_of_sites.offer(session, owner, name, offered))

    offer("ds_second")
    offer("ds_second")
    with pytest.raises(Invalid) as refused:
        offer("ds_third")
    assert "at most 2 datasets" in str(refused.value.detail)
    database.close()


def test_a_mark_is_short(played: Played) -> None:
    problem(played.owners[0].get("/v1/sites/questions", params={"mark": "m" * 65}), 422, "invalid")


def test_analysts_are_no_sites(played: Played) -> None:
    problem(played.analyst.get("/v1/sites/questions"), 403, "forbidden")
    offered = {"n": 5, "schema": SPD3}
    problem(played.analyst.put("/v1/sites/datasets/ds_there", json=offered), 403, "forbidden")


def test_an_answer_may_be_longer_than_other_bodies(hub: Server) -> None:
    """Ten thousand columns, and two records at each site: an answer has 160,000 numbers."""
    owners, analyst = [hub.owner(**BUDGET) for _ in range(2)], hub.analyst()
    wide, datasets = {"kind": "vectors", "dim": 10_000}, list[str]()
    for owner in owners:
        offered = owner.put("/v1/sites/datasets/ds_there", json={"n": 2, "schema": wide})
        assert offered.status_code == 200, offered.text
        datasets.append(offered.json()["id"])
        assert owner.grant(datasets[-1], analyst).status_code == 200
    played = Played(owners, datasets, analyst)
    body = {"dataset": [{"id": each} for each in datasets], "privacy": {"epsilon": 1.0, "delta": 1e-7}}
    asked = analyst.post(
        "/v1/estimates/robust-pca", headers={"Idempotency-Key": "wide"}, json=body | {"rank": 2}
    )
    assert asked.status_code == 202, asked.text
    (part, _) = [played.question(place)["job"] for place in range(2)]
    assert [played.decide(place).json()["state"] for place in range(2)] == ["accepted", "begun"]
    answer = np.zeros(160_000)
    with ThreadPoolExecutor(1) as other:
        waits = other.submit(played.send, 0, part, 0, answer)
        found = played.send(1, played.question(1)["job"], 0, answer)
        assert [found.status_code, waits.result().status_code] == [200, 200], found.text


def test_one_record_is_no_dataset(hub: Server) -> None:
    owner = hub.owner(**BUDGET)
    problem(owner.put("/v1/sites/datasets/ds_there", json={"n": 1, "schema": SPD3}), 422, "invalid")
