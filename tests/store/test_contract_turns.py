"""Turns, leases, cancelling, owners, retention (DESIGN 4, 7)."""

import asyncio
from typing import Any

import pytest

from app.protocol import ANONYMOUS, Owner, TaskState
from app.protocol.requests import ListTasksRequest
from app.store.base import (
    Busy,
    CancelFlagged,
    Claimed,
    ContextMismatch,
    Ended,
    FencedError,
    Lease,
    NotFound,
    RetentionPolicy,
)
from tests.store.conftest import Clock
from tests.store.values import OTHER, WORKER, Turn, a_task, begin, chunk, ended, new_task, new_turn

DEAD = Lease("worker-1", 0.0)
"""A lease that is over as soon as it is taken."""


async def waiting(store: Any, **options: Any) -> Turn:
    turn = await begin(store, **options)
    await turn.say(TaskState.INPUT_REQUIRED, "which?")
    await store.release_lease(turn.task.id, turn.epoch)
    return turn


async def test_creating_claims_the_turn_under_the_first_epoch(store: Any) -> None:
    new = new_task()
    claimed = await store.create_task(new)
    assert isinstance(claimed, Claimed)
    assert claimed.task == new.task
    assert (claimed.epoch, claimed.first_seq, claimed.head, claimed.attempt) == (1, 1, 1, 1)
    with pytest.raises(FencedError):
        await store.create_task(new)


async def test_a_turn_begins_with_its_message_and_a_working_entry(store: Any) -> None:
    first = await waiting(store)
    new = new_turn(first.task.id, "the red one", context_id="context")
    claimed = await store.begin_turn(new)
    assert isinstance(claimed, Claimed)
    assert claimed.first_seq == claimed.head == claimed.entry.seq == 3
    assert claimed.epoch > first.epoch
    assert claimed.task.status.state is TaskState.WORKING
    assert [message.parts[0].text for message in claimed.task.history] == ["hello", "which?", "the red one"]
    assert claimed.task.history[-1] == new.message
    assert await store.get(first.task.id) == claimed.task
    assert [entry.seq for entry in await store.read_events(first.task.id, 2, 9)] == [3]
    with pytest.raises(FencedError):
        await first.commit(chunk(first.task, "stale"))


async def test_a_turn_that_runs_is_busy_until_its_lease_ends(store: Any) -> None:
    turn = await begin(store)
    assert await store.begin_turn(new_turn(turn.task.id)) == Busy()
    await turn.say(TaskState.INPUT_REQUIRED)
    assert await store.begin_turn(new_turn(turn.task.id)) == Busy()
    await store.release_lease(turn.task.id, turn.epoch + 5)
    assert await store.begin_turn(new_turn(turn.task.id)) == Busy()
    await store.release_lease(turn.task.id, turn.epoch)
    assert isinstance(await store.begin_turn(new_turn(turn.task.id)), Claimed)


async def test_a_message_is_refused_for_what_it_is(store: Any) -> None:
    done = await ended(store)
    assert await store.begin_turn(new_turn(done.task.id)) == Ended(TaskState.COMPLETED)
    asked = await waiting(store)
    assert await store.begin_turn(new_turn(asked.task.id, context_id="other")) == ContextMismatch()
    assert await store.begin_turn(new_turn("nowhere")) == NotFound()
    assert await store.get(asked.task.id) == asked.task


async def test_of_racing_messages_one_begins_the_turn(store: Any) -> None:
    asked = await waiting(store)
    outcomes = await asyncio.gather(*(store.begin_turn(new_turn(asked.task.id)) for _ in range(16)))
    assert sum(isinstance(outcome, Claimed) for outcome in outcomes) == 1
    assert sum(outcome == Busy() for outcome in outcomes) == 15
    assert await store.last_event_seq(asked.task.id) == 3


