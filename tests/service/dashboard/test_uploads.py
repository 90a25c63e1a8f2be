"""Datasets come and go through forms: good files, bad files with every fault at its record, deletion."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import FilePayload, expect

from testing.browser import Visitor
from testing.scenes import analyst_called, answered, dataset_called, owner_called
from testing.server import Server, csv_of, npy, problem, spd, told_apart

Visit = Callable[..., Visitor]

JSON_SCHEMA = {"kind": "vectors", "dim": 3, "norm_bound": 2.0}

GOOD: dict[str, tuple[dict[str, str], str, bytes]] = {
    "points": ({"dim": "2", "radius": "1.0", "center": "[[1, 0], [0, 1]]"}, "rows.npy", npy(spd(60, 2))),
    "vectors": ({"dim": "3", "norm_bound": "2"}, "rows.csv", csv_of(np.ones((20, 3)))),
    "partial-vectors": ({"dim": "3", "known": "0.7"}, "rows.csv", b"a,b,c\n" + b"1,,3\n,0.5,2\n" * 20),
    "labelled": (
        {
            "features": 'age, "dose, mg"',
            "label": "ill",
            "classes": "no, yes",
            "mean": "50, 1",
            "scale": "10, 0.5",
        },
        "rows.csv",
        b'age,"dose, mg",ill\n' + b"40,0.5,no\n61,1.5,yes\n" * 20,
    ),
    "json": ({"schema": json.dumps(JSON_SCHEMA)}, "rows.json", json.dumps([[1, 2, 3.5]] * 9).encode()),
}
"""What is filled in for each kind of form, and a file that fits."""

_spoiled = np.ones((20, 3))
_spoiled[7, 1] = np.nan

BAD: dict[str, tuple[str, dict[str, str], str, bytes, list[str]]] = {
    "not a number": ("vectors", {"dim": "3"}, "rows.csv", csv_of(_spoiled), ["record 7", "1", "finite"]),
    "wrong label": (
        "labelled",
        GOOD["labelled"][0],
        "rows.csv",
        b'age,"dose, mg",ill\n40,0.5,no\n61,1.5,yes\n47,1.0,perhaps\n',
        ["record 2", "ill", "class"],
    ),
    "not JSON": ("json", {"schema": "{"}, "rows.npy", npy(np.ones((9, 3))), ["JSON"]),
    "no such dimension": ("points", {"dim": "two"}, "rows.npy", npy(spd(9, 2)), ["dim", "must be a number"]),
    "unknown format": ("vectors", {"dim": "3"}, "rows.exe", b"MZ", ["not read here", "csv"]),
}
"""Faulty forms: the kind, what is filled in, the file, and words of the fault."""


def _file(name: str, content: bytes) -> FilePayload:
    return {"name": name, "mimeType": "application/octet-stream", "buffer": content}


def _fill(visitor: Visitor, kind: str, fields: dict[str, str], file: FilePayload | Path) -> None:
    visitor.open(f"/dashboard/datasets/new?kind={kind}")
    page = visitor.page
    if kind == "points":
        page.locator("[name=manifold]").select_option("spd")
    for field, value in ({"name": f"By form: {kind}"} | fields).items():
        page.locator(f"[name={field}]").fill(value)
    page.locator("input[name=file]").set_input_files(file)
    page.get_by_role("button", name="Upload").click()


@pytest.mark.few(4)
@pytest.mark.parametrize("java_script", [True, False])
@pytest.mark.parametrize("kind", GOOD)
def test_a_good_file_becomes_a_dataset(site: Server, visit: Visit, kind: str, java_script: bool) -> None:
    owner, visitor = owner_called(site, "Uploading"), visit(site, java_script=java_script)
    visitor.enter(owner.key)
    fields, name, content = GOOD[kind]
    _fill(visitor, kind, fields, _file(name, content))
    visitor.page.wait_for_url("**/dashboard/datasets/ds_*")
    assert "records fit the schema, and are stored." in visitor.page.get_by_role("status").inner_text()
    assert visitor.page.locator("h1").inner_text() == f"By form: {kind}"
    (made,) = owner.get("/v1/datasets").json()["datasets"]
    assert made["id"] in visitor.page.url
    assert made["name"] == f"By form: {kind}"
    declared = owner.get(f"/v1/datasets/{made['id']}").json()
    assert declared["kind"] == (kind if kind != "json" else "vectors")
    if java_script:
        visitor.check_accessibility()


@pytest.mark.few(4)
@pytest.mark.parametrize("java_script", [True, False])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_at_its_record(
    site: Server, visit: Visit, name: str, java_script: bool, tmp_path: Path
) -> None:
    owner, visitor = owner_called(site, "Mistaken"), visit(site, java_script=java_script)
    visitor.expects(415, 422)
    visitor.enter(owner.key)
    kind, fields, file, content, words = BAD[name]
    _fill(visitor, kind, fields, _file(file, content))
    alert = visitor.page.get_by_role("alert")
    expect(alert).to_be_visible()
    for word in words:
        assert word in alert.inner_text()
    assert "Nothing was stored." in visitor.page.locator("main").inner_text()
    assert owner.get("/v1/datasets").json()["datasets"] == []
    assert not list((site.data_dir / "rows").glob(f"{owner.id}/*"))
    for field, value in fields.items():
        assert visitor.page.locator(f"[name={field}]").input_value() == value, "what was typed stays"
    if java_script:
        expect(alert).to_be_focused()
        visitor.check_accessibility()
        # The form that came with the answer is a form like the first.
        again, right, whole = GOOD[kind]
        for field, value in again.items():
            visitor.page.locator(f"[name={field}]").fill(value)
        if kind == "points":
            visitor.page.locator("[name=manifold]").select_option("spd")
        visitor.page.locator("input[name=file]").set_input_files(_file(right, whole))
        visitor.page.get_by_role("button", name="Upload").click()
        visitor.page.wait_for_url("**/dashboard/datasets/ds_*")


@pytest.mark.costly
def test_the_first_line_of_a_csv_file_is_what_the_form_says(site: Server, visit: Visit) -> None:
    owner, visitor = owner_called(site, "Of years"), visit(site)
    visitor.expects(422)
    visitor.enter(owner.key)
    years = _file("years.csv", b"2019,2020\n1,2\n3,4\n")
    _fill(visitor, "vectors", {"dim": "2"}, years)
    alert = visitor.page.get_by_role("alert")
    alert.wait_for()
    assert "first line names the columns" in alert.inner_text()
    for chosen, n, said in (("true", 2, "names of its columns"), ("false", 3, "as the first record")):
        visitor.open("/dashboard/datasets/new?kind=vectors")
        visitor.page.locator("[name=dim]").fill("2")
        visitor.page.locator("[name=header]").select_option(chosen)
        visitor.page.locator("input[name=file]").set_input_files(years)
        visitor.page.get_by_role("button", name="Upload").click()
        visitor.page.wait_for_url("**/dashboard/datasets/ds_*")
        told = visitor.page.get_by_role("status").inner_text()
        assert f"All {n} records fit the schema" in told
        assert said in told
        visitor.check_accessibility()


def test_a_form_without_a_file_is_explained(site: Server, visit: Visit) -> None:
    owner, visitor = owner_called(site, "In a hurry"), visit(site, java_script=False)
    visitor.expects(422)
    visitor.enter(owner.key)
    visitor.open("/dashboard/datasets/new?kind=vectors")
    visitor.page.locator("[name=dim]").fill("3")
    visitor.page.get_by_role("button", name="Upload").click()
    assert "/new" in visitor.page.url, "the browser itself asks for the file"


def test_progress_is_shown_while_a_file_is_on_its_way(site: Server, visit: Visit, tmp_path: Path) -> None:
    owner, visitor = owner_called(site, "Large"), visit(site)
    large = tmp_path / "rows.npy"  # read by the browser itself: handed to it, it would take seconds to come
    np.save(large, np.ones((10_000, 200)))
    visitor.enter(owner.key)
    visitor.page.add_init_script(
        """addEventListener("DOMContentLoaded", () => {
            const part = document.querySelector(".progress");
            if (!part) return;
            const seen = [];
            new MutationObserver(() => {
                const {hidden} = part, {value} = part.querySelector("progress");
                seen.push({hidden, value, said: part.querySelector("[role=status]").textContent});
                sessionStorage.setItem("seen", JSON.stringify(seen));
            }).observe(part, {attributes: true, childList: true, subtree: true});
        })"""
    )
    _fill(visitor, "vectors", {"dim": "200"}, large)
    visitor.page.wait_for_url("**/dashboard/datasets/ds_*")
    seen: list[dict[str, Any]] = visitor.page.evaluate('JSON.parse(sessionStorage.getItem("seen"))')
    assert not any(each["hidden"] for each in seen)
    said = [each["said"] for each in seen]
    assert any("% sent" in each for each in said), said
    assert "Checking every record …" in said
    values = [each["value"] for each in seen if "% sent" in each["said"]]
    assert values == sorted(values)


def test_a_dataset_is_deleted_after_a_second_question(site: Server, visit: Visit) -> None:
    owner, analyst = owner_called(site, "Deleting"), analyst_called(site, "Ida Moreau")
    dataset, visitor = dataset_called(owner, "Doomed rows"), visit(site)
    assert owner.grant(dataset, analyst).status_code == 200
    answered(analyst, dataset)
    before = owner.budget()["spent"]
    visitor.enter(owner.key)
    visitor.open(f"/dashboard/datasets/{dataset}")
    page = visitor.page
    page.get_by_role("link", name="Delete").click()
    assert page.locator("h1").inner_text() == "Delete “Doomed rows”?"
    told = page.locator("main").inner_text()
    assert "Its 60 records are deleted" in told
    assert "1 analyst can no longer ask" in told
    visitor.check_accessibility()
    page.get_by_role("link", name="Keep it").click()
    assert owner.get(f"/v1/datasets/{dataset}").status_code == 200
    page.get_by_role("link", name="Delete").click()
    visitor.expects(422)
    page.locator("[name=name]").fill("Doomed")
    page.get_by_role("button", name="Delete it").click()
    expect(page.get_by_role("alert")).to_contain_text("must be the name of this dataset")
    assert owner.get(f"/v1/datasets/{dataset}").status_code == 200
    page.locator("[name=name]").fill("Doomed rows")
    page.get_by_role("button", name="Delete it").click()
    page.wait_for_url("**/dashboard/datasets")
    assert "No datasets yet." in page.locator("main").inner_text()
    problem(owner.get(f"/v1/datasets/{dataset}"), 404, "not-found")
    problem(analyst.estimate(dataset), 404, "not-found")
    assert not list((site.data_dir / "rows").glob(f"{owner.id}/{dataset}*"))
    assert owner.budget()["spent"] == before
    visitor.open("/dashboard/ledger")
    expect(page.locator("tbody tr").filter(has_text="Doomed rows")).to_have_count(1)
    visitor.open("/dashboard/ledger/2")
    assert "Doomed rows" in page.locator("main").inner_text()
    visitor.open("/dashboard")
    assert "Deleted or sent with a question" in (page.locator("svg#by-dataset").text_content() or "")


def test_same_rows_under_two_names_are_said_to_be_the_same(site: Server, visit: Visit) -> None:
    owner, visitor = owner_called(site, "Doubling"), visit(site)
    schema = {"kind": "labelled", "features": ["a", "b"], "label": "y", "classes": ["0", "1"]}
    rows = told_apart(40, apart=1.0)
    first = dataset_called(owner, "First name", rows, schema)
    second = dataset_called(owner, "Second name", rows, schema)
    visitor.enter(owner.key)
    visitor.open("/dashboard/datasets")
    assert visitor.page.get_by_text("same rows as another, counted apart").count() == 2
    for dataset, other in ((first, "Second name"), (second, "First name")):
        visitor.open(f"/dashboard/datasets/{dataset}")
        assert visitor.page.locator("main").get_by_role("link", name=other).count() == 1
