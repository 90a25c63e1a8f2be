"""What programs see of the client: the same names with types in both clients, errors at their own lines."""

import asyncio
import inspect
import json
import pydoc
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

import privest_client
from privest_client import AsyncClient, Client, InvalidRequest, PrivestError, calls, operations
from privest_client.estimators import KINDS
from privest_client.operations import Question
from testing import ROOT

SAMPLE = Path(__file__).with_name("sample_of_types.py")
BIN = Path(sys.executable).parent

WRONG = {
    "rate=0.1": "rates=0.1",
    "rank=2, epsilon=1)": "epsilon=1)",
    'metric="auc"': 'metric="recall"',
}
"""Faults that a checker of types must find in the sample."""


@pytest.mark.costly
@pytest.mark.parametrize(
    "checker",
    [
        ["pyright", "-p", "."],
        pytest.param(["mypy", "--strict", "right.py", "wrong.py"], marks=pytest.mark.prove),
    ],
    ids=lambda it: it[0],
)
def test_a_typed_program_is_checked_and_its_faults_are_found(checker: list[str], tmp_path: Path) -> None:
    settings = {"include": ["*.py"], "typeCheckingMode": "strict", "venvPath": str(ROOT), "venv": ".venv"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    text = sample = SAMPLE.read_text()
    for right, wrong in WRONG.items():
        assert right in text
        text = text.replace(right, wrong)
    (tmp_path / "right.py").write_text(sample)
    (tmp_path / "wrong.py").write_text(text)
    command = [str(BIN / checker[0]), *checker[1:]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    pairs = zip(sample.splitlines(), text.splitlines(), strict=True)
    changed = {str(place) for place, (right, wrong) in enumerate(pairs, 1) if right != wrong}
    assert changed <= set(re.findall(r"wrong\.py:(\d+)", done.stdout)), done.stdout + done.stderr
    assert "right.py" not in done.stdout, done.stdout


def methods(owner: type) -> dict[str, inspect.Signature]:
    return {name: inspect.signature(getattr(owner, name)) for name in dir(owner) if not name.startswith("_")}


def parts(owner: type) -> dict[str, list[str]]:
    return {name: [*signature.parameters] for name, signature in methods(owner).items()}


def test_both_clients_have_the_same_names_with_the_same_parameters() -> None:
    assert parts(Client) == parts(AsyncClient)
    one, other = Client("https://x", "key"), AsyncClient("https://x", "key")
    assert parts(type(one.datasets)) == parts(type(other.datasets))
    assert {"mean", "pca", "classify", "frechet_mean", "wait", "from_env"} <= parts(Client).keys()
    assert one.upload.__name__ == other.upload.__name__ == "upload"


def test_what_is_asked_about_comes_in_one_order() -> None:
    """The dataset, then its columns, or a label and features; all else by name."""
    for name, signature in {**methods(Client), **methods(AsyncClient)}.items():
        by_place = [
            each.name
            for each in signature.parameters.values()
            if each.kind is each.POSITIONAL_OR_KEYWORD and each.name != "self"
        ]
        if "epsilon" not in signature.parameters or name == "score":
            continue
        first, *rest = by_place[1:] if name in ("plan", "estimate") else by_place
        assert first in ("data", "dataset"), name
        assert rest == [each for each in ("label", "columns", "features") if each in signature.parameters]


@pytest.mark.parametrize("epsilon", [float("nan"), float("inf"), "0.5", None, True, -1], ids=repr)
def test_what_is_no_epsilon_is_told_before_anything_is_sent(epsilon: Any) -> None:
    with Client("https://x", "k") as client:
        sent = answering(client)
        with pytest.raises(InvalidRequest, match="epsilon: must be a number above 0, as epsilon="):
            client.mean("ds_1", epsilon=epsilon)
        with pytest.raises(InvalidRequest, match="delta: must be a number from 0"):
            client.plan("bounds", "ds_1", ["age"], epsilon=1, delta="x")  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidRequest, match=r"as score\(rows, found\)"):
            client.score(object(), "ds_1", epsilon=1)  # pyright: ignore[reportArgumentType]
        if epsilon is not None:
            with pytest.raises(InvalidRequest, match="epsilon: must be a number"):
                client.datasets.grant("ds_1", "an_1", epsilon=epsilon, delta=1e-6)
        assert sent == []


def test_a_fault_of_a_schema_names_its_column() -> None:
    problem = {
        "type": "urn:privest:problem:invalid",
        "title": "The request is not valid",
        "status": 422,
        "faults": [
            {"location": "columns.3", "field": "age", "rule": "low must be below high"},
            {"location": "dataset.inline.schema.columns.20.categories", "field": "sex", "rule": "is missing"},
            {"location": "columns.0", "rule": "must be a text"},
        ],
    }
    with Client("https://x", "k", progress=False) as client:
        answering(client, httpx.Response(422, json=problem))
        with pytest.raises(InvalidRequest) as told:
            client.datasets.get("ds_1")
    assert str(told.value).splitlines()[1:4] == [
        "  column 'age' (4th): low must be below high",
        "  column 'sex' (21st), categories: is missing",
        "  columns.0: must be a text",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_full_methods_spell_every_choice_out(kind: str) -> None:
    signature = methods(Client)[kind.replace("-", "_")]
    assert not [each for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD]
    choices = {field.alias or name for name, field in KINDS[kind].request.model_fields.items()}
    assert signature.parameters.keys() == choices - {"privacy"} | {
        "self",
        "epsilon",
        "delta",
        "key",
        "timeout",
    }
    doc = inspect.getdoc(getattr(Client, kind.replace("-", "_"))) or ""
    assert all(f"{name}: " in doc for name in signature.parameters if name != "self")


def test_help_lists_what_a_client_does() -> None:
    for client in (Client, AsyncClient):
        said = pydoc.plain(pydoc.render_doc(client))
        for name in ("upload", "mean", "pca", "classify", "score", "robust_pca", "plan", "budget"):
            assert re.search(rf"^ \|  (async )?{name}\(", said, re.MULTILINE), name


def test_what_is_as_by_default_is_left_to_the_service() -> None:
    asked = operations.Question.of(
        "robust-pca",
        "ds_1",
        {"epsilon": 1.0},
        {"rank": 2, "reuse": True, "solver": "ggd", "steps": None, "center": True},
    )
    assert asked.body == {"dataset": {"id": "ds_1"}, "privacy": {"epsilon": 1.0}, "rank": 2, "center": True}


@pytest.mark.parametrize("named", ["age", ["age"], pd.Index(["age"]), np.array(["age"])], ids=repr)
def test_columns_are_named_alone_or_in_any_list(named: Any) -> None:
    asked = Question.of("frechet-mean", "ds_1", {"epsilon": 1.0}, {"columns": named})
    assert asked.body["columns"] == ["age"]
    fit = Question.of(
        "logistic-regression", "ds_1", {"epsilon": 1.0}, {"label": 2, "features": [0, ("a", 1)]}
    )
    assert (fit.body["label"], fit.body["features"]) == ("2", ["0", "a_1"])


def test_frames_are_asked_about_by_the_columns_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"age": [30, 40], "name": ["Ada", "Bo"]})
    table = operations._asked_columns(frame, {"columns": ["age"]})
    assert operations._about(table) == {
        "inline": {
            "schema": {"kind": "table", "columns": [{"name": "age", "type": "integer"}]},
            "rows": [{"age": 30}, {"age": 40}],
        }
    }


