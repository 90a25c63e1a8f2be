"""Checks of what tables say now against what acts said: names, grants, reasons of decisions, and caps."""

import json
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from math import inf
from typing import Any

from privest_service.exports.chains import Chain
from privest_service.exports.lines import ActLine, GrantLine, JobLine, Line, NameLine
from privest_service.ledger.units import Limits

_NAMED = ("owner.created", "analyst.created", "dataset.made")
"""Acts whose subject is called by a name from then on."""

_GRANTED = ("grant.made", "grant.changed")
"""Acts that tell all terms of a grant."""

_DECIDED = ("question.approved", "question.denied")

_NO_TERMS = ("analyst", "analyst_name", "epsilon", "delta")
"""Details of a grant's act that are no terms of it."""

Cap = tuple[float | None, float | None]
"""ε and δ of a cap, as acts tell them; None of what has no limit."""

_NO_CAP: Cap = (None, None)


@dataclass(frozen=True)
class _CapTold:
    """A cap as an act told it.

    Attributes:
        seq: the act's place in its chain.
        cap: from then on.
        former: before that; None where the act does not tell it.
    """

    seq: int
    cap: Cap
    former: Cap | None


@dataclass
class Tables:
    """What acts said, and what tables say now, as far as both were read.

    Attributes:
        names: of owners, analysts and datasets, as acts told them, by id.
        grants: the terms of each by dataset and analyst; None of one that was revoked.
        caps: by owner, dataset and analyst; of a dataset's own cap the analyst is empty.
        reasons: of decisions by job, and whether the decision has it: None where the act does not tell.
        of_before: chains that begin with what was known before there was a record.
    """

    names: dict[str, str | None] = field(default_factory=dict[str, str | None])
    grants: dict[tuple[str, str], dict[str, Any] | None] = field(
        default_factory=dict[tuple[str, str], dict[str, Any] | None]
    )
    caps: defaultdict[tuple[str, str, str], list[_CapTold]] = field(default_factory=lambda: defaultdict(list))
    reasons: dict[str, tuple[str | None, bool | None]] = field(
        default_factory=dict[str, tuple[str | None, bool | None]]
    )
    of_before: set[str] = field(default_factory=set[str])
    _told: list[NameLine | GrantLine | JobLine] = field(default_factory=list[NameLine | GrantLine | JobLine])

    def take(self, line: Line) -> None:
        """Note what the next act of a chain says, or what a table says now; other lines tell neither.

        What a job has of this is its owner's reason for a decision, which exports of before do not tell.
        """
        if isinstance(line, ActLine):
            self._take_act(line)
        elif isinstance(line, NameLine | GrantLine) or (
            isinstance(line, JobLine) and "reason" in line.model_fields_set
        ):
            self._told.append(line)

    def _take_act(self, act: ActLine) -> None:
        if act.known_since is not None:
            self.of_before.add(act.chain)
        subject, details = act.subject or "", details_of(act)
        analyst = str(details.get("analyst", ""))
        if act.kind in _NAMED and "name" in details:
            self.names[subject] = details["name"]
        elif "analyst_name" in details:
            self.names[analyst] = details["analyst_name"]
        if act.kind in _GRANTED:
            terms = {name: value for name, value in details.items() if name not in _NO_TERMS}
            self.grants[subject, analyst] = _comparable(terms)
        elif act.kind == "grant.revoked":
            self.grants[subject, analyst] = None
        elif act.kind in _DECIDED:
            self.reasons[subject] = act.reason, details.get("reasoned")
        if act.kind in ("grant.made", "cap.set") and "epsilon" in details and act.known_since is None:
            cap, former = (details["epsilon"], details.get("delta")), None
            if "epsilon_before" in details:
                former = (details["epsilon_before"], details.get("delta_before"))
            self.caps[act.chain, subject, analyst].append(_CapTold(act.seq, cap, former))

    def faults(self) -> Iterator[str]:
        """Tell what tables say now, and acts said otherwise."""
        for line in self._told:
            if isinstance(line, NameLine):
                if (said := self.names.get(line.id, line.name)) != line.name:
                    yield f"{line.id} is called {_quoted(line.name)}, and acts say {_quoted(said)}"
            elif isinstance(line, GrantLine):
                yield from self._faults_of_grant(line)
            else:
                yield from self._faults_of_reason(line)
        there = {(line.dataset, line.analyst) for line in self._told if isinstance(line, GrantLine)}
        if any(isinstance(line, NameLine) for line in self._told):  # exports of before have neither
            for dataset, analyst in self.grants.keys() - there:
                yield f"the grant of {analyst} on {dataset}, of which acts tell, is not there"

    def unsealed(self) -> Iterator[str]:
        """Tell what tables say and no act does: there is nothing to hold it against."""
        for line in self._told:
            if isinstance(line, NameLine) and line.name is not None and line.id not in self.names:
                yield f"the name of {line.id}"
            elif isinstance(line, GrantLine) and (line.dataset, line.analyst) not in self.grants:
                yield f"the terms of the grant of {line.analyst} on {line.dataset}"
            elif isinstance(line, JobLine) and line.reason is not None and line.job not in self.reasons:
                yield f"the reason of the decision on job {line.job}"

    def _faults_of_grant(self, line: GrantLine) -> Iterator[str]:
        if (line.dataset, line.analyst) not in self.grants:
            return
        said, now = self.grants[line.dataset, line.analyst], _comparable(line.terms)
        grant = f"the grant of {line.analyst} on {line.dataset}"
        if (said is None) != line.revoked:
            as_acts = "was revoked by an act" if said is None else "was not revoked by any act"
            yield f"{grant} {'is revoked' if line.revoked else 'is in force'}, and {as_acts} of the owner"
        said = now if said is None else said
        for name in sorted(now.keys() | said.keys()):
            if now.get(name) != said.get(name):
                told, once = _quoted(now.get(name)), _quoted(said.get(name))
                yield f"the {name} of {grant} is {told}, and the owner's acts say {once}"

    def _faults_of_reason(self, line: JobLine) -> Iterator[str]:
        if line.job not in self.reasons:
            return
        reason, reasoned = self.reasons[line.job]
        said = reason if reasoned or (reasoned is None and line.reason is not None) else None
        if line.reason != said:
            told, once = _quoted(line.reason), _quoted(said)
            yield f"the reason of the decision on job {line.job} is {told}, and its act says {once}"

    def faults_of_caps(self, accounts: Iterable[Chain], recorded: Container[str]) -> Iterator[str]:
        """Tell where the limits that were entered for a cap are not those that acts tell, in their order.

        Only owners of whom there is a record of acts are `recorded`.
        """
        capped = [each for each in accounts if each.stated.scope != "owner" and each.stated.owner in recorded]
        capped.sort(key=_of_cap)
        for (owner, subject, analyst), same in groupby(capped, key=lambda each: _of_cap(each)[:3]):
            windows = list(same)
            datasets = {dataset for each in windows for dataset in each.stated.datasets}
            acts = [told for one in datasets for told in self.caps.get((owner, one, analyst), [])]
            acts.sort(key=lambda told: told.seq)
            name = f"the cap of {analyst or 'everybody'} on {subject}"
            entered = _changes([_told_of(limits, each) for each in windows for limits in each.entered])
            if owner in self.of_before:
                # What was known before is told otherwise, or not at all: the latest word alone is held.
                whole = not acts or acts[-1].cap == entered[-1]
            else:
                whole = _changes([told.cap for told in acts]) == entered
                yield from _faults_of_former(owner, name, acts)
            if not whole:
                yield f"acts of {owner} do not tell of the limits that were entered for {name}"


