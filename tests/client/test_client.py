"""The client against a real service: what a data scientist does, and everything that can go wrong."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

from privest_client import (
    AnswerWithheld,
    AsyncClient,
    BudgetExceeded,
    Client,
    DatasetInvalid,
    Forbidden,
    GrantRefuses,
    InvalidRequest,
    JobFailed,
    NotApproved,
    NotFound,
    PaceExceeded,
    SchemaMismatch,
    StillRunning,
    Unauthenticated,
    UnexpectedAnswer,
    Unreachable,
    calls,
    data,
    infer,
    operations,
)
from privest_client import client as waiting_client
from privest_client.cli import main
from testing.server import HANG_GUARD, Caller, Server, slow_rows, spd

SPHERE = {"kind": "points", "manifold": {"name": "sphere", "dim": 3}}
VECTORS = {"kind": "vectors", "dim": 4}


def plane(n: int = 500) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, 2)) @ np.eye(4)[:2] + 0.01 * rng.standard_normal((n, 4))


def ill(n: int = 1000) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    label = rng.integers(0, 2, n)
    return pd.DataFrame({"age": 50 + 10 * rng.standard_normal(n) + 10 * label, "ill": label})


def test_from_rows_to_an_estimate_its_uncertainty_and_the_bill(client: Client, owner: Caller) -> None:
    dataset = client.datasets.upload(plane(), VECTORS, name="Plane")
    assert (dataset.n, dataset.name) == (500, "Plane")
    plan = client.plan("robust-pca", dataset, rank=2, epsilon=2.0, delta=1e-5)
    assert plan.expected_error.radius_95 > 0
    found = client.robust_pca(dataset, rank=2, epsilon=2.0, delta=1e-5)
    assert found.basis.shape == (4, 2)
    np.testing.assert_allclose(found.basis.T @ found.basis, np.eye(2), atol=1e-9)
    angle = np.arccos(np.clip(np.linalg.svd(found.basis[:2])[1], -1, 1))
    assert np.linalg.norm(angle) < 4 * found.radius_95
    assert found.receipt is not None
    assert not found.free
    assert client.robust_pca(dataset, rank=2, epsilon=2.0, delta=1e-5).free
    budget = client.budget()
    assert budget.told.queries == 1
    assert budget.told.spent.epsilon == pytest.approx(owner.budget()["spent"]["epsilon"])
    assert "error foretold" in repr(found) or f"{found.radius_95:.4g} in 95 of 100 runs" in repr(found)
    for shown in (budget, plan, found):
        assert "ε = 2" in repr(shown) or "ε = 50" in repr(shown)
        assert shown._repr_html_().startswith("<table>")


def test_datasets_are_joined_by_what_their_owner_says(client: Client) -> None:
    first = client.datasets.upload(plane(), VECTORS)
    apart = client.datasets.upload(plane(), VECTORS)
    joined = client.datasets.upload(plane(), VECTORS, rows_of=first)
    assert (apart.rows_of, joined.rows_of) == (None, first.id)
    assert first.id in (apart.same_rows or ())
    assert {first.id, apart.id} <= set(joined.same_rows or ())


def test_the_same_rows_are_uploaded_once_by_whoever_says_so(client: Client) -> None:
    first = client.datasets.upload(plane(), VECTORS)
    assert client.datasets.upload(plane(), VECTORS, once=True).id == first.id
    assert [each.id for each in client.datasets.list()] == [first.id]
    other = {"kind": "points", "manifold": {"name": "euclidean", "dim": 4}}
    with pytest.warns(UserWarning, match="you have these rows already"):
        assert client.datasets.upload(plane(), other, once=True).id != first.id
    assert client.datasets.upload(plane() + 1, VECTORS, once=True).same_rows == []


def test_every_kind_comes_as_arrays(client: Client) -> None:
    rng = np.random.default_rng(2)
    points = rng.standard_normal((400, 3)) * 0.1 + [1.0, 0, 0]
    sphere = client.datasets.upload(points / np.linalg.norm(points, axis=1)[:, None], SPHERE)
    mean = client.frechet_mean(sphere, epsilon=2.0)
    assert mean.point.shape == (3,)
    assert np.arccos(mean.point[0]) < 4 * mean.radius_95 + 0.1
    gaps = plane()
    gaps[rng.random(gaps.shape) < 0.3] = np.nan
    partial = client.datasets.upload(gaps, {"kind": "partial-vectors", "dim": 4})
    completion = client.matrix_completion(partial, rank=2, epsilon=4.0)
    whole = completion.complete(gaps[0])
    assert np.isfinite(whole).all()
    known = np.isfinite(gaps[0])
    np.testing.assert_array_equal(whole[known], gaps[0][known])
    frame = ill()
    labelled = client.datasets.upload(
        frame, label="ill", classes=["0", "1"], mean=[55.0], scale=[11.0], confirm=True
    )
    fit = client.logistic_regression(labelled, epsilon=2.0)
    assert fit.coefficients.shape == (1,)
    assert fit.standard_errors.shape == (2,)
    said = np.array(fit.predict(frame[["age"]].to_numpy()), dtype=int)
    assert np.mean(said == frame["ill"]) > 0.6
    score = client.classifier_score(
        labelled, epsilon=1.0, coefficients=fit.coefficients, intercept=fit.intercept
    )
    assert score.value == pytest.approx(np.mean(said == frame["ill"]), abs=6 * score.standard_error)


def test_several_datasets_make_one_estimate(client: Client) -> None:
    both = [client.datasets.upload(plane(), VECTORS) for _ in "ab"]
    found = client.robust_pca(both, rank=2, epsilon=1.0, delta=1e-5)
    assert len({charge.dataset for charge in found.charges}) >= 2


def test_it_does_the_same_in_an_event_loop(server: Server, owner: Caller) -> None:
    async def ask() -> None:
        async with AsyncClient(server.url, owner.key) as client:
            dataset = await client.datasets.upload(plane(), VECTORS)
            plan, found = await asyncio.gather(
                client.plan("robust-pca", dataset, rank=2, epsilon=1.0),
                client.robust_pca(dataset, rank=2, epsilon=1.0),
            )
            assert found.privacy.mechanism == plan.told.privacy.mechanism
            assert (await client.budget()).told.queries == 1
            assert [each.id for each in await client.datasets.list()] == [dataset.id]
            again = await client.wait(found.id)
            np.testing.assert_array_equal(again.basis, found.basis)
            with pytest.raises(NotFound):
                await client.datasets.get("ds_nowhere")

    asyncio.run(ask())


def test_a_schema_is_shown_and_confirmed_before_anything_is_sent(client: Client, capsys) -> None:
    with pytest.raises(SchemaMismatch, match="nobody confirmed"):
        client.datasets.upload(plane())
    assert '"vectors"' in capsys.readouterr().err
    seen = []
    assert client.datasets.upload(plane(), confirm=lambda schema: not seen.append(schema)).kind == "vectors"
    assert seen == [VECTORS]
    with pytest.raises(SchemaMismatch, match="nothing was sent"):
        client.datasets.upload(plane(), confirm=lambda _: False)
    assert len(client.datasets.list()) == 1


def test_nothing_but_the_form_is_inferred() -> None:
    assert infer(plane(3)) == VECTORS
    assert infer(spd(4)) == {"kind": "points", "manifold": {"name": "spd", "dim": 3}}
    assert infer(ill(5), label="ill") == {"kind": "labelled", "features": ["age"], "label": "ill"}
    with pytest.raises(SchemaMismatch, match="stiefel"):
        infer(np.zeros((3, 4, 2)))
    with pytest.raises(SchemaMismatch, match="pass a frame"):
        infer("people.csv")
    with pytest.raises(SchemaMismatch, match="no column 'sick'"):
        infer(ill(5), label="sick")


@pytest.mark.parametrize(
    ("rows", "schema", "said"),
    [
        (plane(9), {"kind": "vectors", "dim": 5}, "rows of 5 numbers are declared"),
        (ill(9), {"kind": "labelled", "features": ["age"], "label": "ill"}, "declare all classes"),
        (ill(9), {"kind": "labelled", "features": ["dose"], "label": "ill", "classes": ["0"]}, "'dose'"),
        (np.array(["a"]), {"kind": "points"}, "no array of numbers"),
        ("rows.xlsx", VECTORS, "the service reads"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_seen_before_it_is_sent(rows, schema, said) -> None:
    with pytest.raises(SchemaMismatch, match=said), Client("http://127.0.0.1:9", "key") as client:
        client.datasets.upload(rows, schema)


NUMBERS = np.arange(12.0).reshape(6, 2)
PAIRS = {"kind": "vectors", "dim": 2}
FRAMES = {
    "no names": pd.DataFrame(NUMBERS),
    "years": pd.DataFrame(NUMBERS, columns=["2019", "2020"]),
    "whole numbers": pd.DataFrame(NUMBERS, columns=[2019, 2020]),
    "fractions": pd.DataFrame(NUMBERS, columns=[400.5, 401.0]),
    "two levels": pd.DataFrame(NUMBERS, columns=pd.MultiIndex.from_product([["dose"], [1, 2]])),
    "an index": pd.DataFrame(NUMBERS, index=list("abcdef")).rename_axis("patient"),
    "an index of two levels": pd.DataFrame(NUMBERS, index=pd.MultiIndex.from_product([range(3), range(2)])),
    "no name at all": pd.DataFrame(NUMBERS, columns=["", None]),
    "names over two lines": pd.DataFrame(NUMBERS, columns=["1\n2", '3,"4"']),
    "the same name": pd.DataFrame(NUMBERS, columns=["1", "1"]),
    "usual names": pd.DataFrame(NUMBERS, columns=["age", "dose"]),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", FRAMES)
def test_a_header_is_never_a_record(client: Client, name: str) -> None:
    made = client.datasets.upload(FRAMES[name], PAIRS)
    assert made.n == len(NUMBERS)
    assert made.fingerprint == client.datasets.upload(NUMBERS, PAIRS).fingerprint


def test_labelled_frames_are_found_by_names_of_every_kind(client: Client) -> None:
    labels = ["no", "yes"] * 3
    for columns in ([2019, 2020, 2021], pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)])):
        frame = pd.DataFrame(NUMBERS).assign(label=labels).set_axis(columns, axis=1)
        *_, label = names = ["_".join(map(str, it)) if isinstance(it, tuple) else str(it) for it in columns]
        made = client.datasets.upload(frame, label=label, classes=["no", "yes"], confirm=True)
        assert made.n == 6
        assert [each.root for each in made.schema_.features] == names[:2]
    twice = pd.DataFrame(NUMBERS, columns=["y", "y"])
    with pytest.raises(SchemaMismatch, match="several columns 'y'"):
        client.datasets.upload(
            twice, {"kind": "labelled", "features": ["y"], "label": "y", "classes": [0, 1]}
        )


@pytest.mark.parametrize(
    "classes", [[0, 1], np.array([0, 1]), [False, True], np.array([False, True])], ids=str
)
def test_classes_may_be_numbers_and_truth_values(client: Client, classes: Any) -> None:
    frame = ill(50)
    marks = {
        client.datasets.upload(
            each, {"kind": "labelled", "features": ["age"], "label": "ill"}, classes=classes
        ).fingerprint
        for each in (frame, frame.astype({"ill": bool}), frame.astype({"ill": float}), frame.to_numpy())
    }
    assert len(marks) == 1


def test_rows_of_a_unit_and_texts_and_empty_frames(client: Client) -> None:
    who = pd.DataFrame(NUMBERS).assign(patient=[*"aabbcc"])
    unit = PAIRS | {"unit": {"column": "patient", "rows": 2}}
    assert client.datasets.upload(who, unit).n == 3
    with pytest.raises(SchemaMismatch, match="no column 'patient'"):
        client.datasets.upload(pd.DataFrame(NUMBERS), unit)
    with pytest.raises(DatasetInvalid, match=r"record 0, \[1\]: must be a number"):
        client.datasets.upload(pd.DataFrame({"a": [1.0, 2], "b": ["x", "y"]}), PAIRS)
    for empty in (pd.DataFrame({"a": [], "b": []}), FRAMES["years"][:0]):
        with pytest.raises(DatasetInvalid, match="at least 2 records"):
            client.datasets.upload(empty, PAIRS)


def test_a_file_of_numbers_needs_its_first_line_told(
    client: Client,
    owner: Caller,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "rows.csv"
    pd.DataFrame(NUMBERS).to_csv(file, index=False)
    with pytest.raises(DatasetInvalid, match="header: must be true if the first line names the columns"):
        client.datasets.upload(file, PAIRS)
    assert client.datasets.upload(file, PAIRS, header=True).n == 6
    assert client.datasets.upload(str(file), PAIRS, header=False).n == 7
    with pytest.raises(SchemaMismatch, match="path of a csv file"):
        client.datasets.upload(NUMBERS, PAIRS, header=True)
    monkeypatch.setenv("PRIVEST_URL", str(client._http.base_url))
    monkeypatch.setenv("PRIVEST_KEY", owner.key)
    command = ["upload", str(file), "--schema", json.dumps(PAIRS)]
    assert main(command) == 1
    assert main([*command, "--header"]) == 0
    assert main([*command, "--no-header"]) == 0
    said = capsys.readouterr().err
    assert "6 records are stored" in said
    assert "7 records are stored" in said


def test_a_service_that_counts_otherwise_is_told_of(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service of an earlier version did so: it took the names of these columns for a record."""
    monkeypatch.setattr(data, "_line", lambda _: "0,1\n2,3\n")
    with pytest.raises(SchemaMismatch, match="counted 7 records and the data have 6 rows") as told:
        client.datasets.upload(FRAMES["no names"], PAIRS)
    (stored,) = client.datasets.list()
    assert repr(stored.id) in str(told.value)