def answering(client: Any, *answers: httpx.Response) -> list[httpx.Request]:
    """Have a client get these answers; returns what it will have asked."""
    asked, left = [], list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return left.pop(0)

    kind = type(client._http)
    client._http = kind(base_url="http://x", auth=client._http.auth, transport=httpx.MockTransport(answer))
    return asked


ME = {"role": "owner", "id": "own_1"}


def test_a_token_is_asked_for_before_each_request() -> None:
    tokens = iter(["first", "second"])
    with Client("https://x", lambda: next(tokens)) as client:
        asked = answering(client, *[httpx.Response(200, json=ME) for _ in "ab"])
        client.me()
        client.me()
    assert [each.headers["Authorization"] for each in asked] == ["Bearer first", "Bearer second"]


def test_the_environment_says_whom_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRIVEST_KEY", raising=False)
    with pytest.raises(PrivestError, match="set PRIVEST_KEY"):
        Client.from_env()
    monkeypatch.setenv("PRIVEST_KEY", "k")
    monkeypatch.setenv("PRIVEST_URL", "https://privest.example/root/")
    with Client.from_env(progress=False) as client:
        assert str(client._http.base_url) == "https://privest.example/root/"


def test_proxies_and_certificates_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given = calls.options_of("https://x/", calls.Bearer("k"), False, "http://127.0.0.1:3128")
    assert (given["verify"], given["proxy"], given["base_url"]) == (
        False,
        "http://127.0.0.1:3128",
        "https://x",
    )


