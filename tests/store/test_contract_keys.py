"""Idempotency keys (DESIGN 6): of racing claims one wins, and a key outlives its task."""

import asyncio
from typing import Any

import pytest

from app.protocol import Owner, TaskState
from app.protocol.errors import UnavailableError
from app.protocol.requests import ListTasksRequest
from app.store.base import Busy, Claimed, Conflict, IdempotencyKey, KeyClaimed, NewTask, NewTurn, NotFound, Replay
from app.store.memory import MemoryTaskStore
from tests.store.conftest import Clock
from tests.store.values import WORKER, a_message, a_task, begin, new_task, new_turn

KEY = "0123456789abcdef"


async def test_a_claim_is_replayed_to_its_message_and_a_conflict_to_any_other(store: Any) -> None:
    assert store.supports_idempotency()
    assert await store.claim_idempotency_key(KEY, "m-1", "t-1") == KeyClaimed()
    assert await store.claim_idempotency_key(KEY, "m-1", "t-2") == Replay("t-1", 1)
    assert await store.claim_idempotency_key(KEY, "m-2", "t-1") == Conflict()


async def test_a_released_key_is_free(store: Any) -> None:
    await store.claim_idempotency_key(KEY, "m-1", "t-1")
    await store.release_idempotency_key(KEY)
    await store.release_idempotency_key(KEY)
    assert await store.claim_idempotency_key(KEY, "m-2", "t-2") == KeyClaimed()


async def test_of_racing_claims_of_one_key_one_wins(store: Any) -> None:
    outcomes = await asyncio.gather(*(store.claim_idempotency_key(KEY, "m-1", f"t-{number}") for number in range(32)))
    assert outcomes.count(KeyClaimed()) == 1
    replays = [outcome for outcome in outcomes if isinstance(outcome, Replay)]
    assert len(replays) == 31
    assert len({replay.task_id for replay in replays}) == 1


async def test_of_racing_sends_with_one_key_one_creates_a_task(store: Any) -> None:
    message = a_message()
    other = a_message()
    sends = [a_task(history=[message if number % 2 else other]) for number in range(32)]
    outcomes = await asyncio.gather(*(store.create_task(new_task(task, key=KEY)) for task in sends))
    (claimed,) = [outcome for outcome in outcomes if isinstance(outcome, Claimed)]
    replays = [outcome for outcome in outcomes if isinstance(outcome, Replay)]
    assert replays == [Replay(claimed.task.id, 1)] * 15
    assert outcomes.count(Conflict()) == 16
    assert await store.count() == 1


async def test_different_keys_at_once_do_not_hinder_each_other(store: Any) -> None:
    outcomes = await asyncio.gather(*(store.create_task(new_task(key=f"{KEY}-{number}")) for number in range(32)))
    assert all(isinstance(outcome, Claimed) for outcome in outcomes)
    assert await store.count() == 32


async def test_a_key_stands_for_a_turn(store: Any) -> None:
    turn = await begin(store, key=KEY)
    await turn.say(TaskState.INPUT_REQUIRED)
    await store.release_lease(turn.task.id, turn.epoch)
    follow_up = new_turn(turn.task.id, key=f"{KEY}-2")
    claimed = await store.begin_turn(follow_up)
    assert isinstance(claimed, Claimed)
    assert await store.begin_turn(follow_up) == Replay(turn.task.id, claimed.first_seq)
    other = NewTurn(turn.task.id, a_message(), key=IdempotencyKey(f"{KEY}-2", "another"), lease=WORKER)
    assert await store.begin_turn(other) == Conflict()
    first = a_task(history=turn.task.history)
    assert await store.create_task(new_task(first, key=KEY)) == Replay(turn.task.id, 1)


async def test_a_refused_turn_leaves_its_key_free(store: Any) -> None:
    turn = await begin(store)
    busy = new_turn(turn.task.id, key=KEY)
    assert await store.begin_turn(busy) == Busy()
    assert await store.begin_turn(new_turn("nowhere", key=KEY)) == NotFound()
    assert await store.claim_idempotency_key(KEY, "m", "t") == KeyClaimed()


async def test_a_task_that_cannot_be_created_leaves_its_key_free(store: Any) -> None:
    task = a_task()
    await store.save(task)
    clash = NewTask(task, IdempotencyKey(KEY, "m"), WORKER)
    with pytest.raises(Exception, match=task.id):
        await store.create_task(clash)
    assert await store.claim_idempotency_key(KEY, "m", "t") == KeyClaimed()


