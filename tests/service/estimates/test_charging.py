"""Questions that are charged in one transaction: each as if it were alone, in their order."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, event, select

from privest_service.database import Database
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset
from privest_service.datasets.terms import Terms
from privest_service.estimates.charging import Rules
from privest_service.estimates.planning import Planner
from privest_service.estimates.questions import Facts, resolve
from privest_service.estimates.reservation import Answer, Asked, Draft, EstimateCommand
from privest_service.estimates.service import Submissions
from privest_service.exports.export import lines
from privest_service.exports.verify import verify
from privest_service.jobs.models import IdempotencyKey, Job, Transition
from privest_service.ledger.models import Entry
from privest_service.ledger.units import Limits
from privest_service.problems import BudgetExceeded, GrantRefuses, IdempotencyKeyReused, NotFound
from privest_service.security.principals import Principal
from testing.server import SIGNER
from testing.world import COST, KIND, TARGET, World, never

pytestmark = pytest.mark.either


def _submissions(database: Database) -> Submissions:
    return Submissions(database, Planner(never), lambda: None, b"", Rules(10_000))


def _asked(database: Database, world: World, key: str, *, epsilon: float = 0.1, reuse: bool = False) -> Asked:
    """A question of the analyst's, ready to be charged."""
    submissions, caller = _submissions(database), Principal("analyst", world.analyst)
    body = {"dataset": {"id": world.dataset}, "privacy": TARGET | {"epsilon": epsilon}, "reuse": reuse}
    ask = submissions.command(caller, KIND, KIND.request.model_validate(body), key)
    with database.read() as session:
        question = resolve(Facts(session, [(caller, ask.request)]), caller, KIND, ask.request)
    return ask, question, Draft.of(question, submissions.planner.plan(question))


def _of(places: int) -> Limits:
    """A budget that covers so many of the usual questions."""
    return Limits("gdp", 1, 1, places * COST.mu_squared, places * COST.slack)


def _faults(database: Database) -> list[str]:
    with database.read(snapshot=True) as session:
        return verify(lines(session), [SIGNER.public_key]).faults


def test_requests_are_looked_at_together_and_each_hears_of_its_own(database: Database) -> None:
    world, other = World.make(database), World.make(database)
    submissions, caller = _submissions(database), Principal("analyst", world.analyst)

    def ask(key: str, dataset: str = world.dataset, **more: Any) -> EstimateCommand:
        body = {"dataset": {"id": dataset}, "privacy": TARGET, **more}
        return submissions.command(caller, KIND, KIND.request.model_validate(body), key)

    charged = submissions.submit(ask("known")).job_id
    asks = [
        ask("new"),
        ask("foreign", other.dataset),
        ask("known"),
        ask("known", reuse=False),
        ask("new too"),
    ]
    question, foreign, known, reused, too = submissions._look_each(asks)
    assert isinstance(question, tuple)
    assert isinstance(too, tuple)
    assert question[0].about == too[0].about
    assert question[0].digest == too[0].digest
    assert isinstance(foreign, NotFound)
    assert known == Answer(charged, reused=False)
    assert isinstance(reused, IdempotencyKeyReused)


def test_a_larger_group_reads_no_more_often(database: Database) -> None:
    said = list[str]()

    def reads(act: Callable[[Any], object], given: Any) -> int:
        said.clear()
        act(given)
        return sum(each.startswith("SELECT") for each in said)

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        said.append(statement)

    submissions, worlds = _submissions(database), [World.make(database) for _ in range(4)]
    asked = [_asked(database, world, "k", reuse=True) for world in worlds]
    event.listen(Engine, "before_cursor_execute", note)
    one, several = asked[:1], asked[1:]
    try:
        looked = [reads(submissions._look_each, [ask for ask, _, _ in group]) for group in (one, several)]
        charged = [reads(submissions._charge_each, group) for group in (one, several)]
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert looked[0] == looked[1] > 0
    assert charged[0] == charged[1] > 0