async def test_leases_are_renewed_for_those_who_hold_them(store: Any) -> None:
    held, lost, done = await begin(store), await begin(store, lease=OTHER), await ended(store)
    turns = {held.task.id: held.epoch, lost.task.id: lost.epoch, done.task.id: done.epoch, "nowhere": 1}
    renewal = await store.renew_leases(turns, WORKER)
    assert renewal.lost == {lost.task.id, done.task.id, "nowhere"}
    assert renewal.cancelled == frozenset()
    stale = await store.renew_leases({held.task.id: held.epoch + 1}, WORKER)
    assert stale.lost == {held.task.id}
    assert (await store.renew_leases({}, WORKER)).lost == frozenset()


async def test_a_lease_given_back_is_not_renewed(store: Any) -> None:
    turn = await begin(store)
    await turn.say(TaskState.INPUT_REQUIRED)
    await store.release_lease(turn.task.id, turn.epoch)
    assert (await store.renew_leases({turn.task.id: turn.epoch}, WORKER)).lost == {turn.task.id}
    assert isinstance(await store.begin_turn(new_turn(turn.task.id)), Claimed)


async def test_turns_that_nobody_runs_are_stranded(store: Any) -> None:
    await begin(store)
    await waiting(store)
    await ended(store)
    unleased = await begin(store, lease=None)
    dead = await begin(store, lease=DEAD)
    await dead.say(TaskState.WORKING)
    found = {turn.task_id: turn for turn in await store.stranded_turns(10)}
    assert set(found) == {unleased.task.id, dead.task.id}
    assert found[dead.task.id].epoch == dead.epoch
    assert found[dead.task.id].owner == ANONYMOUS
    assert len(await store.stranded_turns(1)) == 1


async def test_a_stranded_turn_is_taken_over_once(store: Any) -> None:
    dead = await begin(store, lease=DEAD)
    await dead.commit(chunk(dead.task, "half"))
    (stranded,) = await store.stranded_turns(10)
    taken = [claim for claim in await asyncio.gather(*(store.take_over(stranded, OTHER) for _ in range(8))) if claim]
    (claim,) = taken
    assert claim.epoch > dead.epoch
    assert (claim.attempt, claim.first_seq, claim.head) == (2, 1, 2)
    assert claim.task == dead.task
    with pytest.raises(FencedError):
        await dead.commit(chunk(dead.task, "stale"))
    assert list(await store.stranded_turns(10)) == []
    again = Turn(store, claim)
    await again.commit(chunk(again.task, "anew", append=False))
    await again.say(TaskState.COMPLETED)
    assert await store.get(again.task.id) == again.task


async def test_a_turn_never_leased_begins_its_first_run_when_it_is_taken(store: Any) -> None:
    await begin(store, lease=None)
    (stranded,) = await store.stranded_turns(10)
    claim = await store.take_over(stranded, WORKER)
    assert claim is not None
    assert claim.attempt == 1


async def test_a_turn_that_is_no_longer_stranded_is_not_taken(store: Any) -> None:
    dead = await begin(store, lease=DEAD)
    (stranded,) = await store.stranded_turns(10)
    await dead.say(TaskState.COMPLETED)
    assert await store.take_over(stranded, WORKER) is None


async def test_cancelling_flags_a_running_turn(store: Any) -> None:
    turn = await begin(store)
    assert await store.begin_cancel(turn.task.id, OTHER) == CancelFlagged()
    renewal = await store.renew_leases({turn.task.id: turn.epoch}, WORKER)
    assert renewal.cancelled == {turn.task.id}
    tails = await store.read_tails({turn.task.id: 0}, 10)
    assert tails[turn.task.id].cancelled
    await turn.say(TaskState.CANCELED)
    assert await store.begin_cancel(turn.task.id, OTHER) == Ended(TaskState.CANCELED)


async def test_cancelling_takes_a_task_that_nobody_runs(store: Any) -> None:
    for turn in (await waiting(store), await begin(store, lease=None), await begin(store, lease=DEAD)):
        claim = await store.begin_cancel(turn.task.id, OTHER)
        assert isinstance(claim, Claimed)
        canceller = Turn(store, claim)
        await canceller.say(TaskState.CANCELED)
        assert (await store.get(turn.task.id)).status.state is TaskState.CANCELED
        with pytest.raises(FencedError):
            await turn.say(TaskState.COMPLETED)
    assert await store.begin_cancel("nowhere", OTHER) == NotFound()


