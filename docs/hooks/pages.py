"""What the site shows besides the files in docs/: made when it is built, and linked to as on GitHub."""

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

import http_reference
import notebook_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

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
"""

_LINK = re.compile(r"(\]\()(?!\w+:|#|<)([^)#\s]*)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and the examples and the licence as files."""
    for page, source in MADE.items():
        text = (ROOT / source).read_text()
        if source.endswith(".yaml"):
            text = http_reference.page(text)
        elif source.endswith(".ipynb"):
            text, pictures = notebook_page.page(text, page.removesuffix(".md"))
            for name, content in pictures.items():
                files.append(File.generated(config, f"examples/{name}", content=content))
        elif page == "reference/client.md":
            text += _CLIENT
        files.append(File.generated(config, page, content=text))
    for file in (ROOT / "LICENSE", *sorted((ROOT / "examples").glob("*.py"))):
        name = str(file.relative_to(ROOT))
        files.append(File.generated(config, name, abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links between files of the project, as links between pages."""
    here = page.file.src_uri
    source = MADE.get(here, f"docs/{here}")
    if source == "openapi.yaml":
        return markdown

    def placed(found: re.Match[str]) -> str:
        before, target, after = found.groups()
        meant = normpath(PurePosixPath(source).parent / target)
        place = PLACES.get(meant, meant.removeprefix("docs/"))
        return f"{before}{relpath(place, PurePosixPath(here).parent)}{after}"

    return _LINK.sub(placed, markdown)