def test_refusals_say_what_to_do(server: Server, client: Client, owner: Caller) -> None:
    dataset = client.datasets.upload(plane(), VECTORS)
    with pytest.raises(BudgetExceeded, match="smaller ε"):
        client.robust_pca(dataset, rank=2, epsilon=60.0)
    with pytest.raises(InvalidRequest, match="rank"):
        client.robust_pca(dataset, rank=9, epsilon=1.0)
    with pytest.raises(InvalidRequest, match="colour"):
        client.estimate("robust-pca", dataset, rank=2, epsilon=1.0, colour="red")
    with pytest.raises(InvalidRequest, match="the kinds are"):
        client.plan("mean", dataset, epsilon=1.0)
    assert client.budget().told.queries == 0
    bad = np.vstack([np.eye(3), [np.inf, 0, 0]])
    with pytest.raises(DatasetInvalid, match="record 3") as refused:
        client.datasets.upload(bad, SPHERE)
    assert refused.value.faults[0]["record"] == 3
    with (
        Client(server.url, "no-key", progress=False) as stranger,
        pytest.raises(Unauthenticated, match="revoked"),
    ):
        stranger.budget()
    analyst = server.analyst()
    with Client(server.url, analyst.key, progress=False) as other:
        with pytest.raises(NotFound):
            other.robust_pca(dataset, rank=2, epsilon=1.0)
        with pytest.raises(Forbidden):
            other.budget(owner.id)
        client.datasets.grant(dataset.id, analyst.id, epsilon=1.0, delta=1e-4)
        assert other.robust_pca(dataset, rank=2, epsilon=0.5, delta=1e-5).basis.shape == (4, 2)