async def test_a_key_is_its_owners(store: Any) -> None:
    message = a_message()
    views = [store, store.for_owner(Owner("acme", "alice")), store.for_owner(Owner("acme", "bob"))]
    ids = set()
    for view in views:
        outcome = await view.create_task(new_task(a_task(history=[message]), key=KEY))
        assert isinstance(outcome, Claimed)
        ids.add(outcome.task.id)
    assert len(ids) == 3


async def test_a_key_answers_for_its_turn_whatever_became_of_the_task(store: Any) -> None:
    turn = await begin(store, key=KEY)
    message = turn.task.history[0]
    retry = NewTurn(turn.task.id, message, key=IdempotencyKey(KEY, message.message_id), lease=WORKER)
    assert await store.begin_turn(retry) == Replay(turn.task.id, 1)
    await turn.say(TaskState.COMPLETED)
    assert await store.begin_turn(retry) == Replay(turn.task.id, 1)
    await store.delete(turn.task.id)
    assert await store.begin_turn(retry) == Replay(turn.task.id, 1)
    assert await store.create_task(new_task(a_task(history=[message]), key=KEY)) == Replay(turn.task.id, 1)


class TestMemoryIndex:
    """In memory keys have a time and their number a bound."""

    async def test_a_key_is_forgotten_after_its_time(self, clock: Clock) -> None:
        store = MemoryTaskStore(key_ttl=60, clock=clock, monotonic=clock.monotonic)
        await store.claim_idempotency_key(KEY, "m-1", "t-1")
        clock.advance(59)
        assert await store.claim_idempotency_key(KEY, "m-1", "t-2") == Replay("t-1", 1)
        clock.advance(2)
        assert await store.claim_idempotency_key(KEY, "m-2", "t-2") == KeyClaimed()

    async def test_a_full_index_refuses_and_runs_nothing(self, clock: Clock) -> None:
        store = MemoryTaskStore(max_keys=3, key_ttl=60, clock=clock, monotonic=clock.monotonic)
        for number in range(3):
            await store.for_owner(Owner("", f"s{number}")).create_task(new_task(key=f"{KEY}-{number}"))
        with pytest.raises(UnavailableError):
            await store.create_task(new_task(key=f"{KEY}-3"))
        assert await store.count() == 0
        assert isinstance(await store.for_owner(Owner("other")).create_task(new_task(key=KEY)), Claimed)
        clock.advance(61)
        assert isinstance(await store.create_task(new_task(key=f"{KEY}-3")), Claimed)


class TestMemoryCaps:
    """Memory is bounded: ended tasks make room, running ones are refused."""

    async def test_ended_tasks_make_room_oldest_first(self, clock: Clock) -> None:
        store = MemoryTaskStore(max_tasks=3, clock=clock, monotonic=clock.monotonic)
        first, second = await begin(store), await begin(store)
        await second.say(TaskState.COMPLETED)
        clock.advance(1)
        await first.say(TaskState.COMPLETED)
        third = await begin(store)
        fourth = await begin(store)
        assert await store.get(second.task.id) is None
        assert await store.get(first.task.id) is not None
        fifth = await begin(store)
        assert await store.get(first.task.id) is None
        with pytest.raises(UnavailableError):
            await store.create_task(new_task(key=KEY))
        assert await store.claim_idempotency_key(KEY, "m", "t") == KeyClaimed()
        assert await store.count() == 3
        assert {third.task.id, fourth.task.id, fifth.task.id} == {
            task.id for task in (await store.list(ListTasksRequest())).tasks
        }

    async def test_an_ended_task_is_forgotten_after_its_time(self, clock: Clock) -> None:
        store = MemoryTaskStore(terminal_ttl=60, clock=clock, monotonic=clock.monotonic)
        turn = await begin(store)
        await turn.say(TaskState.COMPLETED)
        clock.advance(61)
        await begin(store)
        assert await store.get(turn.task.id) is None

    async def test_tenants_are_bounded_and_reading_makes_none(self, clock: Clock) -> None:
        store = MemoryTaskStore(max_tenants=2, clock=clock, monotonic=clock.monotonic)
        for number in range(50):
            assert await store.for_owner(Owner(f"reader-{number}")).get("nowhere") is None
        await begin(store.for_owner(Owner("a")))
        kept = await begin(store.for_owner(Owner("b")))
        with pytest.raises(UnavailableError):
            await begin(store.for_owner(Owner("c")))
        await store.for_owner(Owner("b")).delete(kept.task.id)
        await begin(store.for_owner(Owner("c")))
