"""The event log: positions, commits, snapshots, truncation (DESIGN 2, 4)."""

from collections.abc import Callable
from typing import Any

import pytest

from app.protocol import Artifact, Message, Part, Task, TaskArtifactUpdateEvent, TaskState, fold
from app.protocol.events import encode_event, update_of
from app.store.base import Commit, EventLogGapError, FencedError
from app.store.wakeups import LocalWakeups
from tests.store.values import Turn, a_task, begin, chunk, ended, new_turn, status


async def folded(store: Any, task_id: str) -> Task:
    """The task as its log makes it."""
    task: Task | None = None
    for entry in await store.read_events(task_id, 0, 100_000):
        assert not isinstance(entry.event, Message)
        if isinstance(entry.event, Task):
            task = entry.event.model_copy(deep=True)
        else:
            assert task is not None
            task = fold(task, entry.event)
    assert task is not None
    return task


async def test_the_first_entry_is_the_task_as_submitted(store: Any) -> None:
    turn = await begin(store)
    (entry,) = await store.read_events(turn.task.id, 0, 10)
    assert (entry.seq, entry.event) == (1, turn.task)
    assert entry.data == encode_event(turn.task)
    assert await store.last_event_seq(turn.task.id) == 1
    assert await store.earliest_event_seq(turn.task.id) == 1


async def test_positions_rise_by_one_and_a_read_is_exclusive(store: Any) -> None:
    turn = await begin(store)
    assert await turn.commit(chunk(turn.task, "0"), chunk(turn.task, "1")) == 3
    assert await turn.commit(chunk(turn.task, "2")) == 4
    for after in range(5):
        entries = await store.read_events(turn.task.id, after, 10)
        assert [entry.seq for entry in entries] == list(range(after + 1, 5))
    assert [entry.seq for entry in await store.read_events(turn.task.id, 1, 2)] == [2, 3]
    assert list(await store.read_events(turn.task.id, 99, 10)) == []
    assert list(await store.read_events("nowhere", 0, 10)) == []


async def test_the_task_is_the_fold_of_its_log(store: Any) -> None:
    turn = await begin(store)
    await turn.say(TaskState.WORKING, "on it")
    for number in range(5):
        await turn.commit(chunk(turn.task, f"piece {number}", append=number > 0))
    await turn.commit(chunk(turn.task, "other", artifact_id="b"), chunk(turn.task, "new", append=False))
    assert await store.get(turn.task.id) == turn.task == await folded(store, turn.task.id)
    await turn.say(TaskState.INPUT_REQUIRED, "which?")
    assert await store.get(turn.task.id) == turn.task
    await store.release_lease(turn.task.id, turn.epoch)
    turn = Turn(store, await store.begin_turn(new_turn(turn.task.id)))
    await turn.commit(chunk(turn.task, "again"))
    await turn.say(TaskState.COMPLETED, "done")
    assert await store.get(turn.task.id) == turn.task == await folded(store, turn.task.id)


async def test_every_kind_of_content_survives_the_log(store: Any) -> None:
    turn = await begin(store)
    parts = [
        Part(text=""),
        Part(text="a\u2028b\r\n\u0085 \U0001f600 \\u0000"),
        Part(raw=b"\x00\xff\x80", filename="f.bin", media_type="application/octet-stream"),
        Part(url="https://example.com/x?a=b%20c"),
        Part.model_validate_json('{"data": null}'),
        Part(data={"deep": [1, 2.5, None, True, {"x": "y"}], "": ""}, metadata={"n": None}),
    ]
    artifact = Artifact(
        artifact_id="a", name="n", description="d", parts=parts, extensions=["urn:x"], metadata={"k": 1}
    )
    await turn.commit(TaskArtifactUpdateEvent(task_id=turn.task.id, context_id="context", artifact=artifact))
    await turn.say(TaskState.COMPLETED)
    assert (await store.get(turn.task.id)).artifacts == [artifact]
    assert (await store.read_events(turn.task.id, 1, 1))[0].event.artifact == artifact


async def test_an_event_is_appended_once_by_its_position(store: Any) -> None:
    turn = await begin(store)
    first, second = chunk(turn.task, "first"), chunk(turn.task, "second")
    await store.append_event(turn.task.id, 2, first)
    await store.append_event(turn.task.id, 2, second)
    await store.append_event(turn.task.id, 1, second)
    assert [entry.event for entry in await store.read_events(turn.task.id, 1, 9)] == [first]
    with pytest.raises(EventLogGapError):
        await store.append_event(turn.task.id, 4, second)
    await store.append_event(turn.task.id, 3, second)
    assert await store.last_event_seq(turn.task.id) == 3
    assert [part.text for part in (await store.get(turn.task.id)).artifacts[0].parts] == ["first", "second"]
    with pytest.raises(FencedError):
        await store.append_event("nowhere", 1, first)


async def test_a_log_can_be_built_by_hand_on_a_saved_task(store: Any) -> None:
    task = a_task()
    await store.save(task)
    assert await store.last_event_seq(task.id) == 0
    assert await store.earliest_event_seq(task.id) is None
    await store.append_event(task.id, 1, task)
    await store.append_event(task.id, 2, status(task, TaskState.WORKING))
    found = await store.get(task.id)
    assert found.status.state is TaskState.WORKING
    assert await store.last_event_seq(task.id) == 2


