"""The last release, as git has it: unpacked and installed beside this version."""

import io
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
from dataclasses import dataclass
from pathlib import Path

from testing import ROOT

_PROGRAM = """#!{python}
import sys
from privest_service.cli import main

if __name__ == "__main__":
    sys.exit(main())
"""


@dataclass(frozen=True)
class Release:
    """A version that has a number, and the commit that gave it its date in the changelog."""

    version: str
    commit: str

    @property
    def tables(self) -> str:
        """Its newest revision of the database's tables."""
        listed = _git("ls-tree", "--name-only", self.commit, "migrations/versions/").decode().split()
        return max(re.findall(r"/(\d{4})_", " ".join(listed)))

    def install(self, directory: Path) -> Path:
        """Its program, in an environment of its own: its code, over the libraries of this environment."""
        archive = _git("archive", self.commit, "core", "service", "migrations")
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(directory, filter="data")
        venv.create(directory / "environment", symlinks=True)
        python = directory / "environment" / "bin" / "python"
        within = f"python{sys.version_info.major}.{sys.version_info.minor}"
        found = directory / "environment" / "lib" / within / "site-packages" / "release.pth"
        # This version is not found from there: another such file tells its place, and counts only here.
        paths = [directory / "core", directory / "service", sysconfig.get_path("purelib")]
        found.write_text("".join(f"{path}\n" for path in paths))
        program = python.with_name("privest")
        program.write_text(_PROGRAM.format(python=python))
        program.chmod(0o755)
        return program


def last_release() -> Release | None:
    """The newest release that is not this very commit; None where git does not know it (a shallow clone)."""
    try:
        if _git("rev-parse", "--is-shallow-repository").strip() == b"true":
            return None
        dated = (
            _git("log", "--format=%H", "-G", r"^## \[[0-9]", "HEAD", "--", "CHANGELOG.md").decode().split()
        )
        for commit in dated:
            changes = _git("show", "--format=", commit, "--", "CHANGELOG.md").decode()
            versions = re.findall(r"^\+## \[(\d[\d.]*)\] - ", changes, re.MULTILINE)
            if versions and commit != _git("rev-parse", "HEAD").decode().strip():
                return Release(versions[0], commit)
    except (OSError, subprocess.CalledProcessError):
        pass
    return None


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout  # noqa: S607
