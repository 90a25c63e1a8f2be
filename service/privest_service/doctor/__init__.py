"""`privest doctor`: looks at all that a service needs, changes nothing, and says what to do.

Nothing that it prints is a secret, and nothing depends on a row. Passwords in addresses are not shown.
"""

from collections.abc import Mapping
from typing import get_args

from privest_service.doctor.away import certificates, database, platform
from privest_service.doctor.finding import Finding, State
from privest_service.doctor.here import disk, machine, secrets, settings, versions

__all__ = ["Finding", "examine", "report"]


def examine(environment: Mapping[str, str]) -> list[Finding]:
    """Look at every part. Where the settings cannot be read, they alone are told of."""
    found, read = settings(environment)
    if read is None:
        return [*versions(), *found]
    return [
        *versions(),
        *found,
        *secrets(read, environment),
        *disk(read),
        *machine(read),
        *database(read),
        *platform(read),
        *certificates(read, environment),
    ]


def report(found: list[Finding]) -> str:
    """Return all findings in words, a line for each and one for what to do about it."""
    lines = list[str]()
    for each in found:
        lines.append(f"{each.state:<5} {each.part:<12} {each.what}")
        if each.do:
            lines.append(f"{'':<18} → {each.do}")
    count = {state: sum(each.state == state for each in found) for state in get_args(State)}
    return "\n".join([*lines, "", f"{count['ok']} well, {count['look']} to look at, {count['fix']} to mend"])
