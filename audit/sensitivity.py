"""How far one record moves a clipped sum: a search over records and points, for every statistic there is."""

import re
from collections.abc import Iterator
from functools import partial

from audit.lines import Finding, Line, Section
from privest.privacy.clipped_sums import Statistic
from testing.neighbours import CASES

_LEAST = 0.9
"""Share of the diameter that some pair must reach. Otherwise noise is larger than privacy needs."""


def _search(kind: type[Statistic], long: bool) -> Finding:
    cases = [case for case in CASES if type(case.statistic) is kind]
    shares, holds = list[float](), True
    for case in cases:
        found = case.widest(long=long)
        shares.append(found / case.statistic.diameter(case.clip))
        holds = case.declared(_LEAST) < found <= case.declared()
        if not holds:  # further searches would say no more
            break
    return Finding(
        holds=holds,
        claimed=f"no two records are further apart than the diameter, and some are {_LEAST:.0%} of it",
        found=f"{min(shares):.4f} to {max(shares):.4f} of it, by {len(shares)} searches",
        power=f"declared a tenth smaller: at least {min(shares) / _LEAST:.4f} of it",
    )


def _lines() -> Iterator[Line]:
    for kind in dict.fromkeys(type(case.statistic) for case in CASES):
        name = re.sub(r"(?<=.)([A-Z])", r"-\1", kind.__name__).lower()
        yield Line(f"diameter-{name}", f"how far one record moves `{kind.__name__}`", partial(_search, kind))


SECTION = Section(
    "How far one record moves a sum",
    """\
Every statistic that a gate may sum, at clips that plans have. The search walks uphill in both records and in
the point at which they are seen, all three free, from many places; records begin opposite every other time.
A diameter that it passes is a breach, and one that it does not come near is noise for nothing.""",
    tuple(_lines()),
)
