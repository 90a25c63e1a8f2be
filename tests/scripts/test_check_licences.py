"""What `scripts/check-licences` reads of a package's metadata, and what it refuses."""

import importlib.metadata
from collections.abc import Callable
from email.message import Message
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "check-licences"
_spec = spec_from_loader("check_licences", SourceFileLoader("check_licences", str(SCRIPT)))
assert _spec
assert _spec.loader
script = module_from_spec(_spec)
_spec.loader.exec_module(script)
covered: Callable[[str], bool] = script.covered


def package(**fields: str) -> Message:
    """The metadata of a package that says this of its licence."""
    told = Message()
    for name, value in fields.items():
        told[name.replace("_", "-")] = value
    return told


@pytest.mark.parametrize(
    ("said", "goes_with"),
    [
        (package(License_Expression="MIT"), True),
        (package(License_Expression="BSD-3-Clause AND 0BSD AND Zlib"), True),
        (package(License_Expression="GPL-3.0-only OR MIT"), True),
        (package(License_Expression="LGPL-3.0-only"), True),
        (package(Classifier="License :: OSI Approved :: MIT License"), True),
        (package(License="Apache 2.0"), True),
        (package(License_Expression="GPL-3.0-or-later"), False),
        (package(License_Expression="MIT AND GPL-3.0-only"), False),
        (package(License_Expression="MIT AND (AGPL-3.0-only OR GPL-2.0-only)"), False),
        (package(License_Expression="no licence that SPDX knows"), False),
        (package(Classifier="License :: OSI Approved :: GNU General Public License v3 (GPLv3)"), False),
        (package(License="GPL", License_Expression=""), False),
        (package(License="Copyright (c) all rights reserved"), False),
        (package(), False),
    ],
)
def test_a_licence_is_read_and_judged(said: Message, goes_with: bool) -> None:
    assert covered(script.licence("some-package", said)) == goes_with


def test_of_two_classifiers_both_must_do() -> None:
    told = package(Classifier="License :: OSI Approved :: MIT License")
    told["Classifier"] = "License :: OSI Approved :: GNU General Public License v3 (GPLv3)"
    assert not covered(script.licence("some-package", told))


def test_one_gpl_package_in_the_lock_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def metadata(name: str) -> importlib.metadata.PackageMetadata:
        gpl = package(License_Expression="GPL-3.0-only")
        return gpl if name == "zict" else importlib.metadata.metadata(name)  # type: ignore[return-value]

    monkeypatch.setattr(script, "metadata", metadata)
    assert script.main() == 1
    assert "zict: GPL-3.0-only" in capsys.readouterr().out  # Dask's, of an extra: three packages down


def test_tools_of_developers_are_not_looked_at() -> None:
    lock = {
        "package": [
            {
                "name": "privest",
                "dependencies": [{"name": "numpy"}],
                "dev-dependencies": {"dev": [{"name": "x"}]},
            },
            {"name": "privest-client", "optional-dependencies": {"more": [{"name": "y", "extra": ["z"]}]}},
            {"name": "numpy"},
            {"name": "x"},
            {"name": "y", "optional-dependencies": {"z": [{"name": "w"}]}},
            {"name": "w", "dependencies": [{"name": "v", "marker": "sys_platform == 'none'"}]},
            {"name": "v"},
        ]
    }
    assert list(script.packages(lock)) == ["numpy", "w", "y"]
