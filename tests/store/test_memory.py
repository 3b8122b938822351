"""What only the memory store has to do: let go by itself, and keep its indexes true."""

from typing import Any

import pytest

from app.protocol import Owner, TaskState
from app.protocol.errors import UnavailableError
from app.store.base import Busy, Claimed, KeyClaimed, Lease, NewTurn, Replay
from app.store.memory import MemoryTaskStore
from tests.store.conftest import Clock
from tests.store.values import WORKER, a_message, a_task, begin, chunk, ended, new_task, new_turn

KEY = "0123456789abcdef"


def a_store(clock: Clock, **options: Any) -> MemoryTaskStore:
    return MemoryTaskStore(clock=clock, monotonic=clock.monotonic, **options)


async def test_a_tenant_of_whom_only_expired_keys_are_left_keeps_nobody_out(clock: Clock) -> None:
    store = a_store(clock, max_tenants=1, key_ttl=60)
    first = store.for_owner(Owner("a"))
    turn = await begin(first, key=KEY)
    await first.delete(turn.task.id)
    with pytest.raises(UnavailableError):
        await begin(store.for_owner(Owner("b")))
    clock.advance(61)
    await begin(store.for_owner(Owner("b")))


@pytest.mark.parametrize("key", [None, KEY])
async def test_a_tenant_of_whom_only_expired_tasks_are_left_keeps_nobody_out(clock: Clock, key: str | None) -> None:
    store = a_store(clock, max_tenants=1, terminal_ttl=60)
    await ended(store.for_owner(Owner("a")))
    clock.advance(61)
    await begin(store.for_owner(Owner("b")), key=key)


async def test_a_refused_tenant_leaves_nothing_behind(clock: Clock) -> None:
    store = a_store(clock, max_tenants=1)
    kept = store.for_owner(Owner("a"))
    turn = await begin(kept)
    for number in range(5):
        with pytest.raises(UnavailableError):
            await begin(store.for_owner(Owner(f"b{number}")), key=KEY)
        with pytest.raises(UnavailableError):
            await store.for_owner(Owner(f"b{number}")).claim_idempotency_key(KEY, "m", "t")
    await kept.delete(turn.task.id)
    await begin(store.for_owner(Owner("c")), key=KEY)


async def test_subjects_of_one_tenant_share_its_place(clock: Clock) -> None:
    store = a_store(clock, max_tenants=1)
    for number in range(20):
        await begin(store.for_owner(Owner("acme", f"s{number}")))


async def test_a_released_key_makes_room_in_the_index(clock: Clock) -> None:
    store = a_store(clock, max_keys=1)
    await store.claim_idempotency_key(KEY, "m", "t")
    with pytest.raises(UnavailableError):
        await store.claim_idempotency_key(KEY + "2", "m", "t")
    await store.release_idempotency_key(KEY)
    assert await store.claim_idempotency_key(KEY + "2", "m", "t") == KeyClaimed()


async def test_a_full_index_answers_the_keys_it_holds(clock: Clock) -> None:
    store = a_store(clock, max_keys=1)
    turn = await begin(store, key=KEY)
    message = turn.task.history[0]
    assert await store.create_task(new_task(a_task(history=[message]), key=KEY)) == Replay(turn.task.id, 1)


async def test_a_turn_refused_by_a_full_index_was_not_begun(clock: Clock) -> None:
    store = a_store(clock, max_keys=1)
    turn = await begin(store, key=KEY)
    await turn.say(TaskState.INPUT_REQUIRED)
    await store.release_lease(turn.task.id, turn.epoch)
    before = await store.snapshot(turn.task.id)
    with pytest.raises(UnavailableError):
        await store.begin_turn(new_turn(turn.task.id, key=KEY + "2"))
    assert await store.snapshot(turn.task.id) == before
    assert isinstance(await store.begin_turn(new_turn(turn.task.id)), Claimed)


