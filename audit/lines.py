"""A line of the audit: what is attacked, and what was found."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Finding:
    """What one run of a line found.

    Attributes:
        holds: whether the claim does, and the attack would have seen it broken.
        claimed: what is promised.
        found: by the attack.
        power: what the same attack finds where the claim is broken on purpose.
    """

    holds: bool
    claimed: str
    found: str
    power: str


@dataclass(frozen=True)
class Line:
    """One attack.

    Attributes:
        name: by which it is run alone, `python -m audit NAME`.
        about: what is attacked and how, for people.
        run: makes the attack, the long one if it is told so.
        quick: whether it has a quick form; one without is made where it is named, and in the long report.
    """

    name: str
    about: str
    run: Callable[[bool], Finding]
    quick: bool = True

    @cached_property
    def in_short(self) -> Finding:
        """What the quick form found, which is made once: not for code with a fault in it."""
        return self.run(False)


@dataclass(frozen=True)
class Section:
    """Lines that attack the same thing.

    Attributes:
        title: of the section.
        about: what they have in common, in Markdown.
        lines: each with a name of its own.
    """

    title: str
    about: str
    lines: tuple[Line, ...]