def test_what_is_left_is_told_to_whoever_may_know_it(server: Server, client: Client) -> None:
    """An owner of its budget, an analyst of its own cap: with the price, in a plan and in a refusal."""
    dataset = client.upload(plane(), VECTORS)
    plan = client.plan("robust-pca", dataset, rank=2, epsilon=40.0, delta=1e-5)
    room = plan.told.room
    assert room is not None
    assert (room.scope, room.left) == ("owner", 1.0)
    assert re.search(
        r"which takes: [\d.]+ % of your budget, as costs add up \(ε = [\d.]+ at δ = [\de.-]+\); "
        r"100 % is left\n"
        r"enough for: [\d,]+ of this ε, or for one of ε = [\d.]+ at this δ",
        str(plan),
    )
    client.robust_pca(dataset, rank=2, epsilon=40.0, delta=1e-5)
    after = client.plan("robust-pca", dataset, rank=2, epsilon=40.0, delta=1e-5).told.room
    assert after is not None
    assert after.share == room.share
    assert after.left == pytest.approx(1 - room.share)
    assert client.budget().told.share == pytest.approx(room.share)
    assert f": {100 * room.share:.3g} % of the budget, as costs add up" in str(client.budget())
    with pytest.raises(
        BudgetExceeded, match=r"ε = 40 at δ = 1e-05, which is .* of your budget\. .* is left: room"
    ):
        client.robust_pca(dataset, rank=2, epsilon=40.0, delta=1e-5, reuse=False)
    capped, free = server.analyst(), server.analyst()
    client.datasets.grant(dataset, capped.id, epsilon=1.0, delta=1e-4)
    client.datasets.grant(dataset, free.id)
    with Client(server.url, capped.key, progress=False) as other:
        told = other.plan("robust-pca", dataset, rank=2, epsilon=0.5, delta=1e-5)
        assert (told.told.room.scope, told.told.room.left) == ("analyst", 1.0)
        with pytest.raises(
            BudgetExceeded,
            match=r"which is 1\d{3} % of your cap\. 100 % of it is left: room for ε = 1\.\d+ at",
        ):
            other.robust_pca(dataset, rank=2, epsilon=5.0, delta=1e-5)
        allowance = other.allowance(dataset)
        assert allowance.left is not None
        assert (allowance.left.share, allowance.left.queries) == (1.0, 0)
        assert other.grants() == [allowance]
        assert told.told.room.times > 1
    assert {each.analyst for each in client.grants()} == {capped.id, free.id}
    with Client(server.url, free.key, progress=False) as other:
        assert other.plan("robust-pca", dataset, rank=2, epsilon=60.0).told.room is None
        assert other.allowance(dataset).left is None
        with pytest.raises(BudgetExceeded, match="Your own caps allow this") as refused:
            other.robust_pca(dataset, rank=2, epsilon=60.0)
        assert "%" not in str(refused.value)


