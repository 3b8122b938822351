"""Tasks that may turn out to be none: hidden until they say more than a bare Message (A2A 3.1.1)."""

from dataclasses import replace
from typing import Any

import pytest

from app.protocol import Message, Part, Role, TaskState
from app.protocol.requests import ListTasksRequest
from app.store.base import FencedError, Lease, NotFound, Replay, RetentionPolicy
from tests.store.values import OTHER, WORKER, Turn, a_task, chunk, new_task, new_turn, status

DEAD = Lease("worker-1", 0.0)


def a_reply(turn: Turn) -> Message:
    return Message(message_id="reply", context_id=turn.task.context_id, role=Role.AGENT, parts=[Part(text="hello")])


async def hidden(store: Any, key: str | None = None) -> Turn:
    new = new_task(key=key)
    return Turn(store, await store.create_task(replace(new, hidden=True)))


async def is_shown(store: Any, turn: Turn) -> bool:
    snapshot = await store.snapshot(turn.task.id)
    answers = {
        await store.get(turn.task.id) is not None,
        len((await store.list(ListTasksRequest())).tasks) == 1,
        (await store.list(ListTasksRequest(context_id="context"))).total_size == 1,
        await store.count() == 1,
        not snapshot.hidden,
    }
    assert len(answers) == 1
    assert snapshot.seq == turn.head
    return answers == {True}


async def test_a_hidden_task_is_shown_from_its_first_entry_that_is_no_reply(store: Any) -> None:
    for event in ("status", "artifact"):
        turn = await hidden(store)
        assert not await is_shown(store, turn)
        assert await store.begin_turn(new_turn(turn.task.id)) == NotFound()
        assert await store.begin_cancel(turn.task.id, OTHER) == NotFound()
        await turn.commit(chunk(turn.task, "x") if event == "artifact" else status(turn.task, TaskState.FAILED))
        assert await is_shown(store, turn)
        assert await store.get(turn.task.id) == turn.task
        await store.delete(turn.task.id)


async def test_a_task_that_ends_with_a_reply_stays_hidden_and_is_over(store: Any) -> None:
    turn = await hidden(store, key="k" * 16)
    await turn.commit(a_reply(turn))
    assert not await is_shown(store, turn)
    assert await store.begin_turn(new_turn(turn.task.id)) == NotFound()
    assert await store.begin_cancel(turn.task.id, OTHER) == NotFound()
    with pytest.raises(FencedError):
        await turn.commit(chunk(turn.task, "more"))
    entries = await store.read_events(turn.task.id, 1, 9)
    assert [(entry.seq, entry.is_reply, entry.state) for entry in entries] == [(2, True, TaskState.COMPLETED)]
    assert entries[0].event == a_reply(turn)
    message = turn.task.history[0]
    assert await store.create_task(new_task(a_task(history=[message]), key="k" * 16)) == Replay(turn.task.id, 1)
    assert await store.stranded_turns(10) == []
    assert (await store.purge(RetentionPolicy(terminal_age=0.0, key_age=1e9))).tasks == 1
    assert await store.snapshot(turn.task.id) is None


async def test_a_hidden_turn_whose_process_died_is_stranded_like_any(store: Any) -> None:
    new = replace(new_task(lease=DEAD), hidden=True)
    await store.create_task(new)
    (stranded,) = await store.stranded_turns(10)
    turn = Turn(store, await store.take_over(stranded, WORKER))
    await turn.say(TaskState.FAILED)
    assert await is_shown(store, turn)
