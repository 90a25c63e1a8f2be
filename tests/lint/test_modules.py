"""A test of a module is found by its name: tests/<package>/<folders>/test_<module>.py."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "core": "core/privest",
    "papers": "core/privest_papers",
    "service": "service/privest_service",
    "client": "client/privest_client",
}
WITHOUT = ROOT / "tests/lint/modules_without_tests.txt"
"""Modules whose tests have other names still. Whoever moves one gives its test its name, and takes it off."""


def without_a_test() -> set[str]:
    """Modules that have no test module of their name, by their paths."""
    found = set[str]()
    for name, package in PACKAGES.items():
        for module in (ROOT / package).rglob("*.py"):
            if module.stem.startswith("__"):
                continue
            folder = ROOT / "tests" / name / module.parent.relative_to(ROOT / package)
            if not (folder / f"test_{module.stem}.py").exists():
                found.add(module.relative_to(ROOT).as_posix())
    return found


def test_a_new_module_has_a_test_of_its_name_and_the_list_of_others_only_shrinks() -> None:
    listed = WITHOUT.read_text().split()
    assert listed == sorted(set(listed)), "one path a line, in order"
    found = without_a_test()
    assert found - set(listed) == set(), "write tests/…/test_<module>.py for these modules"
    assert set(listed) - found == set(), f"take these off {WITHOUT.name}: they have their tests, or are gone"
