"""Whether an analyst can tell worlds apart by receipts, refusals, ids and charges of one owner's datasets."""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import httpx
import numpy as np

from audit import served
from audit.faulty import NAMES_EQUALS, NAMES_QUERIES, NAMES_SCOPES
from audit.lines import Finding, Line, Section
from audit.outcomes import masked_job
from audit.transcripts import different
from privest.arrays import Array
from testing.server import Caller, Server, body_of, spd

_RECORDS = 60
_ASKED, _CAP, _DEAR = 0.4, 0.5, 0.6
"""ε of a question, a cap that admits one of them, and ε of a question that the cap refuses by itself."""

_BUDGETS = {"wide": 8.0, "narrow": 0.9, "small": 0.2}
"""The owner's ε: it covers every question, is soon used up, or covers none."""

_RANDOM = re.compile(
    r"\b(?P<id>[a-z]{2,5}_)[0-9a-f]{24}\b"
    r"|(?P<time>\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00))"
    r"|(?P<base64>(?<![\w+/])(?:[\w+/]{86}==|[\w+/]{43}=))"
    r"|(?P<digits>\b[0-9a-f]{16,64}\b)"
)
"""Texts that are random or differ from run to run: ids, times, keys and signatures, digests and salts."""


class Mask:
    """Replaces random texts by their place among those of their kind, in the order in which they came.

    Two texts that are equal stay equal, and two that differ stay different. Numbers stay as they are, so
    that account and sequence numbers are compared; alone the values of an estimate and all of its error are
    taken out.
    """

    def __init__(self) -> None:
        self._places = dict[str, dict[str, int]]()

    def told(self, answer: httpx.Response) -> tuple[int, Any, Any]:
        """Return status, headers and body of an answer; the date is left out.

        The length is left out too where released numbers, which have more digits or fewer, are in the body.
        """
        left_out = {"date"}
        if "json" not in answer.headers.get("content-type", ""):
            body: Any = answer.text
        else:
            body = answer.json()
            if isinstance(body, dict) and body.get("estimate") is not None:
                body = masked_job(body)
                left_out.add("content-length")
        headers = {name: value for name, value in answer.headers.items() if name not in left_out}
        return answer.status_code, self(headers), self(body)

    def __call__(self, value: Any) -> Any:
        """Return a JSON value with its random texts replaced."""
        if isinstance(value, dict):
            return {self(name): self(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self(part) for part in value]
        return _RANDOM.sub(self._place, value) if isinstance(value, str) else value

    def _place(self, found: re.Match[str]) -> str:
        if found.lastgroup == "time":  # two of them may be equal by chance
            return "<time>"
        kind = f"{found['id'] or found.lastgroup} of {len(found[0])}"
        places = self._places.setdefault(kind, {})
        return f"<{kind}, {places.setdefault(found[0], len(places))}>"


def _rows(world: str) -> tuple[Array, Array]:
    """Return the rows of datasets A and B."""
    one = spd(_RECORDS, seed=1)
    other = spd(_RECORDS, seed=2)
    if world == "the same rows":
        return one, one
    if world == "one record apart":
        return one, np.concatenate([other[:1], one[1:]])
    return one, other


WORLDS = ("other rows", "the same rows", "one record apart")


# Questions of an analyst


@dataclass(frozen=True)
class Ask:
    """One question of the case.

    Attributes:
        about: which of the datasets "A" and "B" it is on.
        epsilon: that it asks for, of each dataset.
        wait: whether the request waits for the answer.
        reuse: whether an earlier answer will do.
    """

    about: str
    epsilon: float = _ASKED
    wait: bool = True
    reuse: bool = False

    def __str__(self) -> str:
        return f"{' and '.join(self.about)} at {self.epsilon}"


SEQUENCES: tuple[tuple[Ask, ...], ...] = (
    (Ask("A"), Ask("B"), Ask("AB"), Ask("A", reuse=True), Ask("B", reuse=True)),
    (Ask("AB"), Ask("B", wait=False), Ask("A"), Ask("BA", reuse=True)),
    (Ask("B", _DEAR), Ask("AB", _DEAR), Ask("A"), Ask("B"), Ask("BA"), Ask("A", _DEAR)),
)


@dataclass(frozen=True)
class Case:
    """Limits that an owner sets, and what an analyst asks.

    Attributes:
        capped: which caps are low: of the rows of "A" and "B", of the grants of "a" and "b".
        budget: of the owner.
        composition: of that budget.
        asks: questions, in their order.
    """

    capped: str
    budget: str
    composition: str
    asks: tuple[Ask, ...]

    def __str__(self) -> str:
        """Return a name that no other case has."""
        caps = [f"cap on {name}" if name in "AB" else f"cap of the grant on {name}" for name in self.capped]
        first = f"first {self.asks[0]}" if self.asks else "nothing asked"
        return ", ".join([*caps, f"{self.budget} {self.composition} budget", first])


def _cases(long: bool) -> list[Case]:
    """Return every combination of caps with every sequence, budgets and compositions in turn.

    The quick form has a few of the caps, and each sequence once.
    """
    if long:
        capped = ["".join(each) for size in range(5) for each in itertools.combinations("ABab", size)]
        limits = itertools.cycle(itertools.product(("wide", "narrow"), ("gdp", "basic")))
        every = zip(itertools.product(capped, SEQUENCES), limits, strict=False)
        return [Case(caps, *limit, asks) for (caps, asks), limit in every]
    return [
        Case(capped, "narrow" if capped == "b" else "wide", "gdp", asks)
        for capped, asks in zip(("", "ABab", "b"), SEQUENCES, strict=True)
    ]


class _Scene:
    """An owner with two datasets, and an analyst with a grant on both."""

    def __init__(self, server: Server, case: Case, rows: tuple[Array, Array]) -> None:
        self.owner = server.owner(_BUDGETS[case.budget], 1e-4, case.composition)
        self.analyst = server.analyst()
        self.ids = {name: self.owner.dataset(each) for name, each in zip("AB", rows, strict=True)}
        low = {"epsilon": _CAP, "delta": 1e-5}
        for name, dataset in self.ids.items():
            if name in case.capped:
                _done(self.owner.put(f"/v1/datasets/{dataset}/cap", json=low))
            _done(self.owner.grant(dataset, self.analyst, **low if name.lower() in case.capped else {}))

    def ask(self, ask: Ask, caller: Caller, key: str, what: str = "") -> httpx.Response:
        """Ask for an estimate, or its plan."""
        body = body_of("", ask.epsilon, delta=1e-6, reuse=ask.reuse)
        names = [{"id": self.ids[name]} for name in ask.about]
        body["dataset"] = names if len(names) > 1 else names[0]
        headers = {"Idempotency-Key": key, "Prefer": f"wait={240 if ask.wait else 0}"}
        return caller.post(f"/v1/estimates/frechet-mean{what}", json=body, headers=headers)

    def conversation(
        self, asks: Sequence[Ask], between: Callable[["_Scene"], None] = lambda _: None
    ) -> Iterator[tuple[str, httpx.Response]]:
        """Yield all that the analyst is told, and what it asked; the requests are the same in all worlds.

        Args:
            asks: its questions.
            between: what others do before each of them.
        """
        analyst, jobs = self.analyst, list[str]()
        for place, ask in enumerate(asks):
            between(self)
            yield f"plan of {ask}", self.ask(ask, analyst, "", "/plan")
            asked = self.ask(ask, analyst, f"key {place}")
            yield str(ask), asked
            jobs.append(asked.json().get("id", "job_none"))
            if asked.is_success:
                analyst.ended(jobs[-1])
            for path in ("", "/receipt", "/events"):
                yield f"{path[1:] or 'job'} of {ask}", analyst.get(f"/v1/jobs/{jobs[-1]}{path}")
            yield f"{ask} again", self.ask(ask, analyst, f"key {place}")
        yield from self._looks()
        _done(self.owner.delete(f"/v1/datasets/{self.ids['A']}"))
        yield from self._looks()
        for about in ("A", "B", "AB"):
            yield f"{about} once A is deleted", self.ask(Ask(about), analyst, f"late {about}")
        for job in jobs:
            yield "job once A is deleted", analyst.get(f"/v1/jobs/{job}")

    def _looks(self) -> Iterator[tuple[str, httpx.Response]]:
        for path in ("datasets", "me", "ledger/keys"):
            yield path, self.analyst.get(f"/v1/{path}")
        for name, dataset in self.ids.items():
            yield f"dataset {name}", self.analyst.get(f"/v1/datasets/{dataset}")


def _done(answer: httpx.Response) -> None:
    """Raise RuntimeError unless a request of the scene itself was answered."""
    if not answer.is_success:
        raise RuntimeError(answer.text)


Told = dict[str, list[tuple[str, str]]]
"""What the analyst asked and was told in each case, masked."""


def _told(
    server: Server,
    cases: Sequence[Case],
    rows: tuple[Array, Array],
    between: Callable[[_Scene], None] = lambda _: None,
) -> Told:
    """Play one case after another."""
    found: Told = {}
    for case in cases:
        mask, scene = Mask(), _Scene(server, case, rows)
        said = scene.conversation(case.asks, between)
        found[str(case)] = [(asked, str(mask.told(answer))) for asked, answer in said]
    return found


@dataclass(frozen=True)
class _Apart:
    """What told worlds apart.

    Attributes:
        count: of answers that did.
        compared: how many answers were.
        cases: the first of them in each case, quoted.
    """

    count: int
    compared: int
    cases: list[str]

    def __str__(self) -> str:
        """Return what is written into the report."""
        counted = f"{self.count} of {self.compared} answers differ, in {len(self.cases)} cases"
        return "; ".join([counted, *self.cases[:3]])


def _apart(worlds: Sequence[str], play: Callable[[str], Told]) -> _Apart:
    """Play every world, and compare each with the first."""
    with ThreadPoolExecutor(len(worlds)) as pool:
        first, *others = pool.map(play, worlds)
    cases, count = dict[str, str](), 0
    for world, told in zip(worlds[1:], others, strict=True):
        for case, one in first.items():
            for at, said in different([said for _, said in one], [said for _, said in told[case]]):
                cases.setdefault(case, f"{case}: {one[at][0]} ({world}): {said}")
                count += 1
    return _Apart(count, sum(map(len, first.values())) * len(others), list(cases.values()))


# Lines


def _equal_rows(cases: Sequence[Case], *faults: str, worlds: Sequence[str] = WORLDS) -> _Apart:
    """Play the worlds that differ in what B holds, each on a server of its own."""

    def play(world: str) -> Told:
        with served.alone(*faults) as server:
            return _told(server, cases, _rows(world))

    return _apart(worlds, play)


def _of_equal_rows(long: bool) -> Finding:
    cases = _cases(long)
    apart = _equal_rows(cases)
    seen = _equal_rows([Case("", "wide", "gdp", ())], NAMES_EQUALS, worlds=WORLDS[:2])
    return Finding(
        holds=not apart.count and seen.count > 0,
        claimed="the same answers whether two datasets hold the same rows, all but one of them, or others",
        found=f"of {len(cases)} cases: {apart}",
        power=f"where a dataset's name tells that another holds its rows: {seen.count}",
    )


def _quiet(_: _Scene) -> None:
    """Do nothing between two questions."""


def _busy(scene: _Scene) -> None:
    """Let the owner and another analyst ask, another owner come, and a dataset be there for a while."""
    server, more = scene.owner.server, scene.owner.server.analyst()
    for dataset in scene.ids.values():
        _done(scene.owner.grant(dataset, more))
    for caller, about in itertools.product((scene.owner, more), ("A", "AB")):
        _done(scene.ask(Ask(about, 0.05), caller, f"{about} for {more.id}"))
    _done(scene.owner.delete(f"/v1/datasets/{scene.owner.dataset(spd(20))}"))
    server.owner()


def _others_movements(cases: Sequence[Case], *faults: str) -> _Apart:
    """Play the worlds that differ in what others do, where limits leave room for all of it."""
    between = {"others are quiet": _quiet, "others ask too": _busy}

    def play(world: str) -> Told:
        with served.alone(*faults) as server:
            return _told(server, cases, _rows(WORLDS[0]), between[world])

    return _apart(list(between), play)


def _of_others_movements(long: bool) -> Finding:
    capped = ("", "a", "b", "ab") if long else ("a",)
    cases = [Case(each, "wide", "gdp", asks) for each in capped for asks in SEQUENCES[: 3 if long else 1]]
    apart = _others_movements(cases)
    seen = _others_movements([replace(cases[0], asks=SEQUENCES[0][:1])], NAMES_QUERIES)
    return Finding(
        holds=not apart.count and seen.count > 0,
        claimed="the same answers whatever others ask and do meanwhile, while the limits have room for it",
        found=f"of {len(cases)} cases: {apart}",
        power=f"where a dataset's name tells how often it was asked about: {seen.count}",
    )


def _refusals(*faults: str, capped: Sequence[str] = ("", "A", "B", "AB")) -> dict[str, set[str]]:
    """Return all refusals, by whether the analyst's own cap refuses as well as what else does."""
    found: dict[str, set[str]] = {}
    with served.alone(*faults) as server:
        for rows, budget, own in itertools.product(capped, ("wide", "small"), ("", "ab")):
            scene = _Scene(server, Case(rows + own, budget, "gdp", ()), _rows(WORLDS[0]))
            for about in ("A", "B", "AB", "BA"):
                answer = scene.ask(Ask(about, _DEAR), scene.analyst, f"key {about}")
                if not answer.is_success:
                    which = f"own cap, {len(about)} datasets" if own else "others' limits"
                    found.setdefault(which, set()).add(str(Mask().told(answer)))
    return found


def _of_refusals(long: bool) -> Finding:  # noqa: ARG001 - there is one form
    found = _refusals()
    several = [f"{which}: {' and '.join(sorted(told))}" for which, told in found.items() if len(told) > 1]
    seen = sum(len(told) > 1 for told in _refusals(NAMES_SCOPES, capped=("", "A")).values())
    counted = f"{len(several)} of {len(found)} kinds of refusals have several forms"
    return Finding(
        holds=len(found) == 3 and not several and seen > 0,
        claimed="a refusal names the analyst's own cap whenever it refuses, or else nothing, byte for byte",
        found="; ".join([counted, *several]),
        power=f"where a refusal names the limit that was reached: {seen} have",
    )


SECTION = Section(
    "What analysts can tell of an owner's books",
    """\
An analyst with grants on two datasets of one owner plans, asks, asks again and reads all there is to read:
jobs, charges, receipts, events, refusals, lists. Low caps are put on the rows and the grants in every
combination. Random texts are replaced by their place in the order in which they first came, so that only
their being equal shows; account and sequence numbers are compared as they are. Each world is played on a
server of its own.""",
    (
        Line("equal-rows", "whether two datasets of an owner hold the same rows", _of_equal_rows),
        Line("others-movements", "whether others move the same owner's accounts", _of_others_movements),
        Line("refusals", "which of an owner's limits refuses", _of_refusals),
    ),
)