def test_a_group_is_charged_in_its_order_and_who_is_refused_leaves_no_trace(database: Database) -> None:
    world = World.make(database, _of(3))
    asked = [_asked(database, world, str(each)) for each in range(5)]
    large = _asked(database, world, "large", epsilon=0.9)
    outcomes = _submissions(database)._charge_each([asked[0], large, *asked[1:]])
    assert [type(each) for each in outcomes] == [
        Answer,
        BudgetExceeded,
        Answer,
        Answer,
        *[BudgetExceeded] * 2,
    ]
    with database.read() as session:
        told = session.scalars(select(IdempotencyKey.key).order_by(IdempotencyKey.key)).all()
        assert told == ["0", "1", "2"]
        assert (
            len(session.scalars(select(Job.id)).all()) == len(session.scalars(select(Transition)).all()) == 3
        )
        for account in world.accounts(session):
            assert account.mu_squared_spent == 3 * COST.mu_squared
            entries = select(Entry.job_id).where(Entry.account_id == account.id, Entry.kind == "debit")
            charged = session.scalars(entries.order_by(Entry.seq)).all()
            assert charged == [each.job_id for each in outcomes if isinstance(each, Answer)]
    assert _faults(database) == []


def test_owners_of_one_group_do_not_pay_for_each_other(database: Database) -> None:
    worlds = [World.make(database, _of(places)) for places in (1, 3)]
    order = [(0, "a"), (1, "b"), (0, "c"), (1, "d")]
    outcomes = _submissions(database)._charge_each([_asked(database, worlds[at], key) for at, key in order])
    assert [type(each) for each in outcomes] == [Answer, Answer, BudgetExceeded, Answer]
    with database.read() as session:
        for world, paid in zip(worlds, (1, 2), strict=True):
            assert {each.mu_squared_spent for each in world.accounts(session)} == {paid * COST.mu_squared}
    assert _faults(database) == []


def test_a_key_and_a_question_are_known_within_the_group(database: Database) -> None:
    world = World.make(database)
    first, again = _asked(database, world, "a", reuse=True), _asked(database, world, "a", reuse=True)
    same, anew = _asked(database, world, "b", reuse=True), _asked(database, world, "c")
    other = _asked(database, world, "a", epsilon=0.2)
    outcomes = _submissions(database)._charge_each([first, again, same, anew, other])
    answers = [each for each in outcomes if isinstance(each, Answer)]
    assert [each.job_id == answers[0].job_id for each in answers] == [True, True, True, False]
    assert [each.reused for each in answers] == [False, False, True, False]
    assert isinstance(outcomes[-1], IdempotencyKeyReused)
    with database.read() as session:
        assert world.accounts(session)[0].mu_squared_spent == 2 * COST.mu_squared
    assert _submissions(database)._charge_each([same])[0] == Answer(answers[0].job_id, reused=True)


def test_a_group_of_any_size_is_as_many_statements(database: Database) -> None:
    """Each account is written once, and each table in one statement."""
    world, said = World.make(database), list[str]()
    _submissions(database)._charge_each([_asked(database, world, "before")])
    groups = [[_asked(database, world, f"{size} {each}") for each in range(size)] for size in (1, 8)]

    def count(group: list[Asked]) -> list[str]:
        said.clear()
        assert all(isinstance(each, Answer) for each in _submissions(database)._charge_each(group))
        return list(said)

    def keep(_: Any, __: Any, statement: str, *___: Any) -> None:
        said.append(statement.split("(", maxsplit=1)[0].split(" SET ", maxsplit=1)[0])

    event.listen(database.engine, "before_cursor_execute", keep)
    try:
        one, eight = map(count, groups)
    finally:
        event.remove(database.engine, "before_cursor_execute", keep)
    assert one == eight


def test_a_grant_that_ended_stops_its_own_question_alone(database: Database) -> None:
    world = World.make(database)
    ended, owners = _asked(database, world, "a"), _asked(database, world, "b")
    with database.write() as session:
        dataset = session.get_one(Dataset, world.dataset)
        datasets.put_grant(session, dataset, world.analyst, Limits.none("gdp"), Terms(kinds=("bounds",)))
    ask, question, draft = owners
    theirs = _submissions(database).command(Principal("owner", world.owner), KIND, ask.request, "b")
    outcomes = _submissions(database)._charge_each([ended, (theirs, question, draft)])
    assert [type(each) for each in outcomes] == [GrantRefuses, Answer]


def test_a_heavy_plan_is_cached_by_all_that_it_follows_from(database: Database) -> None:
    _, question, _ = _asked(database, World.make(database), "k")
    (about,) = question.about
    others = (
        replace(about, shape=replace(about.shape, n=about.shape.n + 1)),  # of another part, at a hub
        replace(about, target=replace(about.target, slack_per_mu_squared=1e-9)),  # after a budget was raised
        replace(about, dataset_id="ds_other"),
    )
    assert len({question.name, *(replace(question, about=(other,)).name for other in others)}) == 4