async def test_a_new_turn_is_not_cancelled_by_an_old_flag(store: Any) -> None:
    turn = await begin(store)
    await store.begin_cancel(turn.task.id, OTHER)
    await turn.say(TaskState.INPUT_REQUIRED)
    await store.release_lease(turn.task.id, turn.epoch)
    claim = await store.begin_turn(new_turn(turn.task.id))
    renewal = await store.renew_leases({turn.task.id: claim.epoch}, WORKER)
    assert renewal.cancelled == frozenset()


async def test_the_tails_of_many_tasks_are_read_at_once(store: Any) -> None:
    turns = [await begin(store) for _ in range(3)]
    for turn in turns:
        await turn.commit(*(chunk(turn.task, f"{number}") for number in range(5)))
    tails = await store.read_tails({turns[0].task.id: 0, turns[1].task.id: 4, turns[2].task.id: 6, "nowhere": 0}, 3)
    assert set(tails) == {turn.task.id for turn in turns}
    assert [entry.seq for entry in tails[turns[0].task.id].entries] == [1, 2, 3]
    assert [entry.seq for entry in tails[turns[1].task.id].entries] == [5, 6]
    assert list(tails[turns[2].task.id].entries) == []
    assert {tail.last_seq for tail in tails.values()} == {6}
    assert await store.read_tails({}, 3) == {}


async def test_an_owner_reaches_nothing_of_another(store: Any) -> None:
    acme = store.for_owner(Owner("acme", "alice"))
    turn = await begin(acme, key="k" * 16)
    await turn.commit(chunk(turn.task, "secret"))
    task_id = turn.task.id
    for stranger in (store, store.for_owner(Owner("acme", "bob")), store.for_owner(Owner("other", "alice"))):
        assert await stranger.get(task_id) is None
        assert await stranger.snapshot(task_id) is None
        assert list(await stranger.read_events(task_id, 0, 10)) == []
        assert await stranger.last_event_seq(task_id) == 0
        assert await stranger.earliest_event_seq(task_id) is None
        assert (await stranger.list(ListTasksRequest())).total_size == 0
        assert await stranger.count() == 0
        assert await stranger.begin_turn(new_turn(task_id)) == NotFound()
        assert await stranger.begin_cancel(task_id, OTHER) == NotFound()
        await stranger.delete(task_id)
        with pytest.raises(FencedError):
            await Turn(stranger, Claimed(turn.task, turn.epoch, 1, (await acme.read_events(task_id, 0, 1))[0])).say(
                TaskState.FAILED
            )
        with pytest.raises(FencedError):
            await stranger.append_event(task_id, 3, chunk(turn.task, "x"))
        with pytest.raises(FencedError):
            await stranger.save(turn.task)
        assert not await stranger.insert_if_absent(turn.task)
        await stranger.release_idempotency_key("k" * 16)
    assert await acme.get(task_id) == turn.task
    assert await acme.count() == 1
    again = await acme.create_task(new_task(a_task(history=turn.task.history), key="k" * 16))
    assert again.task_id == task_id


async def test_purging_removes_what_ended_long_ago_and_keys_last(store: Any, clock: Clock) -> None:
    old = await ended(store, time=clock.now)
    keyed = await begin(store, a_task(time=clock.now), key="k" * 16)
    await keyed.say(TaskState.COMPLETED, time=clock.now)
    alive = await waiting(store)
    clock.advance(100)
    young = await ended(store, time=clock.now)
    policy = RetentionPolicy(terminal_age=50, key_age=200, batch=1)
    purged = await store.purge(policy)
    assert (purged.tasks, purged.keys) == (2, 0)
    assert await store.get(old.task.id) is None
    assert list(await store.read_events(old.task.id, 0, 10)) == []
    assert await store.get(alive.task.id) is not None
    assert await store.get(young.task.id) is not None
    replay = await store.create_task(new_task(a_task(history=keyed.task.history), key="k" * 16))
    assert replay.task_id == keyed.task.id
    clock.advance(150)
    purged = await store.purge(policy)
    assert (purged.tasks, purged.keys) == (1, 1)
    assert isinstance(await store.create_task(new_task(key="k" * 16)), Claimed)
