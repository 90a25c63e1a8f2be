"""What pages show is run as it stands, tutorial and examples before all, or is listed with a reason."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from math import ceil, erfc, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privest.privacy.accounting import mu_for
from privest_client import Client
from testing import ROOT, generators
from testing.pages import BIN, PAGES_OF_CALLS
from testing.pages import shell as printed
from testing.server import ADMIN_KEY, HANG_GUARD, LABELLED, Server, told_apart

ADDRESS, PASSWORD = "http://127.0.0.1:8000", "choose-a-long-secret"

ELSEWHERE = {
    "README.md": "test_readme.py",
    **dict.fromkeys(PAGES_OF_CALLS, "test_readme.py"),
    "docs/sites.md": "test_sites.py",
    "docs/offline.md": "test_release.py",
}
"""Pages whose shell blocks are all run by another test."""

IN_SHORT = ("README.md", "client/README.md")
"""Pages with a few lines of Python on a csv file, and no more."""

NOT_RUN = {
    "scripts/make-secrets  ": "needs Docker: scripts/prove-image runs the same without",
    "scripts/make-secrets deploy": "needs Kubernetes: test_chart.py renders the chart",
    "scripts/pin-images && docker": "needs Docker: test_release.py runs the second line",
    "deploy/try-out/prepare": "needs Docker: test_try_out.py runs both scripts of the try-out",
    "echo PRIVEST_TRUSTED_PROXIES": "needs Docker: test_proxy_middleware.py has proxies",
    "docker compose exec -T": "needs Docker: test_upgrade.py runs both commands of Privest",
    "docker tag privest": "needs Docker: test_upgrade.py runs the same without",
    "docker compose exec privest": "needs Docker: test_upgrade.py runs the same without",
    "PRIVEST_MIGRATION_URL": "needs PostgreSQL with roles: test_grants.py has some",
    "kubectl patch": "needs Kubernetes: test_rolling_restart.py restarts replicas in turn",
    "PRIVEST_HUB_URL=https://hub.example.org": "needs Docker: test_deployment.py checks the file",
    "privest backup": "needs a disaster: test_backup.py has some",
    "export PRIVEST_DATABASE_URL": "needs several machines: test_concurrency.py starts replicas",
    "dask scheduler": "needs several machines: test_runners.py starts such a cluster on one",
    'tls="--tls': "needs several machines: test_runners.py starts such a cluster on one",
    "@dataclass(frozen=True)\nclass Sphere": "a part of a file: test_catalogue.py adds a manifold",
    "@dataclass(frozen=True)\nclass ToyMeanSpec": "a part of a file: test_catalogue.py adds an estimator",
    '{"kind": "table",\n "columns"': "a schema: test_tables.py has such",
    '{"type": "urn:privest:problem:dataset-invalid"': "a refusal: test_tables.py has such",
    "import hashlib\nimport hmac": "needs a webhook: test_notices.py receives some by it",
    "import onnxruntime": "needs an answer: tests/client/test_tables_over_http.py runs these lines",
    "answer = client.frechet_mean(patients": "needs a grant for it: tests/client/test_published.py has one",
    "from privest_client import Client, NotApproved": "waits for an owner: test_client.py has one",
    "pip install jupyterlab": "opens a browser: the notebook itself is run here",
}
"""Blocks that are not run, by how they begin, and what is run in their place."""


@pytest.fixture
def backend() -> str:
    """Pages know of no database."""
    return "sqlite"


def blocks(page: str, *languages: str) -> list[str]:
    """The blocks of a page in these languages."""
    text = (ROOT / page).read_text()
    found = re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [block for language, block in found if language in languages]


def shell(block: str, server: Server, **environment: str) -> str:
    """What a shell block prints; the environment of the tests has what it would install."""
    script = f"pip() {{ :; }}\n{block}".replace(ADDRESS, server.url).replace(PASSWORD, ADMIN_KEY)
    return printed(script, server.directory, **environment)


def python(page: str, server: Server, **given: Any) -> dict[str, Any]:
    """The names that the Python of a page leaves behind."""
    for block in blocks(page, "python"):
        exec(compile(block.replace(ADDRESS, server.url), page, "exec"), given)  # noqa: S102 - our own pages
    return given


def test_every_block_is_run_or_listed() -> None:
    run = {
        page: blocks(page, "python")
        for page in (
            "docs/choosing.md",
            "docs/asking.md",
            "docs/several-fits.md",
            "docs/scikit-learn.md",
            "docs/sites.md",
            *IN_SHORT,
        )
    }
    run |= {page: blocks(page, "python", "sh") for page in ("docs/tutorial.md", "docs/examples.md")}
    for page in ELSEWHERE:
        run[page] = [*run.get(page, ()), *blocks(page, "sh")]
    pages = [
        Path("README.md"),
        Path("client/README.md"),
        *(Path("docs") / p.name for p in (ROOT / "docs").glob("*.md")),
    ]
    shown = [
        (str(page), block) for page in pages for block in blocks(str(page), "sh", "bash", "python", "json")
    ]
    assert len(shown) > 20
    listed = {start for start in NOT_RUN for _, block in shown if block.startswith(start)}
    assert listed == set(NOT_RUN)
    missing = [
        (page, block)
        for page, block in shown
        if block not in run.get(page, ()) and not block.startswith(tuple(NOT_RUN))
    ]
    assert not missing


def test_the_tutorial(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    install, key, file = blocks("docs/tutorial.md", "sh")
    assert install == "pip install ./client pandas\n"
    monkeypatch.setenv("PRIVEST_URL", server.url)
    monkeypatch.setenv("PRIVEST_KEY", shell(f"{key}\n{file}\necho $PRIVEST_KEY", server).strip())
    monkeypatch.chdir(server.directory)
    (ten, *_) = blocks("docs/tutorial.md", "python")
    assert len([line for line in ten.splitlines() if line]) == 10
    left = python("docs/tutorial.md", server)
    took = time.monotonic() - began
    said = capsys.readouterr().out
    assert "The privacy budget does not cover this" in said
    mean, client = left["mean"], left["client"]
    low, high = mean.interval(0.999999)["height"]
    assert low < left["rows"]["height"].mean() < high
    names = {"height", "weight", "weight filled", "weight missing", "smoker", "ward=North", "ward=South"}
    assert mean.columns.keys() == names
    assert "is left: room for ε = " in said
    spent = [client.budget().told.spent.epsilon]
    exec(compile(ten, "first.py", "exec"), {})  # noqa: S102 - our own page, once more
    assert client.budget().told.queries == 1
    client.frechet_mean(left["people"], epsilon=left["plan"].epsilon, reuse=False)
    spent.append(client.budget().told.spent.epsilon)
    assert re.findall(
        r"(?:ε = (\S+) spent of|come\s+to (\S+?)\.\s)", (ROOT / "docs/tutorial.md").read_text()
    ) == [
        (f"{spent[0]:.2f}", ""),
        ("", f"{spent[1]:.2f}"),
    ]
    with capsys.disabled():
        print(f"\ntutorial: {took:.1f} s")


def test_javascript_with_nothing_installed(server: Server, tmp_path: Path) -> None:
    (program,) = blocks("docs/interface.md", "js")
    (tmp_path / "first.mjs").write_text(program)
    owner = server.owner()
    told = json.loads(
        generators.run("node", "first.mjs", where=tmp_path, PRIVEST_URL=server.url, PRIVEST_KEY=owner.key)
    )
    assert told["state"] == "committed"
    (spent,) = (entry for entry in owner.ledger() if entry["kind"] == "debit")
    assert spent["epsilon"] == told["epsilon"]


@pytest.mark.parametrize("page", IN_SHORT)
def test_the_client_in_short(
    page: str, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(server.directory)
    rng = np.random.default_rng(0)
    people = pd.DataFrame(rng.normal([50, 25], [15, 4], (800, 2)), columns=["age", "bmi"])
    people["bmi"] = people["bmi"].where(rng.random(800) < 0.9)
    people.assign(ill=np.where(people["age"] > 50, "yes", "no")).to_csv("people.csv", index=False)
    left = python(page, server, key=server.owner(3.0).key)
    assert left["people"].n == 800
    assert "age" in capsys.readouterr().out
    if "found" in left:
        assert len(left["found"].predict(people)) == 800


def test_what_is_said_of_epsilon(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """The best guess between two records is right with probability Φ(μ/2); equal questions add up in μ²."""
    text = (ROOT / "docs/choosing.md").read_text()
    epsilons, guesses = (
        [
            float(cell)
            for cell in re.findall(r"\| ([\d.]+)", re.search(rf"^\| {row}.*$", text, re.MULTILINE)[0])
        ]
        for row in ("ε, at", "right guesses")
    )
    right = [50 * erfc(-mu_for(each, 1e-6) / 2 / sqrt(2)) for each in epsilons]
    assert guesses == [ceil(10 * each) / 10 for each in right]
    assert f"holds {int((mu_for(1, 0.9e-5) / mu_for(0.1, 10_000**-1.5)) ** 2)} questions" in text
    owner = server.owner(1.0)
    with Client(server.url, owner.key, progress=False) as client:
        python("docs/choosing.md", server, client=client, dataset=owner.dataset())
    assert 0 < float(capsys.readouterr().out) < 10
    assert not owner.budget()["queries"]


def test_many_questions_are_asked_as_shown(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    owner = server.owner(1.0)
    with Client(server.url, owner.key, progress=False) as client:
        left = python("docs/asking.md", server, client=client, dataset=owner.dataset())
    assert "Price of 2 questions" in capsys.readouterr().out
    assert len(left["answers"]) == owner.budget()["queries"] == 2


def test_the_best_of_several_fits_costs_about_what_one_does(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, owners = told_apart(apart=3.0), [server.owner(3.0) for _ in range(2)]
    chosen, alone = (Client(server.url, owner.key, progress=False) for owner in owners)
    with chosen, alone:
        datasets = [owner.dataset(rows, LABELLED) for owner in owners]
        left = python("docs/several-fits.md", server, client=chosen, dataset=datasets[0])
        alone.classify(datasets[1], epsilon=1.0)
        spent, usual = (client.budget().told.spent.epsilon for client in (chosen, alone))
    assert "Price of 4 questions" in capsys.readouterr().out
    assert owners[0].budget()["queries"] == 10  # in one question, and by hand in nine
    assert left["chosen"].winner == 0
    right = np.asarray(left["answer"].predict(rows[:, :-1])).astype(float) == rows[:, -1]
    assert right.mean() > 0.85  # 0.93 without noise
    assert 0.95 < spent / usual / 2**0.5 < 1.05


def test_every_claim_about_others_has_a_source() -> None:
    text = (ROOT / "docs/comparison.md").read_text()
    others = (
        "Lomas|diffprivlib|OpenDP|Tumult|AWS|BigQuery|Snowflake|PySyft|vantage6|Flower|NVFlare|DataSHIELD"
    )
    rows = re.findall(rf"^\| (?:{others}) \| (.*) \|$", text, re.MULTILINE)
    assert len(rows) > 60
    sourced = re.compile(r"\]\[|not documented|no service|with the object|as the library")
    assert not [row for row in rows if not sourced.search(row)]
    used, defined = (
        re.findall(r"\]\[([\w-]+)\]", text),
        re.findall(r"^\[([\w-]+)\]: https://", text, re.MULTILINE),
    )
    assert set(used) == set(defined)
    assert len(defined) == len(set(defined))


def test_scikit_learn_in_short(server: Server) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal([40, 120], [15, 20], (500, 2))
    y = np.where(X[:, 0] + 5 * rng.standard_normal(500) > 40, "yes", "no")
    left = python("docs/scikit-learn.md", server, X=X, y=y, X_new=X[:9])
    assert left["model"].score(X, y) > 0.7


def test_the_pandas_user(server: Server) -> None:
    (block, *_) = blocks("docs/examples.md", "sh")
    said = shell(f"cd {ROOT}\n{block}", server, PRIVEST_KEY=server.owner(3.0).key)
    assert re.search(r"^age +0\.0\d", said, re.MULTILINE)
    assert "right about" in said
    assert "limit" in said


@pytest.mark.costly
def test_the_platform(start_server: Callable[..., Server], tmp_path: Path) -> None:
    (_, _, setting_up, showing) = blocks("docs/examples.md", "sh")
    making, serving = setting_up.splitlines()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    subprocess.run(
        ["bash", "-c", making],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"},
        check=True,
    )
    assert "d" not in json.loads((tmp_path / "keys.json").read_text())["keys"][0]
    assert (tmp_path / "platform.pem").stat().st_mode & 0o777 == 0o600
    settings = dict(re.findall(r"PRIVEST_(\w+)=(\S+)", serving))
    server = start_server(
        **{
            name.lower(): value.replace("keys.json", str(tmp_path / "keys.json"))
            for name, value in settings.items()
        }
    )
    owner, analyst = server.owner(3.0), server.analyst()
    rows = np.random.default_rng(0).normal([171, 68], [8, 11], (5000, 2))
    plane = {"kind": "points", "manifold": {"name": "euclidean", "dim": 2}, "center": [170, 70], "radius": 30}
    dataset = owner.dataset(rows, plane)
    owner.grant(dataset, analyst, epsilon=0.5, delta=1e-5)
    looks = [
        shell(showing, server, PRIVEST_URL=server.url, analyst_id=analyst.id, dataset=dataset) for _ in "ab"
    ]
    line = re.compile(r"Mean, (\w+): 1\d\d\.\d, \d\d\.\d ± (\d+\.\d\d), for ε = ([\d.]+) \((\w+); job_")
    assert [found[::2] for found in line.findall(looks[0])] == [("roughly", "0.05"), ("finely", "0.3")]
    assert looks[1] == looks[0].replace("(asked;", "(kept;")
    assert "costs ε = 5, which your budget does not cover" in looks[0]
    assert owner.budget()["queries"] == 2
    # Errors are what runs find out. At ε = 0.05 one in thirty is far off the others; at 0.3 none of 400 was.
    shown, seen = (line.findall(each) for each in ("\n".join(blocks("docs/examples.md", "text")), looks[0]))
    assert [found[::2] for found in shown] == [found[::2] for found in seen]
    assert 0.3 < float(shown[1][1]) / float(seen[1][1]) < 3


def pictures(notebook: Any) -> list[list[str]]:
    """The kinds of output that each cell has."""
    return [
        [kind for output in cell.outputs for kind in sorted(output.get("data", {output.output_type: ""}))]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def executed(name: str, **given: Any) -> tuple[Any, Any]:
    """An example's notebook as it is stored, and as it is when all of its cells are run again."""
    import nbformat
    from nbclient import NotebookClient

    stored = nbformat.read(ROOT / "examples" / name, as_version=4)
    client = NotebookClient(nbformat.from_dict(stored), timeout=round(HANG_GUARD), **given)
    return stored, client.execute()


