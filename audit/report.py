"""Runs lines of the audit, and writes what they found into docs/audit.md."""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from traceback import print_exc

from audit import (
    access,
    books,
    canaries,
    durations,
    estimates,
    floats,
    fuzzing,
    mechanisms,
    mutants,
    outcomes,
    retold,
    samplers,
    sensitivity,
    sites,
    transcripts,
)
from audit.bounds import CONFIDENCE
from audit.lines import Finding, Line, Section

SECTIONS: tuple[Section, ...] = (
    mechanisms.SECTION,
    estimates.SECTION,
    canaries.SECTION,
    estimates.OVER_HTTP,
    outcomes.SECTION,
    transcripts.SECTION,
    books.SECTION,
    durations.SECTION,
    access.SECTION,
    sites.SECTION,
    fuzzing.SECTION,
    retold.SECTION,
    sensitivity.SECTION,
    floats.SECTION,
    samplers.SECTION,
    mutants.SECTION,
)

PAGE = Path("docs/audit.md")

_ABOUT = f"""\
# Audit

What follows was found by `python -m audit --long`, which attacks what the service promises and writes this
page. `python -m audit NAME` makes one attack again, alone. With `--long` it writes its line here anew. A line
holds if the attack proves less than what is claimed, *and* proves more where the claim is broken on purpose:
an attack that sees nothing proves nothing. All statistical bounds of one run of each line together are wrong
with a probability of at most {1 - CONFIDENCE:.1%} (Clopper and Pearson, with Bonferroni's correction). `make
test-all` makes every attack in a quick form, `make test` one of each kind, and `make prove` all in this one.
"""


def lines() -> dict[str, Line]:
    """Every line by its name."""
    return {line.name: line for section in SECTIONS for line in section.lines}


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes attacks; exits with 1 if one was successful, or saw nothing where there was something to see."""
    parser = argparse.ArgumentParser(prog="python -m audit", description="Attack what the service promises.")
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
    chosen = [known[name] for name in given.names] or [
        line for line in known.values() if line.quick or given.long
    ]
    holds = True
    for name, finding in _findings(chosen, given.long):
        holds &= finding.holds
        if given.long:  # at once, as the whole takes hours
            rows = _rows(PAGE.read_text()) if PAGE.exists() else {}
            PAGE.write_text(page(rows | {name: _row(known[name], finding)}))
    return 0 if holds else 1


def _findings(chosen: Iterable[Line], long: bool) -> Iterator[tuple[str, Finding]]:
    for line in chosen:
        begun = time.monotonic()
        try:
            finding = line.run(long)
        except Exception as error:
            print_exc()
            finding = Finding(holds=False, claimed="", found=f"broke off: {type(error).__name__}", power="")
        took = time.monotonic() - begun
        word = "holds" if finding.holds else "BROKEN"
        print(f"{line.name}: {word} ({took:.1f} s)", flush=True)
        print(
            f"  claimed: {finding.claimed}\n  found:   {finding.found}\n  power:   {finding.power}",
            flush=True,
        )
        yield line.name, finding


def _rows(written: str) -> dict[str, str]:
    """The rows of a report's page, by the names of their lines."""
    return {row.split("`")[1]: row for row in written.splitlines() if row.startswith("| `")}


def _row(line: Line, finding: Finding) -> str:
    made, mark = f"{datetime.now(UTC):%Y-%m-%d}", "✓" if finding.holds else "✗"
    cells = (f"`{line.name}`", line.about, finding.claimed, finding.found, finding.power, made, mark)
    told = " | ".join(cell.replace("|", "\\|") for cell in cells)
    return f"| {told} |"


def page(rows: dict[str, str]) -> str:
    """docs/audit.md, with what was found of each line."""
    told = [_ABOUT]
    for section in SECTIONS:
        told += [f"\n## {section.title}\n", section.about.strip(), ""]
        told += ["| line | attacked | claimed | found | power | made | |", f"|{' --- |' * 7}"]
        told += [
            rows.get(line.name, f"| `{line.name}` | {line.about} |  |  |  |  |  |") for line in section.lines
        ]
    return "\n".join(told) + "\n"
