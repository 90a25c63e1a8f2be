"""Checks of chains of acts, one of each owner and one of the service."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from privest_service.exports.chains import Chain, Links, faults_of_link
from privest_service.exports.keys import Trusted
from privest_service.exports.lines import ActLine, Heads
from privest_service.exports.tables import details_of


@dataclass
class Acts:
    """Chains of acts, as far as they were read.

    Attributes:
        keys: that may sign.
        published: places that chains had reached at given moments, as kept heads tell.
    """

    keys: dict[str, Trusted]
    published: Mapping[str | int, list[tuple[int, datetime]]]
    chains: dict[str, Links] = field(default_factory=dict[str, Links])
    approved: dict[str, str] = field(default_factory=dict[str, str])
    """Questions that an owner approved, each with what was told of the decision."""
    denied: set[str] = field(default_factory=set[str])
    """Questions that an owner denied, which nothing can approve afterwards."""
    limits: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    """How often acts of an owner set the limits of its budget in a window, the first time of all left out."""
    divided: set[str] = field(default_factory=set[str])
    """Owners who promised a budget for all of its windows together, which set those of the first anew."""
    _places: set[tuple[str, int, str]] = field(default_factory=set[tuple[str, int, str]])

    def faults_of(self, line: ActLine) -> Iterator[str]:
        """Take the next act, and tell what is wrong with it."""
        chain = self.chains.setdefault(line.chain, Links(published=self.published.get(line.chain, [])))
        for fault in faults_of_link(chain, line, self.keys):
            yield f"acts of {line.chain}: {fault}"
        self._places.add((line.chain, line.seq, line.hash))
        if line.kind == "question.approved" and line.subject is not None:
            self.approved[line.subject] = line.details
        if line.kind == "question.denied" and line.subject is not None:
            self.denied.add(line.subject)
        if line.kind in ("budget.renewed", "budget.raised"):
            window = details_of(line).get("window")
            self.limits[line.chain, window if isinstance(window, int) else 0] += 1
        elif line.kind == "budget.rules" and details_of(line).get("promise") == "lifetime":
            self.divided.add(line.chain)

    def faults_of_windows(self, accounts: Iterable[Chain]) -> Iterator[str]:
        """Tell which windows and limits of owners' budgets no act tells of, and the other way round."""
        found = {
            (each.stated.owner, each.stated.window): len(each.entered)
            for each in accounts
            if each.stated.scope == "owner" and each.stated.owner in self.chains
        }
        for owner, window in sorted(found.keys() | self.limits.keys()):
            first = 1 + (owner in self.divided) if window == 1 else 0
            if found.get((owner, window), 0) != first + self.limits[owner, window]:
                yield f"acts of {owner} do not tell of the limits that the budget has in window {window}"

    def faults_of_approvals(self, told: Mapping[str, str]) -> Iterator[str]:
        """Tell which jobs are told to be approved and have no such act, and which have one and are not told.

        Each job is told with the id of the decision.
        """
        for job, decision in told.items():
            if f'"decision":"{decision}"' not in self.approved.get(job, ""):
                yield f"job {job} is told to be approved, and no act of its owner says so"
        for job in self.approved.keys() - told.keys():
            yield f"job {job} was approved by an act of its owner, and is not told to be"

    def faults_of_heads(self, signed: Heads) -> Iterator[str]:
        """Tell which chains do not go through their heads."""
        for head in signed.acts or ():
            if (head.chain, head.seq, head.hash) not in self._places:
                yield f"acts of {head.chain} do not go through their head at {head.seq}"

    def faults_of_ends(self, told: Sequence[Heads], owners: set[str]) -> Iterator[str]:
        """Tell whether the heads are the ends of all chains, and which owner has none.

        Ledgers of before there was a record have neither acts nor heads of them.
        """
        if len(told) == 1:
            ends = sorted((chain, links.seq, links.head) for chain, links in self.chains.items())
            if ends != sorted((head.chain, head.seq, head.hash) for head in told[0].acts or ()):
                yield "the heads are not the ends of all chains of acts"
            if told[0].acts is not None:
                for owner in sorted(owners - self.chains.keys()):
                    yield f"there are no acts of {owner}"