@pytest.mark.costly
def test_the_notebook(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = server.owner(3.0)
    monkeypatch.setenv("PRIVEST_URL", server.url)
    monkeypatch.setenv("PRIVEST_KEY", owner.key)
    stored, run = executed("notebook.ipynb")
    assert pictures(run) == pictures(stored)
    assert sum("image/png" in kinds for kinds in pictures(run)) == 4
    assert owner.budget()["queries"] == 5


@pytest.mark.costly
def test_the_notebook_of_a_table(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a frame to means, directions, a classifier and predictions, with no schema written by hand."""
    owner = server.owner(3.0)
    monkeypatch.setenv("PRIVEST_URL", server.url)
    monkeypatch.setenv("PRIVEST_KEY", owner.key)
    place = {"metadata": {"path": str(ROOT / "examples")}}
    stored, run = executed("table.ipynb", resources=place)
    code = "\n".join(cell.source for cell in stored.cells if cell.cell_type == "code")
    assert len([line for line in code.splitlines() if line]) < 15
    assert pictures(run) == pictures(stored)
    assert owner.budget()["queries"] == 3


@pytest.mark.prove
def test_a_stranger_gets_an_estimate(server: Server, tmp_path: Path) -> None:
    """A stranger needs nothing but Python, a key and ten lines. `-n 0 -s` shows the time."""
    (tmp_path / "client").symlink_to(ROOT / "client")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "fresh"], check=True)
    install, key, file = blocks("docs/tutorial.md", "sh")
    (ten, *_) = blocks("docs/tutorial.md", "python")
    (tmp_path / "first.py").write_text(ten.replace(ADDRESS, server.url))
    script = "\n".join(["set -euo pipefail", install, key, file, "python first.py"])
    began = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", script.replace(ADDRESS, server.url).replace(PASSWORD, ADMIN_KEY)],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{tmp_path}/fresh/bin:{os.environ['PATH']}", "PRIVEST_URL": server.url},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "smoker" in done.stdout
    print(f"\nfrom pip install to an estimate: {time.monotonic() - began:.0f} s")
