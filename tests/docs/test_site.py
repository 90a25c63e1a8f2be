"""The site: built without a warning or a network, no dead link, every public name in the reference."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

import griffe
import pytest
import yaml

from testing import ROOT
from testing.server import HANG_GUARD

Name = griffe.Object | griffe.Alias
NOWHERE = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")


class Page(HTMLParser):
    """What a page has anchors for, where it leads, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors, self.links, self.loaded = {""}, list[str](), list[str]()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.add(given.get("id") or "")
        if tag == "a" and (link := given.get("href")):
            self.links.append(link)
        if tag in ("script", "img", "iframe", "source") and (link := given.get("src")):
            self.loaded.append(link)
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loaded.append(given.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """The pages of the site."""
    place = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "zensical.toml", place)
    for source in ("core", "client"):
        (place / source).symlink_to(ROOT / source)
    tools = Path(sys.executable).parent
    for command in (
        [sys.executable, str(ROOT / "scripts/site/write_pages.py"), ".pages"],
        [str(tools / "zensical"), "build", "--strict"],
    ):
        built = subprocess.run(
            command,
            cwd=place,
            env=os.environ | NOWHERE,
            capture_output=True,
            text=True,
            timeout=HANG_GUARD,
            check=False,
        )
        assert built.returncode == 0, built.stdout + built.stderr
    return {path: Page(path) for path in (place / "site").rglob("*.html") if path.name != "404.html"}


@pytest.mark.costly
def test_no_link_is_dead(site: dict[Path, Page]) -> None:
    dead = []
    for path, page in site.items():
        for link in page.links + page.loaded:
            if urlparse(link).scheme:
                continue
            target, anchor = urldefrag(link)
            meant = (path.parent / unquote(target)).resolve() if target else path
            if not meant.is_file() or (meant in site and unquote(anchor) not in site[meant].anchors):
                dead.append((path.name, link))
    assert not dead
    assert sum(len(page.links) for page in site.values()) > 1000


def test_no_link_is_dead_in_the_repository_either() -> None:
    """Where pages are read as files, before any site is made of them."""
    pages = [*ROOT.glob("*.md"), ROOT / "client/README.md", *(ROOT / "docs").rglob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#\s]+)", page.read_text())]
    assert not [
        (page, link)
        for page, link in links
        if not urlparse(link).scheme and not (page.parent / link).exists()
    ]
    assert len(links) > 80


def test_every_test_that_a_page_names_is_there() -> None:
    """A test is found by its path, or by its name where the page gives no path."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests/docs/test_documents.py"]
    named = {
        (page.name, name)
        for page in pages
        for name in re.findall(r"(?:tests/[\w/]+/)?\btest_\w+\.py\b", page.read_text())
    }
    tests = list((ROOT / "tests").rglob("test_*.py"))
    there = {test.name for test in tests} | {str(test.relative_to(ROOT)) for test in tests}
    assert len(named) > 40
    assert not sorted((page, name) for page, name in named if name not in there)


@pytest.mark.costly
def test_nothing_is_loaded_from_elsewhere(site: dict[Path, Page]) -> None:
    assert not [link for page in site.values() for link in page.loaded if urlparse(link).netloc]


@pytest.mark.costly
def test_every_call_and_every_schema_is_in_the_reference(site: dict[Path, Page]) -> None:
    (page,) = (page for path, page in site.items() if path.name == "http.html")
    api = yaml.load((ROOT / "openapi.yaml").read_text(), yaml.CSafeLoader)
    calls = {call["operationId"] for methods in api["paths"].values() for call in methods.values()}
    schemas = {f"schema-{name.lower()}" for name in api["components"]["schemas"]}
    assert calls | schemas <= page.anchors


def callables(members: Iterable[Name]) -> Iterator[Name]:
    """Modules, classes, functions, methods and properties without an underscore; classes tell of fields."""
    for each in members:
        kinds = each.is_module, each.is_class, each.is_function, "property" in each.labels
        if not each.name.startswith("_") and any(kinds):
            yield each


def of_core(inside: griffe.Object) -> Iterator[Name]:
    """All that is defined in it."""
    for each in callables(member for member in inside.members.values() if not member.is_alias):
        yield each
        if isinstance(each, griffe.Module | griffe.Class):
            yield from of_core(each)


def of_client(client: griffe.Module) -> Iterator[Name]:
    """What the client exports, and the methods of that."""
    for name in [*(client.exports or ()), "client.Datasets", "async_client.AsyncDatasets"]:
        each = client[str(name)]
        yield each
        if each.is_class:
            yield from callables(each.all_members.values())


def told(name: Name) -> bool:
    """Whether it says what it is, or what it overrides does."""
    if name.docstring:
        return True
    if not isinstance(name.parent, griffe.Class):
        return False
    return any(name.name in base.members and base.members[name.name].docstring for base in name.parent.mro())


@pytest.mark.costly
def test_every_public_name_is_documented_and_in_the_reference(site: dict[Path, Page]) -> None:
    anchors = set[str]().union(*(page.anchors for page in site.values()))
    core, papers, client = (
        griffe.load(package, search_paths=[ROOT / place])
        for package, place in (("privest", "core"), ("privest_papers", "core"), ("privest_client", "client"))
    )
    assert isinstance(core, griffe.Module)
    assert isinstance(papers, griffe.Module)
    assert isinstance(client, griffe.Module)
    core_names = [*of_core(core), *of_core(papers)]
    names = [*core_names, *of_client(client)]
    assert len(core_names) > 600
    assert not [name.path for name in names if not told(name)]
    # What overrides without a word stands where the contract is.
    assert not [name.path for name in names if name.docstring and name.path not in anchors]
