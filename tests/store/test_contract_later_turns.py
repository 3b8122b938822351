"""What holds of a task after its first turn, and of a key while its task lives (DESIGN 4, 7)."""

from typing import Any

from app.protocol import TaskState
from app.store.base import Lease, Purged, RetentionPolicy
from tests.store.conftest import Clock
from tests.store.values import WORKER, Turn, a_task, begin, new_task, new_turn

DEAD = Lease("worker-1", 0.0)


async def test_a_key_is_not_purged_while_its_task_is_there(store: Any, clock: Clock) -> None:
    turn = await begin(store, key="k" * 16)
    await turn.say(TaskState.INPUT_REQUIRED)
    clock.advance(300)
    assert await store.purge(RetentionPolicy(terminal_age=50, key_age=200)) == Purged(0, 0)
    replay = await store.create_task(new_task(a_task(history=turn.task.history), key="k" * 16))
    assert replay.task_id == turn.task.id


async def test_a_later_turn_is_taken_over_at_its_own_beginning(store: Any) -> None:
    first = await begin(store, lease=DEAD)
    (stranded,) = await store.stranded_turns(10)
    again = Turn(store, await store.take_over(stranded, WORKER))
    assert again.head == first.head
    await again.say(TaskState.INPUT_REQUIRED)
    await store.release_lease(again.task.id, again.epoch)
    second = await store.begin_turn(new_turn(again.task.id, lease=DEAD))
    assert (second.attempt, second.first_seq) == (1, 3)
    (stranded,) = await store.stranded_turns(10)
    assert stranded.attempt == 1
    taken = await store.take_over(stranded, WORKER)
    assert (taken.attempt, taken.first_seq, taken.head) == (2, 3, 3)
