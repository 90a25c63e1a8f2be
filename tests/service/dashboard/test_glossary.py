"""Words of the glossary are explained on the pages that use them."""

import re

from privest_service.dashboard.glossary import GLOSSARY
from privest_service.dashboard.page import STATIC


def test_every_term_is_explained_where_it_is_used() -> None:
    templates = STATIC.with_name("templates").glob("*.html")
    asked = {term for page in templates for term in re.findall(r'help\("(\w+)"', page.read_text())}
    assert asked == set(GLOSSARY)
