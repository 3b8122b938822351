"""What goes in and what comes out is the caller's own: neither ever changes what is kept (DESIGN 4)."""

from collections.abc import Callable
from typing import Any

import pytest

from app.protocol import (
    Artifact,
    Message,
    Owner,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from app.protocol.requests import ListTasksRequest
from app.store.base import ArtifactDelta, Claimed, FencedError, KeyClaimed, Lease
from tests.store.values import OTHER, WORKER, Turn, a_message, a_task, begin, chunk, new_task, new_turn, status

DEAD = Lease("worker-1", 0.0)


def rich(**members: Any) -> Task:
    """A task with something to change at every level."""
    message = Message(
        message_id="m-rich",
        role=Role.USER,
        parts=[Part(data={"list": [1, {"x": 1}]}, metadata={"p": [1]}), Part(text="t")],
        metadata={"m": {"n": [1]}},
        extensions=["urn:m"],
        reference_task_ids=["r"],
    )
    artifact = Artifact(
        artifact_id="a",
        parts=[Part(text="x"), Part(data={"list": [1]}, metadata={"p": {"q": 1}})],
        metadata={"a": {"b": [1]}},
        extensions=["urn:a"],
    )
    return a_task(history=[message], artifacts=[artifact], metadata={"t": {"u": [1]}}, **members)


def spoil_message(message: Message) -> None:
    for part in message.parts:
        spoil_json(part.data)
        spoil_json(part.metadata)
    message.parts.append(Part(text="spoilt"))
    spoil_json(message.metadata)
    message.extensions.append("urn:spoilt")
    message.reference_task_ids.append("spoilt")


def spoil_json(value: Any) -> None:
    """Change what can be changed in place, innermost first."""
    if isinstance(value, dict):
        for member in value.values():
            spoil_json(member)
        value["spoilt"] = True
    elif isinstance(value, list):
        for member in value:
            spoil_json(member)
        value.append("spoilt")


def spoil_artifact(artifact: Artifact) -> None:
    for part in artifact.parts:
        spoil_json(part.data)
        spoil_json(part.metadata)
    artifact.parts.append(Part(text="spoilt"))
    artifact.extensions.append("urn:spoilt")
    spoil_json(artifact.metadata)
    artifact.name = "spoilt"


def spoil(task: Task) -> None:
    for message in task.history:
        spoil_message(message)
    for artifact in task.artifacts:
        spoil_artifact(artifact)
    if task.status.message is not None:
        spoil_message(task.status.message)
    task.status.state = TaskState.FAILED
    task.status.timestamp = None
    task.history.append(a_message("spoilt"))
    task.artifacts.append(Artifact(artifact_id="spoilt", parts=[Part(text="spoilt")]))
    spoil_json(task.metadata)
    task.context_id = "spoilt"


async def taken_in_by_save(store: Any, task: Task) -> None:
    await store.save(task)


async def taken_in_by_saving_again(store: Any, task: Task) -> None:
    await store.save(a_task(id=task.id))
    await store.save(task)


async def taken_in_by_insert(store: Any, task: Task) -> None:
    assert await store.insert_if_absent(task)


async def taken_in_by_create(store: Any, task: Task) -> None:
    await store.create_task(new_task(task))


@pytest.mark.parametrize(
    "take_in", [taken_in_by_save, taken_in_by_saving_again, taken_in_by_insert, taken_in_by_create]
)
async def test_changing_a_task_that_was_given_changes_nothing_kept(store: Any, take_in: Callable[..., Any]) -> None:
    task = rich()
    kept = task.model_copy(deep=True)
    await take_in(store, task)
    spoil(task)
    assert await store.get(kept.id) == kept


async def test_changing_a_task_that_was_returned_changes_nothing_kept(store: Any) -> None:
    task = rich()
    claimed = await store.create_task(new_task(task))
    kept = task.model_copy(deep=True)
    spoil(claimed.task)
    spoil(await store.get(kept.id))
    spoil((await store.snapshot(kept.id)).task)
    spoil((await store.list(ListTasksRequest(include_artifacts=True))).tasks[0])
    spoil((await store.list(ListTasksRequest())).tasks[0])
    assert await store.get(kept.id) == kept
    assert (await store.snapshot(kept.id)).task == kept


async def test_changing_what_a_claim_returned_changes_nothing_kept(store: Any) -> None:
    for lease in (WORKER, DEAD):
        turn = Turn(store, await store.create_task(new_task(rich(), lease=lease)))
        if lease is WORKER:
            await turn.say(TaskState.INPUT_REQUIRED, "which?")
            await store.release_lease(turn.task.id, turn.epoch)
            claim = await store.begin_turn(new_turn(turn.task.id))
        else:
            (stranded,) = [found for found in await store.stranded_turns(10) if found.task_id == turn.task.id]
            claim = await store.take_over(stranded, DEAD)
        assert isinstance(claim, Claimed)
        kept = claim.task.model_copy(deep=True)
        spoil(claim.task)
        assert await store.get(kept.id) == kept
    cancelled = await store.begin_cancel(kept.id, OTHER)
    spoil(cancelled.task)
    assert await store.get(kept.id) == kept


async def test_changing_a_message_after_it_began_a_turn_changes_nothing_kept(store: Any) -> None:
    turn = await begin(store)
    await turn.say(TaskState.INPUT_REQUIRED)
    await store.release_lease(turn.task.id, turn.epoch)
    new = new_turn(turn.task.id)
    claim = await store.begin_turn(new)
    kept = claim.task.model_copy(deep=True)
    spoil_message(new.message)
    assert await store.get(kept.id) == kept


async def test_changing_an_event_after_its_commit_changes_nothing_kept(store: Any) -> None:
    turn = await begin(store)
    said = rich().history[0]
    first = TaskArtifactUpdateEvent(task_id=turn.task.id, context_id="context", artifact=rich().artifacts[0])
    more = chunk(turn.task, "more", artifact_id="a")
    more.artifact.parts.append(Part(data={"list": [2]}, metadata={"p": 2}))
    more.artifact.metadata = {"a": {"c": [2]}, "z": [3]}
    working = TaskStatusUpdateEvent(
        task_id=turn.task.id, context_id="context", status=TaskStatus(state=TaskState.WORKING, message=said)
    )
    await turn.commit(first, working, more)
    kept = turn.task.model_copy(deep=True)
    logged = [entry.data for entry in await store.read_events(turn.task.id, 0, 9)]
    for event in (first, more):
        for part in event.artifact.parts:
            if part.text is not None:
                part.text = "spoilt"
        spoil_artifact(event.artifact)
    spoil_message(said)
    working.status.state = TaskState.FAILED
    spoil(turn.task)
    assert await store.get(kept.id) == kept
    assert [entry.data for entry in await store.read_events(kept.id, 0, 9)] == logged
    # The stored state is the one that was committed: the turn goes on.
    turn.task = kept.model_copy(deep=True)
    await turn.say(TaskState.COMPLETED)


async def test_changing_an_event_or_a_delta_after_it_was_stored_by_itself_changes_nothing_kept(store: Any) -> None:
    task = rich()
    await store.save(task)
    delta = ArtifactDelta(Artifact(artifact_id="a", parts=[Part(data={"list": [1]})]), append=True)
    task.artifacts[0].parts.append(Part(data={"list": [1]}))
    await store.save_artifact_delta(task, delta)
    kept = task.model_copy(deep=True)
    spoil_artifact(delta.artifact)
    spoil(task)
    assert await store.get(kept.id) == kept
    event = status(kept, TaskState.WORKING, "said")
    await store.append_event(kept.id, 1, event)
    found = await store.get(kept.id)
    event.status.state = TaskState.FAILED
    assert event.status.message is not None
    spoil_message(event.status.message)
    assert await store.get(kept.id) == found


async def test_a_value_that_was_returned_does_not_follow_what_happens_later(store: Any) -> None:
    turn = await begin(store)
    await turn.commit(chunk(turn.task, "one"))
    found = await store.get(turn.task.id)
    page = await store.list(ListTasksRequest(include_artifacts=True))
    entries = await store.read_events(turn.task.id, 0, 10)
    before = (found.model_copy(deep=True), page.model_copy(deep=True), [entry.data for entry in entries])
    await turn.commit(chunk(turn.task, "two"), status(turn.task, TaskState.WORKING, "on it"))
    await turn.say(TaskState.COMPLETED, "done")
    await store.delete(turn.task.id)
    assert (found, page, [entry.data for entry in entries]) == before


@pytest.mark.parametrize("deltas", ["other-parts", "other-order", "other-history", "other-status", "other-metadata"])
async def test_a_delta_that_does_not_tell_the_whole_change_is_saved_whole(store: Any, deltas: str) -> None:
    task = a_task(TaskState.WORKING, artifacts=[Artifact(artifact_id=name, parts=[Part(text=name)]) for name in "ab"])
    await store.save(task)
    task.artifacts[0].parts.append(Part(text="told"))
    match deltas:
        case "other-parts":
            task.artifacts[1].parts.append(Part(text="untold"))
        case "other-order":
            task.artifacts.reverse()
        case "other-history":
            task.history.append(a_message("untold"))
        case "other-status":
            task.status.state = TaskState.INPUT_REQUIRED
        case _:
            task.metadata = {"untold": True}
    told = ArtifactDelta(Artifact(artifact_id="a", parts=[Part(text="told")]), append=True)
    await store.save_artifact_delta(task, told)
    assert await store.get(task.id) == task


async def test_a_stranger_changes_nothing_by_the_remaining_methods(store: Any) -> None:
    acme = store.for_owner(Owner("acme", "alice"))
    turn = await begin(acme, key="k" * 16)
    kept = turn.task.model_copy(deep=True)
    for stranger in (store, store.for_owner(Owner("acme", "bob")), store.for_owner(Owner("other", "alice"))):
        spoilt = kept.model_copy(deep=True)
        spoilt.artifacts.append(Artifact(artifact_id="x", parts=[Part(text="x")]))
        with pytest.raises(FencedError):
            await stranger.save_artifact_delta(spoilt, ArtifactDelta(spoilt.artifacts[0], append=False))
        with pytest.raises(FencedError):
            await stranger.create_task(new_task(spoilt))
        assert await stranger.event_log_covers(kept.id, 0)
        assert await stranger.claim_idempotency_key("k" * 16, "another", "elsewhere") == KeyClaimed()
        await stranger.release_idempotency_key("k" * 16)
    assert await acme.get(kept.id) == kept
    assert await acme.last_event_seq(kept.id) == 1
    assert (await acme.claim_idempotency_key("k" * 16, kept.history[0].message_id, "other")).task_id == kept.id
