"""Push configurations: whose they are, where they begin, who delivers them (DESIGN 4)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from app.protocol import Owner, TaskState
from app.protocol.push import AuthenticationInfo, TaskPushNotificationConfig
from app.store.base import Claimed, IdempotencyKey, Lease, NewTask, Replay, RetentionPolicy
from app.store.push_configs import DeliveryReport, PushConfigStore, PushDelivery, TooManyPushConfigsError
from tests.store.values import T0, WORKER, Turn, a_task, begin, chunk, ended, new_turn

ANYBODY = Owner()
DEAD = Lease("worker-1", 0.0)
OTHER = Lease("worker-2", 15.0)


def a_config(task_id: str, config_id: str = "c", url: str = "https://example.com/hook") -> TaskPushNotificationConfig:
    authentication = AuthenticationInfo(scheme="Bearer", credentials="secret")
    return TaskPushNotificationConfig(
        task_id=task_id, id=config_id, url=url, token="token", authentication=authentication
    )


async def claim(
    store: Any, lease: Lease = WORKER, fresh: int = 10, failed: int = 10, **options: Any
) -> list[PushDelivery]:
    return list(await store.claim_deliveries(lease, fresh=fresh, failed=failed, **options))


def report(found: PushDelivery, position: int | None = None, **members: Any) -> DeliveryReport:
    key = (found.config.task_id or "", found.config.id or "")
    at = found.position if position is None else position
    return DeliveryReport(key, found.revision, at, **{"failures": 0, "hold": False, **members})


async def configured(store: Any, after: int | None = None, config_id: str = "c") -> Turn:
    """A running task with a configuration."""
    turn = await begin(store)
    assert await store.put_push_config(ANYBODY, a_config(turn.task.id, config_id), after)
    return turn


async def test_the_bundled_stores_keep_push_configurations(store: Any) -> None:
    assert isinstance(store, PushConfigStore)


async def test_a_configuration_comes_back_with_its_credentials(store: Any) -> None:
    turn = await configured(store)
    config = a_config(turn.task.id)
    assert await store.get_push_config(ANYBODY, turn.task.id, "c") == config
    assert await store.list_push_configs(ANYBODY, turn.task.id) == [config]


async def test_what_is_returned_is_the_callers_own(store: Any) -> None:
    turn = await begin(store)
    given = a_config(turn.task.id)
    await store.put_push_config(ANYBODY, given, 0)
    (claimed,) = await claim(store)
    for config in (
        given,
        await store.get_push_config(ANYBODY, turn.task.id, "c"),
        (await store.list_push_configs(ANYBODY, turn.task.id))[0],
        claimed.config,
    ):
        config.url = "https://spoilt.example"
    assert await store.get_push_config(ANYBODY, turn.task.id, "c") == a_config(turn.task.id)


async def test_configurations_are_listed_by_id_and_keyed_by_task_and_id(store: Any) -> None:
    turn, other = await begin(store), await begin(store)
    odd = ["b", "a", "c" * 1024, "\U0001f600" * 1024, "a/b c\u2028"]
    for config_id in odd:
        await store.put_push_config(ANYBODY, a_config(turn.task.id, config_id))
    await store.put_push_config(ANYBODY, a_config(other.task.id, "a", "https://other.example"))
    listed = await store.list_push_configs(ANYBODY, turn.task.id)
    assert [config.id for config in listed] == sorted(odd)
    assert (await store.get_push_config(ANYBODY, other.task.id, "a")).url == "https://other.example"
    assert (await store.get_push_config(ANYBODY, turn.task.id, "a")).url == "https://example.com/hook"


async def test_there_is_none_where_there_is_no_task(store: Any) -> None:
    for task_id in ("nowhere", "no\0where", "no\ud800where"):
        if "\ud800" not in task_id:
            assert not await store.put_push_config(ANYBODY, a_config(task_id))
        assert await store.list_push_configs(ANYBODY, task_id) is None
        assert await store.get_push_config(ANYBODY, task_id, "c") is None
        assert not await store.delete_push_config(ANYBODY, task_id, "c")
    turn = await begin(store)
    assert await store.list_push_configs(ANYBODY, turn.task.id) == []
    assert await store.get_push_config(ANYBODY, turn.task.id, "c\0\ud800") is None


async def test_a_stranger_reaches_none(store: Any) -> None:
    acme = Owner("acme", "alice")
    turn = await begin(store.for_owner(acme))
    assert await store.put_push_config(acme, a_config(turn.task.id))
    for stranger in (ANYBODY, Owner("acme", "bob"), Owner("other", "alice")):
        assert not await store.put_push_config(stranger, a_config(turn.task.id, url="https://mine.example"))
        assert await store.get_push_config(stranger, turn.task.id, "c") is None
        assert await store.list_push_configs(stranger, turn.task.id) is None
        assert not await store.delete_push_config(stranger, turn.task.id, "c")
    assert await store.get_push_config(acme, turn.task.id, "c") == a_config(turn.task.id)
    await turn.commit(chunk(turn.task, "x"))
    (found,) = await claim(store)
    assert found.owner == acme


async def test_there_is_none_on_a_task_that_is_hidden(store: Any) -> None:
    task = a_task()
    await store.create_task(NewTask(task, lease=WORKER, hidden=True, push_config=a_config(task.id)))
    assert not await store.put_push_config(ANYBODY, a_config(task.id))
    assert await store.get_push_config(ANYBODY, task.id, "c") is None
    assert await store.list_push_configs(ANYBODY, task.id) is None
    assert not await store.delete_push_config(ANYBODY, task.id, "c")
    assert [found.config.task_id for found in await claim(store)] == [task.id], "its webhook hears of the answer"


async def test_deleting_twice_is_no_error(store: Any) -> None:
    turn = await configured(store, after=0)
    assert await store.delete_push_config(ANYBODY, turn.task.id, "c")
    assert await store.delete_push_config(ANYBODY, turn.task.id, "c")
    assert await store.list_push_configs(ANYBODY, turn.task.id) == []
    assert await claim(store) == []


async def test_a_configuration_goes_with_its_task(store: Any, clock: Any) -> None:
    deleted = await configured(store, after=0)
    await store.delete(deleted.task.id)
    purged = await ended(store, time=T0)
    await store.put_push_config(ANYBODY, a_config(purged.task.id))
    clock.advance(100)
    await store.purge(RetentionPolicy(terminal_age=50))
    for turn in (deleted, purged):
        assert await store.list_push_configs(ANYBODY, turn.task.id) is None
        await store.save(turn.task)
        assert await store.list_push_configs(ANYBODY, turn.task.id) == []
    assert await claim(store) == []


async def test_a_task_has_so_many_and_no_more(make_store: Callable[..., Any]) -> None:
    async with make_store(max_push_configs=3) as store:
        turn = await begin(store)
        outcomes = await asyncio.gather(
            *(store.put_push_config(ANYBODY, a_config(turn.task.id, str(number))) for number in range(16)),
            return_exceptions=True,
        )
        assert sum(outcome is True for outcome in outcomes) == 3
        assert sum(isinstance(outcome, TooManyPushConfigsError) for outcome in outcomes) == 13
        kept = (await store.list_push_configs(ANYBODY, turn.task.id))[0]
        assert await store.put_push_config(ANYBODY, kept), "one that is there can be replaced"
        await turn.say(TaskState.INPUT_REQUIRED)
        await store.release_lease(turn.task.id, turn.epoch)
        with pytest.raises(TooManyPushConfigsError):
            await store.begin_turn(new_turn(turn.task.id, push_config=a_config(turn.task.id, "one more")))
        assert await store.last_event_seq(turn.task.id) == turn.head, "a refused turn leaves nothing"
        assert isinstance(await store.begin_turn(new_turn(turn.task.id, push_config=kept)), Claimed)


class TestWhereItBegins:
    async def test_a_created_one_begins_at_the_head(self, store: Any) -> None:
        turn = await begin(store)
        await turn.commit(chunk(turn.task, "before"))
        await store.put_push_config(ANYBODY, a_config(turn.task.id))
        assert await claim(store) == []
        await turn.commit(chunk(turn.task, "after"))
        (found,) = await claim(store)
        assert (found.position, found.config) == (2, a_config(turn.task.id))

    async def test_that_of_a_new_task_begins_before_its_first_entry(self, store: Any) -> None:
        task = a_task()
        await store.create_task(NewTask(task, lease=WORKER, push_config=a_config(task.id)))
        (found,) = await claim(store)
        assert (found.position, found.failures, found.config) == (0, 0, a_config(task.id))

    async def test_that_of_a_later_turn_begins_before_the_turns_first_entry(self, store: Any) -> None:
        turn = await ended(store, TaskState.INPUT_REQUIRED)
        await store.release_lease(turn.task.id, turn.epoch)
        await store.begin_turn(new_turn(turn.task.id, push_config=a_config(turn.task.id)))
        (found,) = await claim(store)
        assert found.position == turn.head

    async def test_a_replay_and_a_refusal_bring_none(self, store: Any) -> None:
        task = a_task()
        key = IdempotencyKey("k" * 16, task.history[0].message_id)
        await store.create_task(NewTask(task, key, WORKER))
        again = a_task()
        outcome = await store.create_task(NewTask(again, key, WORKER, push_config=a_config(again.id)))
        assert isinstance(outcome, Replay)
        assert not isinstance(await store.begin_turn(new_turn(task.id, push_config=a_config(task.id))), Claimed), (
            "the first turn is running"
        )
        assert await store.list_push_configs(ANYBODY, again.id) is None
        assert await store.list_push_configs(ANYBODY, task.id) == []

    async def test_one_of_a_task_that_has_ended_can_be_made_and_has_nothing_to_tell(self, store: Any) -> None:
        turn = await ended(store)
        assert await store.put_push_config(ANYBODY, a_config(turn.task.id))
        assert await store.get_push_config(ANYBODY, turn.task.id, "c") == a_config(turn.task.id)
        assert await claim(store) == []

    async def test_one_that_is_replaced_goes_on_where_it_was(self, store: Any) -> None:
        turn = await configured(store, after=0)
        await turn.commit(chunk(turn.task, "x"))
        changed = a_config(turn.task.id, url="https://changed.example")
        await store.put_push_config(ANYBODY, changed)
        (found,) = await claim(store)
        assert (found.position, found.config) == (0, changed)

    async def test_one_that_was_disabled_begins_anew(self, store: Any) -> None:
        turn = await configured(store, after=0)
        (found,) = await claim(store)
        await store.record_deliveries(WORKER, [report(found, state="disabled")])
        await turn.commit(chunk(turn.task, "x"))
        assert await claim(store) == []
        assert await store.get_push_config(ANYBODY, turn.task.id, "c") is not None
        await store.put_push_config(ANYBODY, a_config(turn.task.id))
        assert await claim(store) == []
        await turn.commit(chunk(turn.task, "y"))
        (found,) = await claim(store)
        assert (found.position, found.failures) == (2, 0)


class TestClaims:
    async def test_of_many_workers_one_gets_it(self, store: Any) -> None:
        await configured(store, after=0)
        found = await asyncio.gather(*(claim(store, Lease(f"worker-{number}", 15.0)) for number in range(8)))
        assert sum(map(len, found)) == 1

    async def test_it_is_free_again_when_the_lease_is_over(self, store: Any) -> None:
        await configured(store, after=0)
        (first,) = await claim(store, DEAD)
        (second,) = await claim(store, OTHER)
        assert await store.record_deliveries(DEAD, [report(first, 1)]) == {report(first).key}
        assert await store.record_deliveries(OTHER, [report(second, 0)]) == frozenset()
        assert [found.position for found in await claim(store)] == [0], "who lost the claim stored nothing"

    async def test_holding_prolongs_it_and_letting_go_ends_it(self, store: Any) -> None:
        turn = await configured(store, after=0)
        await turn.commit(chunk(turn.task, "x"))
        (found,) = await claim(store, DEAD)
        await store.record_deliveries(Lease("worker-1", 15.0), [report(found, 1, hold=True)])
        assert await claim(store, OTHER) == []
        await store.record_deliveries(WORKER, [report(found, 1)])
        (found,) = await claim(store, OTHER)
        assert found.position == 1

    async def test_what_has_caught_up_is_nobodys_to_claim(self, store: Any) -> None:
        turn = await configured(store, after=0)
        (found,) = await claim(store)
        await store.record_deliveries(WORKER, [report(found, 1)])
        assert await claim(store) == []
        await turn.commit(chunk(turn.task, "x"))
        assert [found.position for found in await claim(store)] == [1]

    async def test_one_that_failed_waits_and_has_a_lane_of_its_own(self, store: Any) -> None:
        for _ in range(3):
            await configured(store, after=0)
        found = await claim(store)
        assert len(found) == 3
        await store.record_deliveries(
            WORKER,
            [report(found[0], failures=1, delay=60.0), report(found[1], failures=2), report(found[2])],
        )
        (failed,) = await claim(store, fresh=0)
        (fresh,) = await claim(store, failed=0)
        assert (failed.failures, fresh.failures) == (2, 0)
        assert await claim(store) == []

    async def test_no_more_are_claimed_than_asked_for(self, store: Any) -> None:
        for _ in range(3):
            await configured(store, after=0)
        assert [len(await claim(store, fresh=2)) for _ in range(3)] == [2, 1, 0]

    async def test_a_look_can_be_at_some_tasks_only(self, store: Any) -> None:
        one, other = await configured(store, after=0), await configured(store, after=0)
        assert await claim(store, task_ids=["nowhere"]) == []
        (found,) = await claim(store, task_ids={other.task.id, "nowhere"})
        assert found.config.task_id == other.task.id
        assert [found.config.task_id for found in await claim(store)] == [one.task.id]

    async def test_one_that_is_replaced_is_lost_to_its_holder_who_then_lets_go(self, store: Any) -> None:
        turn = await configured(store, after=0)
        (held,) = await claim(store)
        await store.put_push_config(ANYBODY, a_config(turn.task.id, url="https://changed.example"))
        assert await claim(store, OTHER) == [], "two never deliver"
        assert await store.record_deliveries(WORKER, [report(held, 1, hold=True)]) == {report(held).key}
        assert await claim(store, OTHER) == []
        await store.record_deliveries(WORKER, [report(held, 1)])
        (found,) = await claim(store, OTHER)
        assert (found.position, found.config.url) == (0, "https://changed.example")

    async def test_one_that_is_deleted_is_lost_to_its_holder(self, store: Any) -> None:
        turn, other = await configured(store, after=0), await configured(store, after=0)
        found = sorted(await claim(store), key=lambda found: found.config.task_id == other.task.id)
        await store.delete_push_config(ANYBODY, turn.task.id, "c")
        lost = await store.record_deliveries(WORKER, [report(one, 1, hold=True) for one in found])
        assert lost == {(turn.task.id, "c")}
        assert await store.record_deliveries(WORKER, [report(found[1], 1)]) == frozenset()
        assert await claim(store) == [], "what was not lost was stored"

    async def test_a_finished_one_is_never_claimed_and_still_listed(self, store: Any) -> None:
        turn = await configured(store, after=0)
        (found,) = await claim(store)
        await store.record_deliveries(WORKER, [report(found, 0, state="finished")])
        assert await claim(store) == []
        assert len(await store.list_push_configs(ANYBODY, turn.task.id)) == 1
