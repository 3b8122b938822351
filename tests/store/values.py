"""Short ways to make what stores are given."""

import uuid
from datetime import UTC, datetime
from typing import Any

from app.protocol import (
    Artifact,
    Event,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    copy_task,
    fold,
)
from app.protocol.events import Update, update_of
from app.store.base import Claimed, Commit, IdempotencyKey, Lease, NewTask, NewTurn

WORKER = Lease("worker-1", 15.0)
OTHER = Lease("worker-2", 15.0)
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def a_message(text: str = "hello", **members: Any) -> Message:
    return Message(message_id=f"m-{uuid.uuid4()}", role=Role.USER, parts=[Part(text=text)], **members)


def a_task(state: TaskState = TaskState.SUBMITTED, time: datetime = T0, **members: Any) -> Task:
    members = {"id": str(uuid.uuid4()), "context_id": "context", "history": [a_message()], **members}
    return Task(status=TaskStatus(state=state, timestamp=time), **members)


def status(task: Task, state: TaskState, text: str | None = None, time: datetime = T0) -> TaskStatusUpdateEvent:
    message = None
    if text is not None:
        message = Message(message_id=f"a-{text}", role=Role.AGENT, parts=[Part(text=text)])
    return TaskStatusUpdateEvent(
        task_id=task.id, context_id=task.context_id, status=TaskStatus(state=state, message=message, timestamp=time)
    )


def chunk(task: Task, text: str, *, append: bool = True, artifact_id: str = "answer") -> TaskArtifactUpdateEvent:
    artifact = Artifact(artifact_id=artifact_id, parts=[Part(text=text)])
    return TaskArtifactUpdateEvent(
        task_id=task.id, context_id=task.context_id, artifact=artifact, append=append or None
    )


def new_task(task: Task | None = None, key: str | None = None, lease: Lease | None = WORKER) -> NewTask:
    task = task or a_task()
    return NewTask(task, IdempotencyKey(key, task.history[0].message_id) if key else None, lease)


def new_turn(
    task_id: str, text: str = "more", key: str | None = None, lease: Lease | None = WORKER, **members: Any
) -> NewTurn:
    message = a_message(text)
    return NewTurn(
        task_id, message, key=IdempotencyKey(key, message.message_id) if key else None, lease=lease, **members
    )


class Turn:
    """A turn as a runner has it: the working task, the epoch, the head it knows."""

    def __init__(self, store: Any, claimed: Claimed) -> None:
        self.store = store
        self.task = copy_task(claimed.task)
        self.epoch = claimed.epoch
        self.head = claimed.head

    async def commit(self, *events: Event) -> int:
        updates: list[Update] = []
        for event in events:
            updates.append(update_of(event))
            self.task = fold(self.task, event)
        self.head = await self.store.commit(Commit(self.task.id, self.epoch, updates, self.task, self.head))
        return self.head

    async def say(self, state: TaskState, text: str | None = None, time: datetime = T0) -> int:
        return await self.commit(status(self.task, state, text, time))


async def begin(store: Any, task: Task | None = None, **options: Any) -> Turn:
    claimed = await store.create_task(new_task(task, **options))
    assert isinstance(claimed, Claimed)
    return Turn(store, claimed)


async def ended(store: Any, state: TaskState = TaskState.COMPLETED, time: datetime = T0, **members: Any) -> Turn:
    turn = await begin(store, a_task(time=time, **members))
    await turn.say(state, time=time)
    return turn
