"""Writes the pages of the site into one folder: those of docs/, and those made of other files."""

import re
import shutil
import sys
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

import http_reference
import notebook_page

ROOT = Path(__file__).parents[2]

MADE = {
    "index.md": "README.md",
    "reference/client.md": "client/README.md",
    "reference/http.md": "openapi.yaml",
    "table.md": "examples/table.ipynb",
    "notebook.md": "examples/notebook.ipynb",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
}
"""Pages, and the files of the project that they are made of."""

PLACES = {source: page for page, source in MADE.items()}

_CLIENT = """
::: privest_client
    options: {inherited_members: true, show_submodules: false}

::: privest_client.client.Datasets

::: privest_client.async_client.AsyncDatasets

::: privest_client.client.Published

::: privest_client.async_client.AsyncPublished
"""

_EXAMPLES = ROOT / "examples"

_LINK = re.compile(r"(\]\()(?!\w+:|#|<)([^)#\s]*)((?:#[^)\s]*)?\))")


def write(place: Path) -> None:
    """Write the pages, and the pictures, examples and licence that they lead to.

    Args:
        place: the folder; what it held is removed.
    """
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(ROOT / "docs", place)
    examples = (file for ending in ("*.py", "*.yml", "*.yaml") for file in _EXAMPLES.glob(f"**/{ending}"))
    for file in (ROOT / "LICENSE", *(file for file in examples if ".venv" not in file.parts)):
        _put(place / file.relative_to(ROOT), file.read_bytes())
    for page, source in MADE.items():
        text = (ROOT / source).read_text()
        if source.endswith(".ipynb"):
            text, pictures = notebook_page.page(text, page.removesuffix(".md"))
            for name, content in pictures.items():
                _put(place / "examples" / name, content)
        elif source.endswith(".yaml"):
            text = http_reference.page(text)
        elif page == "reference/client.md":
            text += _CLIENT
        _put(place / page, text.encode())
    for file in place.rglob("*.md"):
        page = file.relative_to(place).as_posix()
        source = MADE.get(page, f"docs/{page}")
        if source != "openapi.yaml":
            file.write_text(_linked(file.read_text(), page, source))


def _put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _linked(text: str, page: str, source: str) -> str:
    """The page's text, whose links between files of the project are links between pages."""

    def placed(found: re.Match[str]) -> str:
        before, target, after = found.groups()
        meant = normpath(PurePosixPath(source).parent / target)
        place = PLACES.get(meant, meant.removeprefix("docs/"))
        return f"{before}{relpath(place, PurePosixPath(page).parent)}{after}"

    return _LINK.sub(placed, text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