async def test_expired_keys_leave_however_many_there_are(clock: Clock) -> None:
    store = a_store(clock, max_keys=1_000, key_ttl=60)
    for number in range(1_000):
        await store.claim_idempotency_key(f"{KEY}-{number}", "m-1", "t-1")
    clock.advance(61)
    # Some may still lie in the index; none may answer.
    assert await store.claim_idempotency_key(f"{KEY}-999", "m-2", "t-2") == KeyClaimed()
    for number in range(999):
        assert await store.claim_idempotency_key(f"{KEY}-{number}", "m-2", "t-2") == KeyClaimed()


async def test_expired_keys_of_others_in_front_hide_no_room(clock: Clock) -> None:
    store = a_store(clock, max_keys=40, key_ttl=60)
    for tenant in ("a", "b"):
        for number in range(40):
            await store.for_owner(Owner(tenant)).claim_idempotency_key(f"{KEY}-{number}", "m", "t")
    clock.advance(61)
    assert await store.for_owner(Owner("b")).claim_idempotency_key(KEY, "m", "t") == KeyClaimed()


async def test_a_key_past_its_time_begins_a_new_turn(clock: Clock) -> None:
    store = a_store(clock, key_ttl=60)
    turn = await begin(store, key=KEY)
    await turn.say(TaskState.INPUT_REQUIRED)
    await store.release_lease(turn.task.id, turn.epoch)
    clock.advance(61)
    assert isinstance(await store.begin_turn(new_turn(turn.task.id, key=KEY)), Claimed)


async def test_a_lease_runs_out_by_the_stores_clock(clock: Clock) -> None:
    store = a_store(clock)
    turn = await begin(store)
    clock.advance(WORKER.ttl - 1)
    assert list(await store.stranded_turns(10)) == []
    assert (await store.renew_leases({turn.task.id: turn.epoch}, WORKER)).lost == frozenset()
    clock.advance(WORKER.ttl - 1)
    assert await store.begin_turn(new_turn(turn.task.id)) == Busy()
    clock.advance(2)
    (stranded,) = await store.stranded_turns(10)
    assert stranded.task_id == turn.task.id
    assert not (await store.snapshot(turn.task.id)).running  # type: ignore[union-attr]
    assert isinstance(await store.begin_turn(new_turn(turn.task.id)), Claimed)
    assert await store.take_over(stranded, WORKER) is None


async def test_stranded_turns_come_oldest_lease_first(clock: Clock) -> None:
    store = a_store(clock)
    later = await begin(store, lease=Lease("w", 20))
    sooner = await begin(store, lease=Lease("w", 10))
    never = await begin(store, lease=None)
    clock.advance(30)
    found = [turn.task_id for turn in await store.stranded_turns(10)]
    assert found == [never.task.id, sooner.task.id, later.task.id]


async def test_eviction_takes_what_ended_first_and_leaves_the_key(clock: Clock) -> None:
    store = a_store(clock, max_tasks=1)
    turn = await begin(store, key=KEY)
    await turn.say(TaskState.COMPLETED)
    await begin(store)
    assert await store.get(turn.task.id) is None
    message = turn.task.history[0]
    retry = NewTurn(turn.task.id, message, key=new_task(turn.task, key=KEY).key, lease=WORKER)
    assert await store.begin_turn(retry) == Replay(turn.task.id, 1)


async def test_a_task_that_finds_no_room_is_not_half_there(clock: Clock) -> None:
    store = a_store(clock, max_tasks=1)
    kept = await begin(store)
    task = a_task()
    for attempt in (store.save, store.insert_if_absent):
        with pytest.raises(UnavailableError):
            await attempt(task)
    assert await store.get(task.id) is None
    assert await store.count() == 1
    await kept.commit(chunk(kept.task, "still running"))
    await kept.say(TaskState.COMPLETED)
    assert await store.insert_if_absent(task)


async def test_writing_to_a_task_again_keeps_its_first_end(clock: Clock) -> None:
    store = a_store(clock, terminal_ttl=60)
    turn = await ended(store)
    clock.advance(50)
    await store.save(turn.task.model_copy(update={"history": [*turn.task.history, a_message("late")]}))
    clock.advance(11)
    await begin(store)
    assert await store.get(turn.task.id) is None