def test_datasets_are_named_by_what_the_service_told_of_them_or_by_ids(
    server: Server, client: Client
) -> None:
    analyst = server.analyst()
    with Client(server.url, analyst.key, progress=False) as other:
        made, ada = client.datasets.upload(plane(), VECTORS), other.me()
        assert client.datasets.get(made) == client.datasets.get(made.id) == made
        client.datasets.grant(made, ada, epsilon=1.0, delta=1e-4)
        found = other.robust_pca(made, rank=2, epsilon=0.5, delta=1e-5)
        np.testing.assert_array_equal(other.wait(found).basis, other.wait(found.id).basis)
        client.datasets.revoke(made, ada)
        with pytest.raises(NotFound):
            other.datasets.get(made)
    for wrong in (None, 5, {"id": made.id}, [made], plane(), "../owners", "", f"{made.id}/cap", client):
        for call in (client.datasets.get, client.datasets.delete, client.wait):
            with pytest.raises(InvalidRequest, match="pass an id"):
                call(wrong)
        with pytest.raises(InvalidRequest, match="pass an id"):
            client.datasets.grant(made, wrong)
    with pytest.raises(InvalidRequest, match="a ndarray is no id"):
        client.robust_pca(plane(), rank=2, epsilon=1.0)
    client.datasets.delete(made)
    assert client.datasets.list() == []


