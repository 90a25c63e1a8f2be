"""Checks of receipts and of jobs: each is for the debits that are there, and for all of them."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field

from privest_service.exports.chains import Chain
from privest_service.exports.keys import Trusted
from privest_service.exports.lines import EntryLine, JobLine
from privest_service.ledger.mechanisms import Asker
from privest_service.ledger.receipts import Receipt, Statement, signed_by

_UNCHARGED = ("requested", "denied", "expired", "withdrawn")
"""States of jobs that nobody was charged for."""

Place = tuple[int, int, str]
"""Where an entry stands: its account, its number, its hash."""


@dataclass
class Debits:
    """The entries that are there, which of them are debits of which job, and who asked for it."""

    places: set[Place] = field(default_factory=set[Place])
    told: dict[str, Asker] = field(default_factory=dict[str, Asker])
    """Who asked, as each mechanism tells it."""
    askers: defaultdict[str, set[Asker]] = field(default_factory=lambda: defaultdict(set))
    """Who asked for a job, as its debits are sealed with it."""
    of_job: defaultdict[str, set[Place]] = field(default_factory=lambda: defaultdict(set))

    def add(self, line: EntryLine) -> None:
        """Take an entry."""
        place = (line.account, line.seq, line.hash)
        self.places.add(place)
        if line.kind == "debit" and line.job is not None:
            self.of_job[line.job].add(place)
            self.askers[line.job].add(self.told.get(line.mechanism or "", (None, None)))


@dataclass
class Receipts:
    """Receipts against the entries that are there.

    Attributes:
        debits: of all entries.
        keys: that may sign.
        by_job: of each job that has an owner's receipt, the commitments to its entries.
        by_answer: by the digest of the receipt on a whole job on several datasets, the parts of it.
        statements: the digest of each job's owner's receipt.
        plans: the digest of the plan that each of these is on.
        approvals: of each of these, the decisions by which it was approved.
        analysts: jobs that have an analyst's receipt.
        wholes: owners' receipts on jobs that are not charged themselves.
    """

    debits: Debits
    keys: dict[str, Trusted]
    by_job: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    by_answer: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    statements: dict[str, str] = field(default_factory=dict[str, str])
    plans: dict[str, str] = field(default_factory=dict[str, str])
    approvals: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    analysts: set[str] = field(default_factory=set[str])
    wholes: dict[str, Receipt] = field(default_factory=dict[str, Receipt])

    def faults_of(self, receipt: Receipt) -> Iterator[str]:
        """Take a receipt of the ledger, and tell what is wrong with it."""
        told = receipt.statement
        owners = bool(told.entries)
        if told.job in (self.statements if owners else self.analysts):
            yield f"job {told.job} has two receipts for {'its owner' if owners else 'an analyst'}"
        yield from self._signature(receipt)
        if not owners:
            self.analysts.add(told.job)
            yield from self._commitments(receipt)
            return
        self.statements[told.job], self.plans[told.job] = _sha256(told), told.plan
        self.approvals[told.job] = told.approvals
        if told.job not in self.debits.of_job:
            self.wholes[told.job] = receipt  # its parts may follow
            return
        self.by_job[told.job] = {each.commitment for each in told.entries if each.commitment is not None}
        self.by_answer[told.answer].add(told.job)
        yield from self._named(receipt, self.debits.of_job[told.job])
        yield from self._asked(told, [told.job])

    def faults_of_wholes(self) -> Iterator[str]:
        """Tell what is wrong with receipts on jobs on several datasets, once all of their parts were read."""
        for receipt in self.wholes.values():
            yield from self._whole(receipt)

    def faults_of_shown(self, receipt: Receipt) -> Iterator[str]:
        """Tell what is wrong with a receipt that somebody kept, or with the ledger, which must have it."""
        told = receipt.statement
        yield from self._signature(receipt)
        if not told.entries:
            yield from self._commitments(receipt)
        elif told.job not in self.debits.of_job:
            yield from self._whole(receipt)
        else:
            yield from self._named(receipt, self.debits.of_job[told.job])
            if self.statements.get(told.job) != _sha256(told):
                yield f"the receipt of {told.job} that was kept is not the one that is there"

    def _signature(self, receipt: Receipt) -> Iterator[str]:
        job, at = receipt.statement.job, receipt.statement.at
        if not any(key.holds(at) and signed_by(receipt, key.public_key) for key in self.keys.values()):
            yield f"the receipt of {job} has no true signature of a key that was given"

    def _named(self, receipt: Receipt, debits: set[Place]) -> Iterator[str]:
        job, named = receipt.statement.job, [(e.account, e.seq, e.hash) for e in receipt.statement.entries]
        if not self.debits.places.issuperset(named):
            yield f"the receipt of {job} is for an entry that is not there"
        elif sorted(named) != sorted(debits):
            yield f"the receipt of {job} does not name the debits of its job, each once"

    def _asked(self, told: Statement, charged: Iterable[str]) -> Iterator[str]:
        """Tell whether a receipt is of somebody else than the charges of its job, or of its parts, are."""
        who = {(told.person, told.through)}
        if any(self.debits.askers.get(job, who) != who for job in charged):
            yield f"the receipt of {told.job} does not name the person for whom its job was charged"

    def _whole(self, receipt: Receipt) -> Iterator[str]:
        # Each part's receipt has the digest of this one in place of an answer.
        parts = self.by_answer.get(_sha256(receipt), set())
        yield from self._named(receipt, {place for part in parts for place in self.debits.of_job[part]})
        yield from self._asked(receipt.statement, parts)

    def _commitments(self, receipt: Receipt) -> Iterator[str]:
        job, commitments = receipt.statement.job, set(receipt.statement.commitments)
        if job in self.by_job:
            fits, parts = commitments == self.by_job[job], {job}
        else:  # of one on several owners' datasets: this ledger may be that of some of them
            parts = self.by_answer.get(_sha256(receipt), set())
            opened = {commitment for part in parts for commitment in self.by_job[part]}
            fits = bool(opened) and opened <= commitments
        if not fits:
            yield f"the analyst's receipt of {job} does not commit to the entries that are there"
        yield from self._asked(receipt.statement, parts)


def _sha256(told: Receipt | Statement) -> str:
    return hashlib.sha256(told.model_dump_json().encode()).hexdigest()


@dataclass
class Jobs:
    """Checks the states of jobs against their charges and receipts."""

    receipts: Receipts
    states: dict[str, str] = field(default_factory=dict[str, str])
    plans: dict[str, str] = field(default_factory=dict[str, str])
    of_analysts: set[str] = field(default_factory=set[str])
    """Jobs that an analyst asked for, not their owner."""
    unapproved: set[str] = field(default_factory=set[str])
    """Jobs that had to be approved, and were not."""
    approvals: dict[str, str] = field(default_factory=dict[str, str])
    """The id of the decision by which a job was approved, by job."""
    askers: dict[str, Asker] = field(default_factory=dict[str, Asker])
    """Who asked, by job."""

    def take(self, line: JobLine) -> Iterator[str]:
        """Take a job's state, and tell if it was told before."""
        if line.job in self.states:
            yield f"job {line.job} is told twice"
        self.states[line.job], self.askers[line.job] = line.state, (line.person, line.through)
        if line.plan is not None:
            self.plans[line.job] = line.plan
        if line.asked_by_owner is False:
            self.of_analysts.add(line.job)
        if line.approval is not None:
            self.approvals[line.job] = line.approval
        elif line.requested:
            self.unapproved.add(line.job)

    def faults_of(self, chain: Chain, denied: Set[str]) -> Iterator[str]:
        """Tell where a job's state does not fit its charge: a voided job is not charged, and any other is.

        Args:
            chain: of charges.
            denied: jobs that acts of their owners denied.
        """
        for job in chain.open:
            if (state := self.states.get(job)) in (None, "voided", *_UNCHARGED):
                yield f"job {job} is charged and {state or 'is not there'}"
            if job in self.unapproved:
                yield f"job {job} is charged without the approval that it needed"
            if job in denied:
                yield f"job {job} is charged, and an act of its owner denied it"
        for job in chain.voided:
            if (state := self.states.get(job)) != "voided" or job in self.receipts.statements:
                yield f"what job {job} cost was given back, and it is {state or 'not there'}"

    def faults(self) -> Iterator[str]:
        """A job has a receipt if it was committed. Of one on several datasets only the parts are told."""
        there = self.receipts
        for job, asker in self.askers.items():
            if there.debits.askers.get(job, {asker}) != {asker}:
                yield f"job {job} is told to be of somebody else than the person for whom it was charged"
        for job, state in self.states.items():
            if (state == "committed") != (job in there.statements):
                yield f"job {job} is {state} and has {'a' if job in there.statements else 'no'} receipt"
            if (plan := self.plans.get(job)) and there.plans.get(job, plan) != plan:
                yield f"the plan of job {job} is not the one that its receipt was signed for"
            if state == "committed" and there.approvals.get(job, []) != [
                approval for approval in [self.approvals.get(job)] if approval is not None
            ]:
                yield f"the receipt of job {job} does not name the approval that is told of it"
            # Receipts of before there were commitments have none for analysts beside them.
            if job in self.of_analysts and there.by_job.get(job) and job not in there.analysts:
                yield f"job {job} was not asked for by its owner, and has no analyst's receipt"
