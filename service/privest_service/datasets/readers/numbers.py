"""Formats of numbers that are texts with thousands separators, % or currency signs."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

_SPACES = " \u00a0\u202f"
_SIGN = r"([^\d\s+\-.,'’{}eE]|[^\d\s+\-.,'’{}]{2,5})"
"""A sign is no e alone: that would be the exponent's of 1e5, too."""

NUMBER_FORMAT = rf"^({_SIGN} ?)?1[ ,.']?234[.,]5( ?{_SIGN})?$"
"""What a number format looks like: how a file writes one thousand two hundred and thirty-four and a half."""

_PARTS = re.compile(
    rf"(?P<before>{_SIGN})? ?1(?P<between>[ ,.']?)234(?P<point>[.,])5 ?(?P<after>{_SIGN})?", re.ASCII
)
_SEPARATORS = (("", "."), (",", "."), (".", ","), ("", ","), (" ", ","), (" ", "."), ("'", "."))
"""Pairs of what stands between thousands and before decimals, the usual ones first."""

_MOST = 1000
"""Most texts by which formats are proposed."""


@dataclass(frozen=True)
class NumberFormat:
    """How numbers of a column are written.

    Attributes:
        sign: a unit such as % or $, before or after a number, which is left out: 12.5 % is 12.5.
        between: what stands between thousands, if anything does.
        point: what stands before decimals.
    """

    sign: str
    between: str
    point: str

    @classmethod
    def of(cls, text: str) -> "NumberFormat":
        """The format of which a text is the sample.

        Raises:
            ValueError: it is no sample.
        """
        found = _PARTS.fullmatch(text)
        if found is None or (found["before"] and found["after"]) or found["between"] == found["point"]:
            raise ValueError(
                "number_format must be how the file writes 1234.5: 1,234.5 or 1.234,5 or $1,234.5 or 1234.5%"
            )
        return cls(found["before"] or found["after"] or "", found["between"], found["point"])

    @property
    def pattern(self) -> str:
        """What matches a number in this format, for Arrow and for Python."""
        sign, point, space = re.escape(self.sign), re.escape(self.point), f"[{_SPACES}]?"
        between = {"": None, " ": f"[{_SPACES}]", "'": "['’]"}.get(self.between, re.escape(self.between))
        whole = r"[0-9]+" if between is None else rf"([0-9]{{1,3}}({between}[0-9]{{3}})+|[0-9]+)"
        begin = rf"([+-]?{space}({sign}{space})?|{sign}{space}[+-]{space})" if sign else rf"[+-]?{space}"
        end = rf"({space}{sign})?" if sign else ""
        return rf"^{begin}({whole}({point}[0-9]*)?|{point}[0-9]+)([eE][+-]?[0-9]{{1,3}})?{end}$"

    @property
    def removed(self) -> str:
        """What matches all that is no part of the number itself, for Arrow and for Python."""
        parts = [rf"[+'’{_SPACES}]", *(re.escape(part) for part in (self.sign, self.between.strip()) if part)]
        return "|".join(parts)

    def read(self, text: str) -> float | None:
        """The number that a text is in this format; None where it is none."""
        if not re.match(self.pattern, text):
            return None
        return float(re.sub(self.removed, "", text).replace(self.point, "."))


def fitting(texts: Iterable[str]) -> "Counter[str]":
    """The number formats in which most of some texts are numbers, with how many are.

    Of formats that read all of them alike it is the first.
    """
    known = list(dict.fromkeys(text.strip() for text in texts))[:_MOST]
    found, read = Counter[str](), set[tuple[float | None, ...]]()
    for sample in dict.fromkeys(sample for text in known for sample in _samples(text)):
        values = tuple(map(NumberFormat.of(sample).read, known))
        fits = sum(value is not None for value in values)
        if fits and values not in read:
            read.add(values)
            found[sample] = fits
    most = max(found.values(), default=0)
    return Counter({sample: fits for sample, fits in found.items() if fits == most})


def _samples(text: str) -> list[str]:
    """Samples of formats with the sign that a text begins or ends with."""
    bare = text.lstrip("+- ")
    begin, end = (_is_sign(each) for each in (bare[:1], bare[-1:]))
    before, after = (bare[0] if begin else ""), (bare[-1] if end and not begin else "")
    return [f"{before}1{between}234{point}5{after}" for between, point in _SEPARATORS]


def _is_sign(letter: str) -> bool:
    return letter in ("%", "‰") or (bool(letter) and unicodedata.category(letter) == "Sc")
