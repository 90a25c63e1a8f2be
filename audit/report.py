"""Runs lines of the audit, and writes what they found into docs/audit.md."""

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from audit import (
    access,
    canaries,
    durations,
    estimates,
    floats,
    mechanisms,
    mutants,
    outcomes,
    over_http,
    retold,
    samplers,
    sensitivity,
    transcripts,
)
from audit.bounds import CONFIDENCE
from audit.lines import Finding, Line, Section

SECTIONS: tuple[Section, ...] = (
    mechanisms.SECTION,
    estimates.SECTION,
    canaries.SECTION,
    over_http.SECTION,
    outcomes.SECTION,
    transcripts.SECTION,
    durations.SECTION,
    access.SECTION,
    retold.SECTION,
    sensitivity.SECTION,
    floats.SECTION,
    samplers.SECTION,
    mutants.SECTION,
)

PAGE = Path("docs/audit.md")

_ABOUT = f"""\
# Audit

What follows was found by `privest audit --long`, which attacks what the service promises and writes this
page; `privest audit NAME` makes one attack again, alone. A line holds if the attack proves less than what is
claimed, *and* proves more where the claim is broken on purpose: an attack that sees nothing proves nothing.
All statistical bounds together are wrong with a probability of at most {1 - CONFIDENCE:.1%} (Clopper and
Pearson, with Bonferroni's correction). `make test` makes every attack in a quick form, and `make prove` in
this one.
"""


def lines() -> dict[str, Line]:
    """Every line by its name."""
    return {line.name: line for section in SECTIONS for line in section.lines}


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes attacks; exits with 1 if one was successful, or saw nothing where there was something to see."""
    parser = argparse.ArgumentParser(prog="privest audit", description="Attack what the service promises.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of lines; all by default")
    parser.add_argument("--long", action="store_true", help="with many more runs")
    parser.add_argument("--list", action="store_true", help="say which lines there are")
    given = parser.parse_args(arguments)
    known = lines()
    if unknown := [name for name in given.names if name not in known]:
        print(f"no such line: {', '.join(unknown)}; --list names them", file=sys.stderr)
        return 2
    if given.list:
        for line in known.values():
            print(f"{line.name}: {line.about}")
        return 0
    every = [line for line in known.values() if line.quick or given.long]
    found = dict(_findings([known[name] for name in given.names] or every, given.long))
    if given.long and not given.names:
        PAGE.write_text(page(found))
        print(f"written: {PAGE}")
    return 0 if all(finding.holds for finding in found.values()) else 1


def _findings(chosen: Iterable[Line], long: bool) -> Iterator[tuple[str, Finding]]:
    for line in chosen:
        begun = time.monotonic()
        finding = line.run(long)
        took = time.monotonic() - begun
        word = "holds" if finding.holds else "BROKEN"
        print(f"{line.name}: {word} ({took:.1f} s)", flush=True)
        print(
            f"  claimed: {finding.claimed}\n  found:   {finding.found}\n  power:   {finding.power}",
            flush=True,
        )
        yield line.name, finding


def page(found: dict[str, Finding]) -> str:
    """docs/audit.md."""
    told = [_ABOUT, f"Made on {datetime.now(UTC):%Y-%m-%d}, on {os.cpu_count()} cores."]
    for section in SECTIONS:
        told += [f"\n## {section.title}\n", section.about.strip(), ""]
        told += ["| line | attacked | claimed | found | power | |", "| --- | --- | --- | --- | --- | --- |"]
        for line in section.lines:
            it = found[line.name]
            cells = (f"`{line.name}`", line.about, it.claimed, it.found, it.power, "✓" if it.holds else "✗")
            told.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(told) + "\n"