def test_an_error_ends_in_the_line_that_called() -> None:
    with Client("https://x", "k") as client, pytest.raises(InvalidRequest) as told:
        client.robust_pca("no id!", rank=2, epsilon=1.0)
    # pytest's own frames are not in it: this line, and the one at the surface that IPython leaves out.
    frames = traceback.extract_tb(told.value.__traceback__)
    assert frames[0].line == 'client.robust_pca("no id!", rank=2, epsilon=1.0)'
    assert len(frames) == 2
    assert told.value.__cause__ is told.value.__context__ is None or told.value.__suppress_context__


WAITING = {
    "id": "job_1",
    "kind": "robust-pca",
    "state": "claimed",
    "estimate": None,
    "uncertainty": None,
    "privacy": {"epsilon": 1, "delta": 1e-6, "mu": 0.3, "slack": 0, "mechanism": "gaussian"},
    "charges": [],
    "reused": False,
}


def test_an_interrupt_tells_the_job_and_how_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with Client("https://x", "k", progress=False) as client:
        answering(client, httpx.Response(202, json=WAITING))
        monkeypatch.setattr("time.sleep", interrupted)
        with pytest.raises(KeyboardInterrupt) as told:
            client.robust_pca("ds_1", rank=2, epsilon=1.0)
        assert any("client.wait('job_1')" in note for note in told.value.__notes__)
        monkeypatch.setattr(client._http, "stream", interrupted)
        with pytest.raises(KeyboardInterrupt) as told:
            client.robust_pca("ds_1", rank=2, epsilon=1.0, key="mine")
        assert any("key='mine'" in note for note in told.value.__notes__)


def test_a_call_that_is_cancelled_tells_the_job_too() -> None:
    async def ask() -> None:
        async with AsyncClient("https://x", "k") as client:
            asked = answering(client, *[httpx.Response(202, json=WAITING)] * 1000)
            task = asyncio.create_task(client.robust_pca("ds_1", rank=2, epsilon=1.0))
            while len(asked) < 2:  # the second one asks for the job by its id
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as told:
                await task
            assert any("job_1" in note for note in told.value.__notes__)

    asyncio.run(ask())


def test_progress_is_plain_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    from privest_client.showing import progress_of_job

    with progress_of_job("robust-pca", shown=True) as told:
        for state in ("asked", "claimed", "claimed", "claimed"):
            told(state)
    said = capsys.readouterr()
    assert said.err == "robust-pca: asking\nrobust-pca: running\n"
    assert said.out == ""


def test_what_the_service_tells_is_printed_in_one_line() -> None:
    view = privest_client.models.JobView.model_validate(WAITING | {"estimate": {"basis": [[0.1] * 50] * 50}})
    assert len(repr(view)) < 400
    assert "job_1" in repr(view)
    assert "\n" not in repr(view)


def test_the_version_is_that_of_the_package() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", privest_client.__version__)
    assert (Path(privest_client.__file__).parent / "py.typed").exists()