def test_an_owner_who_waits_for_an_analysts_job_is_told_that_the_answer_is_not_the_owners(
    server: Server, client: Client, owner: Caller
) -> None:
    dataset, analyst = client.datasets.upload(plane(), VECTORS), server.analyst()
    client.datasets.grant(dataset, analyst)
    with Client(server.url, analyst.key, progress=False) as other:
        found = other.robust_pca(dataset, rank=2, epsilon=0.5, delta=1e-5)
    with pytest.raises(AnswerWithheld, match="for whoever asked alone") as told:
        client.wait(found.id)
    assert told.value.job.charges[0].epsilon == 0.5

    async def wait() -> None:
        async with AsyncClient(server.url, owner.key) as later:
            with pytest.raises(AnswerWithheld):
                await later.wait(found.id)

    asyncio.run(wait())


def test_a_choice_that_is_none_is_named_by_its_field(client: Client) -> None:
    for choices, said in (
        ({"rank": 0}, "rank: must be at least 1"),
        ({"rank": 2, "solver": "x"}, "solver: must be one of: ggd, "),
        ({"rank": 2, "dataset": [{"id": 5}]}, r"dataset\.0\.id: must be a text"),
        ({"rnak": 2}, "rnak: robust-pca has no such choice: its choices are adaptive, center, "),
        ({"rank": 2, "steps": float("nan")}, "a choice cannot be sent: "),
        ({"rank": {2}}, "a choice cannot be sent: set is not JSON"),
    ):
        asked = {"dataset": "ds_1", "epsilon": 1.0} | choices
        with pytest.raises(InvalidRequest, match=f"(?m)^  {said}") as told:
            client.plan("robust-pca", **asked)
        assert "Input should" not in str(told.value)
        assert "DatasetRef" not in str(told.value)