def details_of(act: ActLine) -> dict[str, Any]:
    """What an act tells of besides; nothing where that is no JSON object."""
    try:
        found = json.loads(act.details)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _faults_of_former(owner: str, name: str, acts: list[_CapTold]) -> Iterator[str]:
    present = _NO_CAP
    for told in acts:
        if told.former not in (None, present):
            yield f"act {told.seq} of {owner} tells of another limit before it than there was for {name}"
        present = told.cap


def _of_cap(chain: Chain) -> tuple[str, str, str, int]:
    """Return whose cap it is, on what, for whom, in which window; rows are known by their oldest dataset."""
    stated = chain.stated
    return stated.owner, next(iter(stated.datasets), ""), stated.analyst or "", stated.window


def _told_of(limits: Mapping[str, int], chain: Chain) -> Cap:
    try:
        told = Limits(chain.stated.composition, **limits).told()
    except OverflowError:  # a number that no entry can have
        return inf, inf
    return told["epsilon"], told["delta"]


def _changes(caps: list[Cap]) -> list[Cap]:
    """Caps without those that change nothing; before the first there was none."""
    return [cap for cap, _ in groupby([_NO_CAP, *caps])]


def _comparable(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Terms of a grant with its end as a moment, which may be written in several ways."""
    found = dict(terms)
    with suppress(ValueError):  # whatever else is told in its place is compared as it is
        if isinstance(found.get("expires"), str):
            found["expires"] = datetime.fromisoformat(found["expires"])
    return found


def _quoted(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return "empty" if value is None else f"“{value}”" if isinstance(value, str) else json.dumps(value)
