"""Who has how much of the queue."""

import pytest
from inside import World, claimed

from privest_service.database import Database
from privest_service.problems import Unavailable


def refusal(world: World, database: Database, room: int) -> str:
    """Why one more job of this world's analyst is not taken."""
    with pytest.raises(Unavailable) as refused:
        world.submit(database, "one more", room=room)
    return str(refused.value.detail)


@pytest.mark.parametrize(("room", "share"), [(4, 2), (12, 3)])
def test_one_caller_leaves_room_in_the_queue_for_others(database: Database, room: int, share: int) -> None:
    greedy, other = World.make(database), World.make(database)
    first, *_ = [greedy.submit(database, f"key {number}", room=room) for number in range(share)]
    assert refusal(greedy, database, room).startswith("too many jobs of yours wait")
    assert greedy.submit(database, "key 0", room=room) == first  # what is known needs no room
    assert other.submit(database, "key", room=room)
    assert claimed(database) == first
    assert greedy.submit(database, "one more", room=room)


def test_a_queue_of_one_takes_one(database: Database) -> None:
    world = World.make(database)
    world.submit(database, "key", room=1)
    assert refusal(world, database, 1).startswith("too many jobs wait")


def test_whoever_has_fewest_jobs_under_way_is_next(database: Database) -> None:
    greedy, other = World.make(database), World.make(database)
    many = [greedy.submit(database, f"key {number}") for number in range(3)]
    few = [other.submit(database, f"key {number}") for number in range(2)]
    assert [claimed(database) for _ in range(5)] == [many[0], few[0], many[1], few[1], many[2]]
    assert claimed(database) is None