@pytest.mark.costly
def test_a_job_that_takes_long_is_waited_for_again(client: Client) -> None:
    rows, schema = slow_rows()
    dataset = client.datasets.upload(rows, schema)
    late, withdrawn = (
        pytest.raises(StillRunning, match="waits on"),
        pytest.raises(StillRunning),
    )
    other = client.datasets.upload(spd(60, seed=1), {"kind": "points", "manifold": {"name": "spd", "dim": 3}})
    with late as running:
        client.frechet_mean(dataset, epsilon=1.0, steps=60, timeout=0.1)
    with withdrawn as waiting:  # behind the other, as there is one worker
        client.frechet_mean(other, epsilon=1.0, timeout=0.0)
    client.datasets.delete(other.id)
    with pytest.raises(JobFailed, match="given back before it ran"):
        client.wait(waiting.value.job, timeout=HANG_GUARD)
    assert client.wait(running.value.job, timeout=HANG_GUARD).point.shape == rows.shape[1:]


def test_no_answer_is_asked_for_again_under_the_same_key(
    server: Server, client: Client, owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that is lost on its way back was charged: the next try gets the same one."""
    monkeypatch.setattr(calls, "_PAUSES", (0.0, 0.0))
    dataset = client.datasets.upload(plane(), VECTORS)
    send, lost = httpx.Client.send, []

    def lossy(self: httpx.Client, request: httpx.Request, **how: Any) -> httpx.Response:
        response = send(self, request, **how)
        if request.method == "POST" and len(lost) < 2:
            lost.append(json.loads(response.read())["id"])
            raise httpx.ReadError("gone")
        return response

    monkeypatch.setattr(httpx.Client, "send", lossy)
    found = client.robust_pca(dataset, rank=2, epsilon=1.0)
    assert lost == [found.id] * 2
    assert owner.budget()["queries"] == 1


def test_an_upload_that_may_have_arrived_is_not_sent_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object, **__: object) -> httpx.Response:
        raise httpx.ReadError("gone")

    monkeypatch.setattr(httpx.Client, "send", gone)
    with pytest.raises(Unreachable, match="look before you send it again"):
        client.datasets.upload(plane(), VECTORS)


def test_a_busy_service_is_asked_again_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = httpx.Response(
        503, headers={"Retry-After": "3"}, json={"type": "urn:privest:problem:unavailable", "title": "Busy"}
    )
    answers = [busy, busy, httpx.Response(200, json={"role": "owner", "id": "own_1"})]
    pauses = []
    monkeypatch.setattr(waiting_client.time, "sleep", pauses.append)
    with Client("http://127.0.0.1:9", "key") as client:
        client._http = httpx.Client(
            base_url="http://x", transport=httpx.MockTransport(lambda _: answers.pop(0))
        )
        assert client.me().id == "own_1"
    assert pauses == [3.0, 3.0]


def test_a_server_that_is_down_or_another_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_PAUSES", ())
    with Client("http://127.0.0.1:9", "key") as client, pytest.raises(Unreachable, match="service runs"):
        client.me()
    with Client("http://127.0.0.1:9", "key") as client:
        for content in (b"<html>", b'{"type": "about:blank"}', b"[]"):
            answer = httpx.Response(502, content=content)
            client._http = httpx.Client(
                base_url="http://x", transport=httpx.MockTransport(lambda _, answer=answer: answer)
            )
            with pytest.raises(UnexpectedAnswer, match="502"):
                client.me()


def test_the_command_line(
    server: Server, owner: Caller, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVEST_URL", server.url)
    monkeypatch.setenv("PRIVEST_KEY", owner.key)
    file = tmp_path / "rows.npy"
    np.save(file, plane())
    assert main(["upload", str(file), "--schema", json.dumps(VECTORS)]) == 0
    dataset = capsys.readouterr().out.strip()
    assert main(["datasets"]) == 0
    assert dataset[:8] in capsys.readouterr().out
    ask = [dataset, "--epsilon", "1", "--delta", "1e-5", "-o", "rank=2"]
    assert main(["plan", "robust-pca", *ask]) == 0
    assert "ε = 1" in capsys.readouterr().out
    assert main(["estimate", "robust-pca", *ask]) == 0
    assert len(json.loads(capsys.readouterr().out)["estimate"]["basis"]) == 4
    assert main(["budget"]) == 0
    assert "left for one query" in capsys.readouterr().out
    assert main(["plan", "robust-pca", dataset, "--epsilon", "1", "-o", "rank=9"]) == 1
    said = capsys.readouterr().err
    assert "rank" in said
    assert "Traceback" not in said
    monkeypatch.delenv("PRIVEST_KEY")
    assert main(["budget"]) == 2


def test_lists_are_read_to_their_last_page(client: Client) -> None:
    view = client.datasets.upload(plane(), VECTORS, name="one").model_dump(mode="json", by_alias=True)
    listing = operations.datasets()
    first = next(listing)
    assert first.content == {}
    second = listing.send(httpx.Response(200, json={"datasets": [view, view], "next": "7-ds_1"}))
    assert second.content == {"params": {"cursor": "7-ds_1"}}
    with pytest.raises(StopIteration) as end:
        listing.send(httpx.Response(200, json={"datasets": [view], "next": None}))
    assert [each.id for each in end.value.value] == [view["id"]] * 3


# Questions that their owner approves


def test_whoever_asks_hears_what_the_owner_decided(
    server: Server, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset, analyst = client.upload(plane(), VECTORS), server.analyst()
    terms = client.datasets.grant(
        dataset, analyst.id, approval="required", purpose="a test", kinds=["robust-pca"], max_epsilon=1
    )
    assert (terms.approval, terms.max_epsilon) == ("required", 1.0)
    with Client(server.url, analyst.key) as asking:
        with pytest.raises(GrantRefuses, match="is for robust-pca only"):
            asking.plan("logistic-regression", dataset, epsilon=0.5)
        with pytest.raises(StillRunning, match="waits for the owner's approval") as waits:
            asking.robust_pca(dataset, rank=1, epsilon=0.5, timeout=0)
        assert "waits for the owner's approval, nothing is charged yet" in capsys.readouterr().err
        (found,) = client.requests()
        assert (found.job, found.analyst, found.purpose) == (waits.value.job, analyst.id, "a test")
        assert 0.5 < found.guess < 1
        assert client.decide(found.job, "approve").state in ("reserved", "claimed", "committed")
        assert asking.wait(found.job).basis.shape == (4, 1)
        for end, words in (
            ("deny", r"denied by an owner of the data \(enough for now\)"),
            ("withdraw", "withdrawn"),
        ):
            with pytest.raises(StillRunning) as waits:
                asking.robust_pca(dataset, rank=1, epsilon=0.5, timeout=0, reuse=False)
            if end == "deny":
                client.decide(waits.value.job, "deny", reason="enough for now")
            else:
                asking.withdraw(waits.value.job)
            with pytest.raises(NotApproved, match=f"{words}.*nothing was charged"):
                asking.wait(waits.value.job)


def test_a_report_comes_in_both_forms(client: Client, owner: Caller) -> None:
    assert client.report().startswith(b"<!doctype html>")
    table = client.report(owner.id, format="csv", keys=[f"{'A' * 43}=={'2026-01-31T12:00Z'}"])
    assert b"sound" in table
    assert b",entry," in table or b"\nentry," in table


def test_a_budget_is_renewed_and_paced_and_its_owner_is_told(client: Client, owner: Caller) -> None:
    budget = client.change_budget(renewal={"every": "month", "most": 12}, pace=0.5)
    assert budget.told.windows is not None
    assert (budget.told.windows.every, budget.told.windows.pace) == ("month", 0.5)
    assert "next window" in str(budget)
    made = client.add_channel("webhook", url="https://example.org/privest", events=["budget.spent"])
    assert (made.secret or "").startswith("whsec_")
    assert [each.id for each in client.channels()] == [made.id]
    client.change_budget(pace=0.001)
    dataset = client.datasets.upload(plane(), VECTORS)
    with pytest.raises(PaceExceeded, match="ask again in some days"):
        client.robust_pca(dataset, rank=2, epsilon=10.0, delta=1e-5)
    assert owner.budget()["queries"] == 0
    assert [each.kind for each in client.acts(kind="channel.made")] == ["channel.made"]
    assert client.acts(text=made.id)[0].subject == made.id
    assert not client.acts(since="2100-01-01T00:00:00Z")


def test_a_tag_finds_a_question_again(client: Client) -> None:
    dataset = client.datasets.upload(plane(), VECTORS)
    found = client.robust_pca(dataset, rank=1, epsilon=0.5, delta=1e-5, tag="first try")
    assert found.job.tag == "first try"
    assert [(each.id, each.tag) for each in client.jobs(tag="first try")] == [(found.job.id, "first try")]
    assert client.jobs(tag="second try") == []


def test_an_analyst_is_told_too(server: Server, owner: Caller) -> None:
    analyst = server.analyst()
    with Client(server.url, analyst.key) as client:
        made = client.add_channel("webhook", url="https://example.org/privest")
        assert made.events == ["question.ended"]
        assert [each.id for each in client.channels()] == [made.id]
    with Client(server.url, owner.key) as client:
        assert client.channels() == []
