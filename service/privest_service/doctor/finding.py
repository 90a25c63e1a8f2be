"""What one look found: well, worth a look, or to be mended."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "look", "fix"]
"""`fix`: the service does not run so, or not safely. `look`: it runs, and somebody should know."""


@dataclass(frozen=True)
class Finding:
    """What was found of a part, and what to do about it."""

    part: str
    state: State
    what: str
    do: str = ""
