"""What a release costs a hub: for each site one transaction of three statements, and a bell for who waits."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import event

from privest_service.database import Database
from privest_service.ledger.units import Limits
from privest_service.security.principals import Principal
from privest_service.sites import hub
from privest_service.sites.bells import Bells
from testing.stepped_sites import LEASE, Together


@contextmanager
def counted(database: Database) -> Iterator[Counter[str]]:
    """The first words of all statements of transactions that may write, and the commits."""
    made = Counter[str]()

    def statement(_: Any, __: Any, text: str, *___: Any) -> None:
        made[text.split(maxsplit=1)[0]] += 1

    def commit(_: Any) -> None:
        made["COMMIT"] += 1

    hears = (("before_cursor_execute", statement), ("commit", commit))
    for name, heard in hears:
        event.listen(database.engine, name, heard)
    try:
        yield made
    finally:
        for name, heard in hears:
            event.remove(database.engine, name, heard)


def test_an_answer_is_one_transaction_of_three_statements_and_the_last_one_brings_the_sum(
    tmp_path: Path,
) -> None:
    them = Together(tmp_path, Limits.of(1.0, 1e-5, "gdp"))
    parts = [part.id for part in them.parts(them.ask(0))]
    callers = [Principal("owner", owner) for owner in them.owners]
    run = them.database.run
    for caller, part in zip(callers, parts, strict=True):
        run(lambda session, caller=caller, part=part: hub.accept(session, caller, part, LEASE))
    for number in range(2):
        numbers = np.full(2, float(number)).tobytes()
        for place, (caller, part) in enumerate(zip(callers, parts, strict=True)):
            for again in (False, True):
                with counted(them.database) as made:
                    taken = run(
                        lambda session, who=caller, part=part, number=number, numbers=numbers: (
                            hub.take_answer(session, who, part, number, "gradient", numbers)
                        )
                    )
                assert made == Counter(BEGIN=1, SELECT=2, INSERT=int(not again), COMMIT=1) - Counter()
                assert (taken.parts, taken.over) == (parts, False)
                assert (taken.pooled is not None) == (place == 1)


def test_what_a_bell_tells_is_heard_by_all_who_listen_in_the_order_of_ringing() -> None:
    async def heard() -> list[Any]:
        bells = Bells()
        bells.ring("part", (0, b"nobody listened"))
        with bells.listening("part") as first, bells.listening("part") as second:
            bells.ring("another")
            bells.ring("part", (1, b"sum"))
            bells.ring("part")
            return [await each(10.0) for each in (first, first, second, second)] + [await first(0.0)]

    assert asyncio.run(heard()) == [(1, b"sum"), None, (1, b"sum"), None, None]
