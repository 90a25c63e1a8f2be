"""Words of the glossary are explained on the pages that use them."""

import re

from privest.estimators.registry import ESTIMATORS
from privest_service.dashboard.glossary import GLOSSARY
from privest_service.dashboard.page import STATIC

PAGES = {page.name: page.read_text() for page in STATIC.with_name("templates").glob("*.html")}


def test_every_term_is_explained_where_it_is_used() -> None:
    asked = {term for page in PAGES.values() for term in re.findall(r'help\("(\w+)"', page)}
    assert asked | set(ESTIMATORS) == set(GLOSSARY)


def test_every_estimate_is_explained_on_the_pages_of_one() -> None:
    for name, kind in {
        "what_if": "asked",
        "decision": "asked.kind",
        **dict.fromkeys(("entry", "question", "answer"), "job.kind"),
    }.items():
        assert f"terms.help({kind}, at)" in PAGES[f"{name}.html"], name
    told = {GLOSSARY[name] for name in ESTIMATORS}
    assert told == {(each.title, each.plain_words) for each in ESTIMATORS.values()}
    for _, words in told:
        assert words.endswith(".")
