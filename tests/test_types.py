"""The code beside the product is typed too; `make check` looks at what is shipped.

A wrong type here fails the test that runs the line: it takes a minute to say so without one.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHIPPED = ["core", "service", "client"]


@pytest.mark.prove
@pytest.mark.long
def test_all_that_is_not_shipped_has_types() -> None:
    folders = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pyright"]["include"]
    assert folders[: len(SHIPPED)] == SHIPPED
    assert f"pyright {' '.join(SHIPPED)}\n" in (ROOT / "Makefile").read_text()
    found = subprocess.run(
        [sys.executable, "-m", "pyright", *folders[len(SHIPPED) :]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout
