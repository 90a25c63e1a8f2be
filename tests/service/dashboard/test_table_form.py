"""A table is declared by hand and eye: from a csv as people have it to an answer, with no JSON written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import FilePayload, Locator, expect

from testing.browser import Visitor
from testing.scenes import answered, owner_called
from testing.server import Caller, Server

Visit = Callable[..., Visitor]

PLACES = ("Nordküste", "NA", '"Süd; hinten"')

BIRDS = "\ufeffGewicht;Länge;Art;gesehen;beringt;Ort\n" + "".join(
    f"{3000 + 10 * i};{30 + i % 20},{i % 10};{('Adélie', 'Gentoo')[i % 2]};2008-0{1 + i % 9}-11;"
    f"{('true', 'false')[i % 2]};{PLACES[i % 3]}\n"
    for i in range(200)
)
"""Semicolons, decimal commas, dates, texts, gaps, a mark before all, a cell with the delimiter in it."""


def file(content: str, name: str = "birds.csv", encoding: str = "utf-8") -> FilePayload:
    return {"name": name, "mimeType": "application/octet-stream", "buffer": content.encode(encoding)}


@pytest.fixture
def begun(site: Server, visit: Visit) -> Callable[..., tuple[Caller, Visitor]]:
    """An owner before the form of tables, with a file chosen."""

    def begin(name: str, chosen: FilePayload | Path, **how: str) -> tuple[Caller, Visitor]:
        owner, visitor = owner_called(site, name, epsilon=20.0), visit(site, **how)
        visitor.enter(owner.key)
        visitor.open("/dashboard/datasets/new")
        visitor.page.locator("input[name=file]").set_input_files(chosen)
        expect(visitor.page.get_by_role("heading", name="Columns")).to_be_visible()
        assert asked_for(visitor) == ["/dashboard/datasets/new"], "nothing is sent of what was read"
        return owner, visitor

    return begin


Begin = Callable[..., tuple[Caller, Visitor]]


def asked_for(visitor: Visitor) -> list[str]:
    """All that the browser asked the service for, but for its files."""
    paths = [url.removeprefix(visitor.site.url) for url in visitor.requests]
    return [path for path in paths if not path.startswith("/dashboard/static/")]


def column(visitor: Visitor, name: str) -> Locator:
    return visitor.page.get_by_role("group", name=name, exact=True)


def kinds(visitor: Visitor) -> list[str]:
    found: list[str] = visitor.page.locator("[data-part=type]").evaluate_all(
        "all => all.map((each) => each.value)"
    )
    return found


def send(visitor: Visitor) -> None:
    visitor.page.get_by_role("button", name="Upload").click()


def stored(visitor: Visitor, owner: Caller) -> dict[str, Any]:
    """The dataset that was made, as its owner reads it."""
    visitor.page.wait_for_url("**/dashboard/datasets/ds_*")
    found: dict[str, Any] = owner.get(
        f"/v1/datasets/{visitor.page.url.rpartition('/')[2].partition('?')[0]}"
    ).json()
    return found


def fits(visitor: Visitor) -> None:
    wide = visitor.page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide[0] <= wide[1]


@pytest.mark.few(1)
@pytest.mark.parametrize(("scheme", "viewport"), [("light", "desktop"), ("dark", "phone")])
def test_from_a_file_to_an_answer(begun: Begin, scheme: str, viewport: str) -> None:
    owner, visitor = begun("Of birds", file(BIRDS), scheme=scheme, viewport=viewport)
    visitor.expects(422)
    page = visitor.page
    assert kinds(visitor) == ["integer", "number", "category", "date", "boolean", "category"]
    assert not page.locator("[name=schema]").is_visible()
    column(visitor, "Gewicht").get_by_label("Lowest").fill("2500")
    column(visitor, "Gewicht").get_by_label("Highest").fill("6500")
    column(visitor, "Länge").get_by_label("Lowest").fill("20,5")
    column(visitor, "Länge").get_by_label("Highest").fill("60")
    column(visitor, "gesehen").get_by_label("Lowest").fill("2007-01-01")
    column(visitor, "gesehen").get_by_label("Highest").fill("2009-12-31")
    column(visitor, "Art").get_by_label("Categories").fill("Adélie\nGentoo")
    assert column(visitor, "Ort").get_by_text("(with gaps)").is_visible()
    column(visitor, "Ort").get_by_role("button", name="Read them from the file").click()
    expect(column(visitor, "Ort").get_by_label("Categories")).to_have_value("Nordküste\nSüd; hinten")
    column(visitor, "beringt").get_by_role("checkbox").uncheck()
    assert not column(visitor, "beringt").get_by_label("Type").is_visible()
    expect(page.locator("[data-count]")).to_have_text("5 of 6 columns are stored")
    page.locator("[name=name]").fill("Birds")
    assert len(asked_for(visitor)) == 1, "nothing is sent before the owner says so"
    visitor.check_accessibility()
    fits(visitor)
    visitor.picture(f"wizard-{scheme}")
    send(visitor)
    fault = column(visitor, "Ort").get_by_text("67 missing; choose what a gap is:")
    expect(fault).to_be_visible()
    expect(page.get_by_role("alert")).to_be_focused()
    visitor.check_accessibility()
    fits(visitor)
    visitor.picture(f"wizard-refused-{scheme}")
    page.get_by_role("alert").get_by_role("link", name="Ort").click()
    column(visitor, "Ort").get_by_label("A gap is").select_option("category")
    send(visitor)
    made = stored(visitor, owner)
    assert (made["n"], made["name"]) == (200, "Birds")
    assert [(each["name"], each["type"]) for each in made["schema"]["columns"]] == [
        ("Gewicht", "integer"),
        ("Länge", "number"),
        ("Art", "category"),
        ("gesehen", "date"),
        ("Ort", "category"),
    ]
    assert made["schema"]["columns"][1]["low"] == 20.5
    assert made["schema"]["columns"][4]["categories"] == ["Nordküste", "Süd; hinten"]
    job = answered(owner, made["id"], epsilon=5.0, columns=["Gewicht", "Ort"])
    visitor.open(f"/dashboard/answers/{job}")
    expect(page.locator("td.name").first).to_have_text("Gewicht")


def test_the_form_of_dates_is_read_off_the_file(begun: Begin) -> None:
    """What the values tell is proposed; where both orders fit, the page says so; faults are in its words."""
    rows = "".join(
        f'{1 + i % 28}.{1 + i % 12}.2008,{1 + i % 9}/{1 + i % 8}/2008,"{("Köln, Süd", "Bonn")[i % 2]}",{i}\n'
        for i in range(60)
    )
    owner, visitor = begun("Dates", file(f"born,seen,place,age\n{rows}"))
    visitor.expects(422)
    page = visitor.page
    assert kinds(visitor) == ["date", "date", "category", "integer"]
    expect(column(visitor, "born").get_by_label("Written as")).to_have_value("dd.mm.yyyy")
    both = "The values shown fit both orders"
    assert not column(visitor, "born").get_by_text(both).is_visible()
    assert column(visitor, "seen").get_by_text(both).is_visible()
    column(visitor, "seen").get_by_label("Written as").select_option("dd/mm/yyyy")
    column(visitor, "place").get_by_label("Categories").fill("Köln, Süd\nBonn")
    column(visitor, "age").get_by_label("Lowest").fill("9")
    column(visitor, "age").get_by_label("Highest").fill("3")
    column(visitor, "born").get_by_label("Written as").select_option("")
    send(visitor)
    alert = page.get_by_role("alert")
    expect(alert.get_by_role("link", name="age")).to_be_visible()
    expect(alert).to_contain_text("Lowest must be below Highest")
    column(visitor, "age").get_by_label("Highest").fill("90")
    send(visitor)
    told = column(visitor, "born").get_by_text("not ISO in 60 rows; “dd.mm.yyyy” fits 60 of them")
    expect(told).to_be_visible()
    column(visitor, "born").get_by_label("Written as").select_option("dd.mm.yyyy")
    visitor.check_accessibility()
    send(visitor)
    columns = stored(visitor, owner)["schema"]["columns"]
    assert [each.get("format") for each in columns] == ["dd.mm.yyyy", "dd/mm/yyyy", None, None]
    assert columns[2]["categories"] == ["Köln, Süd", "Bonn"]


def test_without_scripts_the_columns_are_declared_as_json(site: Server, visit: Visit) -> None:
    owner, visitor = owner_called(site, "No scripts"), visit(site, java_script=False)
    visitor.expects(422)
    visitor.enter(owner.key)
    visitor.open("/dashboard/datasets/new?kind=table")
    visitor.page.locator("input[name=file]").set_input_files(file("age;dose\n40,5;1\n61;2\n"))
    assert '"kind": "table"' in visitor.page.locator("[name=schema]").input_value()
    send(visitor)
    expect(visitor.page.get_by_role("alert")).to_contain_text("sex")
    visitor.page.locator("[name=schema]").fill(
        '{"kind": "table", "columns": [{"name": "age", "type": "number"}]}'
    )
    visitor.page.locator("input[name=file]").set_input_files(file("age;dose\n40,5;1\n61;2\n"))
    send(visitor)
    assert stored(visitor, owner)["n"] == 2


def test_a_wrong_cell_is_mended_where_it_is_told(begun: Begin) -> None:
    rows = "\n".join(f'{20 + i % 60};"{i},5"' for i in range(50))
    owner, visitor = begun(
        "Mending", file(f'\nage;"dose, mg"\n{rows}\n\nabout "30";2,5\n41;"two"\n', encoding="cp1252")
    )
    visitor.expects(422)
    column(visitor, "age").get_by_label("Type").select_option("integer")
    column(visitor, "dose, mg").get_by_label("Type").select_option("number")
    column(visitor, "age").get_by_label("Lowest").fill("0")
    column(visitor, "age").get_by_label("Highest").fill("110")
    send(visitor)
    for name, told, line, wrong, right in (
        ("age", "text in 1 row of a column of numbers", 54, 'about "30"', "30"),
        ("dose, mg", "text in 1 row of a column of numbers", 55, "two", "2,0"),
    ):
        expect(column(visitor, name).get_by_text(told)).to_be_visible()
        cell = column(visitor, name).get_by_label(f"Write into line {line} instead")
        expect(cell).to_have_value(wrong)
        cell.fill(right)
    visitor.check_accessibility()
    assert column(visitor, "age").get_by_label("Highest").input_value() == "110"
    send(visitor)
    made = stored(visitor, owner)
    assert made["n"] == 52
    answered(owner, made["id"], epsilon=5.0, columns=["age"])


def test_what_was_said_stays_when_another_file_is_chosen(begun: Begin) -> None:
    owner, visitor = begun("Another file", file("age,sex,ward\n31,f,a\n47,m,b\n"))
    page = visitor.page
    column(visitor, "age").get_by_label("Lowest").fill("18")
    column(visitor, "sex").get_by_label("Categories").fill("f\nm")
    column(visitor, "ward").get_by_role("checkbox").uncheck()
    page.locator("input[name=file]").set_input_files(
        file("ward,who,sex,age\na,p1,f,31\nb,p2,m,47\nb,p2,m,48\n")
    )
    expect(column(visitor, "who")).to_be_visible()
    expect(column(visitor, "age").get_by_label("Lowest")).to_have_value("18")
    assert not column(visitor, "ward").get_by_role("checkbox").is_checked()
    page.get_by_label("Whose a row is").select_option("who")
    page.get_by_label("Rows of one person, at most").fill("2")
    assert column(visitor, "who").get_by_role("checkbox").is_disabled()
    expect(page.locator("[data-count]")).to_have_text("2 of 4 columns are stored")
    send(visitor)
    made = stored(visitor, owner)
    assert made["n"] == 2
    assert made["schema"]["unit"] == {"column": "who", "rows": 2}
    assert [each["name"] for each in made["schema"]["columns"]] == ["sex", "age"]


ODD = [
    "",
    "x",
    "x",
    "<b onclick=alert(1)>bold</b>",
    "__proto__",
    "Größe\u202e (cm)",
    "a\tb",
    "L" * 200,
    '"quoted", so',
]


@pytest.mark.costly
def test_names_of_any_kind(begun: Begin) -> None:
    header = ",".join('"{}"'.format(name.replace('"', '""')) for name in ODD)
    content = f"{header}\n" + "".join(",".join(str(i + k) for k in range(len(ODD))) + "\n" for i in range(20))
    owner, visitor = begun("Odd names", file(content))
    visitor.expects(422)
    page = visitor.page
    expect(page.get_by_text("in the file more than once")).to_have_count(2)
    expect(page.get_by_text("name it in the file to use it")).to_have_count(1)
    expect(page.locator("[data-count]")).to_have_text("6 of 9 columns are stored")
    assert page.locator("main b").count() == 0
    visitor.check_accessibility()
    fits(visitor)
    visitor.picture("wizard-odd")
    send(visitor)
    fault = page.get_by_role("alert").get_by_role("link", name="a\tb")
    expect(fault).to_be_visible()
    expect(
        column(visitor, "a b").get_by_text("must be of one line, without control characters")
    ).to_be_visible()
    column(visitor, "a b").get_by_role("checkbox").uncheck()
    send(visitor)
    turned = column(visitor, ODD[5])
    expect(turned.get_by_text("must be of one line, without characters that nobody sees")).to_be_visible()
    turned.get_by_role("checkbox").uncheck()
    send(visitor)
    assert [each["name"] for each in stored(visitor, owner)["schema"]["columns"]] == [*ODD[3:5], *ODD[7:]]


@pytest.mark.costly
@pytest.mark.parametrize("viewport", ["desktop", "phone"])
def test_three_hundred_columns(begun: Begin, viewport: str) -> None:
    names = [f"measured_{i:03}" for i in range(300)]
    rows = "".join(",".join(str(i * k % 7) for k in range(300)) + "\n" for i in range(400))
    owner, visitor = begun("Wide", file(",".join(names) + "\n" + rows), viewport=viewport)
    page = visitor.page
    expect(page.locator("[data-count]")).to_have_text("300 of 300 columns are stored")
    fits(visitor)
    page.get_by_role("button", name="Take none").click()
    expect(page.locator("[data-count]")).to_have_text("0 of 300 columns are stored")
    for name in (names[3], names[250]):
        column(visitor, name).get_by_role("checkbox").check()
        column(visitor, name).get_by_label("Lowest").fill("0")
        column(visitor, name).get_by_label("Highest").fill("6")
    visitor.check_accessibility()
    send(visitor)
    made = stored(visitor, owner)
    assert [each["name"] for each in made["schema"]["columns"]] == [names[3], names[250]]
    job = answered(owner, made["id"], epsilon=5.0)
    visitor.open(f"/dashboard/answers/{job}")
    expect(page.locator("td.name")).to_have_text([names[3], names[250]])


def test_the_reference_of_a_category_is_declared_and_told_with_an_answer(begun: Begin) -> None:
    lines = "\n".join(f"{ward},{ward == 'b'}" for ward in "abc" * 200)
    owner, visitor = begun("With a reference", file(f"ward,ill\n{lines}\n"))
    ward = column(visitor, "ward")
    ward.get_by_label("Type").select_option("category")
    ward.get_by_label("Categories").fill("a\nb\nc")
    ward.get_by_label("Reference").fill("b")
    column(visitor, "ill").get_by_label("Type").select_option("boolean")
    expect(column(visitor, "ill").get_by_label("Reference")).to_be_hidden()
    visitor.page.locator("[name=name]").fill("Wards")
    send(visitor)
    made = stored(visitor, owner)
    assert made["schema"]["columns"][0]["reference"] == "b"
    job = owner.estimate(made["id"], kind="logistic-regression", epsilon=5.0, label="ill").json()
    visitor.open(f"/dashboard/answers/{job['id']}")
    expect(visitor.page.get_by_text("Coefficients of categories are relative to ward: b.")).to_be_visible()


def test_by_keyboard_alone(begun: Begin) -> None:
    owner, visitor = begun("By keyboard", file("age,ward\n31,1\n47,2\n52,2\n"))
    keyboard = visitor.page.keyboard
    visitor.page.locator("input[name=file]").focus()
    typed = {"Lowest": "18", "Highest": "99", "Name": "Typed"}
    for _ in range(40):
        keyboard.press("Tab")
        label = visitor.page.evaluate(
            "document.activeElement.labels?.[0]?.firstChild.textContent.trim() ?? ''"
        )
        if label in typed:
            keyboard.type(typed.pop(label))
        if visitor.page.evaluate("document.activeElement.textContent") == "Upload":
            break
    keyboard.press("Enter")
    made = stored(visitor, owner)
    assert (made["name"], made["schema"]["columns"][0]["high"]) == ("Typed", 99)


def test_other_files_have_their_columns_named(site: Server, visit: Visit) -> None:
    owner, visitor = owner_called(site, "By hand"), visit(site)
    visitor.enter(owner.key)
    visitor.open("/dashboard/datasets/new?kind=table")
    page = visitor.page
    page.locator("input[name=file]").set_input_files(
        file('[{"age": 3, "who": "a"}, {"age": 4, "who": "b"}]', "rows.json")
    )
    page.get_by_label("Names of columns").fill("age\n")
    page.keyboard.press("Tab")
    expect(column(visitor, "age")).to_be_visible()
    visitor.check_accessibility()
    send(visitor)
    assert stored(visitor, owner)["n"] == 2