async def test_saving_is_current_at_the_head_of_the_log(store: Any) -> None:
    turn = await begin(store)
    await turn.commit(chunk(turn.task, "logged"))
    replaced = turn.task.model_copy(update={"artifacts": [Artifact(artifact_id="z", parts=[Part(text="saved")])]})
    await store.save(replaced)
    snapshot = await store.snapshot(turn.task.id)
    assert (snapshot.task, snapshot.seq) == (replaced, 2)
    turn.task = replaced.model_copy(deep=True)
    await turn.commit(chunk(turn.task, "more", artifact_id="z"))
    assert await store.get(turn.task.id) == turn.task


async def test_a_snapshot_tells_task_and_position_together(store: Any) -> None:
    turn = await begin(store)
    await turn.commit(chunk(turn.task, "x"))
    snapshot = await store.snapshot(turn.task.id)
    assert (snapshot.task, snapshot.seq, snapshot.earliest_seq) == (turn.task, 2, 1)
    assert snapshot.running
    await turn.say(TaskState.COMPLETED)
    snapshot = await store.snapshot(turn.task.id)
    assert (snapshot.task, snapshot.seq, snapshot.running) == (turn.task, 3, False)
    assert await store.snapshot("nowhere") is None


async def test_a_commit_under_a_stale_epoch_stores_nothing(store: Any) -> None:
    turn = await begin(store)
    for epoch in (turn.epoch - 1, turn.epoch + 1):
        update = update_of(chunk(turn.task, "stale"))
        with pytest.raises(FencedError):
            await store.commit(Commit(turn.task.id, epoch, [update], turn.task))
    assert await store.last_event_seq(turn.task.id) == 1
    with pytest.raises(FencedError):
        await store.commit(Commit("nowhere", 1, [update_of(chunk(turn.task, "x"))], turn.task))


@pytest.mark.parametrize("state", [TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED])
async def test_nothing_follows_a_final_state(store: Any, state: TaskState) -> None:
    turn = await ended(store, state)
    for event in (chunk(turn.task, "late"), status(turn.task, TaskState.WORKING), status(turn.task, state)):
        with pytest.raises(FencedError):
            await store.commit(Commit(turn.task.id, turn.epoch, [update_of(event)], turn.task))
        with pytest.raises(FencedError):
            await store.append_event(turn.task.id, 3, event)
    assert await store.last_event_seq(turn.task.id) == 2
    assert await store.get(turn.task.id) == turn.task


async def test_a_commit_that_is_tried_again_writes_nothing_twice(store: Any) -> None:
    turn = await begin(store)
    events = [chunk(turn.task, "a"), chunk(turn.task, "b")]
    updates = [update_of(event) for event in events]
    await turn.commit(*events)
    assert await store.commit(Commit(turn.task.id, turn.epoch, updates, turn.task, 1)) == 3
    late = chunk(turn.task, "c")
    turn.task = fold(turn.task, late)
    assert await store.commit(Commit(turn.task.id, turn.epoch, [*updates, update_of(late)], turn.task, 1)) == 4
    assert await store.get(turn.task.id) == turn.task
    assert [entry.event for entry in await store.read_events(turn.task.id, 1, 9)] == [*events, late]


async def test_a_commit_wakes_those_who_listen_after_it_is_stored(store: Any, wakeups: LocalWakeups) -> None:
    heard: list[str | None] = []
    stop = wakeups.listen(heard.append)
    turn = await begin(store)
    await turn.commit(chunk(turn.task, "x"))
    assert set(heard) == {turn.task.id}
    count = len(heard)
    stop()
    await turn.say(TaskState.COMPLETED)
    assert len(heard) == count


class TestTruncation:
    async def test_the_oldest_entries_go_and_the_newest_stay(self, make_store: Callable[..., Any]) -> None:
        async with make_store(max_events_per_task=10) as store:
            turn = await begin(store)
            for number in range(60):
                await turn.commit(chunk(turn.task, f"{number} "))
            await turn.say(TaskState.COMPLETED)
            assert await store.last_event_seq(turn.task.id) == 62
            earliest = await store.earliest_event_seq(turn.task.id)
            assert 40 < earliest <= 53
            entries = await store.read_events(turn.task.id, 0, 100)
            assert [entry.seq for entry in entries] == list(range(earliest, 63))
            assert await store.get(turn.task.id) == turn.task
            assert not await store.event_log_covers(turn.task.id, earliest - 2)
            assert await store.event_log_covers(turn.task.id, earliest - 1)
            assert await store.event_log_covers(turn.task.id, 62)
            snapshot = await store.snapshot(turn.task.id)
            assert (snapshot.seq, snapshot.earliest_seq) == (62, earliest)

    async def test_the_newest_entry_is_never_dropped(self, make_store: Callable[..., Any]) -> None:
        async with make_store(max_events_per_task=1) as store:
            turn = await begin(store)
            for number in range(7):
                await turn.commit(chunk(turn.task, f"{number} "))
            await turn.say(TaskState.COMPLETED)
            assert [entry.seq for entry in await store.read_events(turn.task.id, 8, 9)] == [9]
            assert await store.get(turn.task.id) == turn.task
