"""The rules of a task's life: which states end it, and how an event changes it."""

from typing import Final

from pydantic_core import to_json

from app.protocol.extensions import TURN_MESSAGE_METADATA
from app.protocol.types import (
    Artifact,
    Message,
    Part,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

TERMINAL: Final = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})
"""States that are final (A2A 4.1.3)."""

INTERRUPTED: Final = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})
"""States in which the task waits for its caller."""

TURN_ENDING: Final = TERMINAL | INTERRUPTED
"""States that end a blocking send and a `message:stream` (A2A 3.2.2, 11.7)."""

Event = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
"""What a `StreamResponse` carries."""


def payload(response: StreamResponse) -> Event:
    """The one member that is set."""
    event = response.artifact_update or response.status_update or response.task or response.message
    assert event is not None  # noqa: S101 - the model's validator guarantees it
    return event


def fold(task: Task, event: Event) -> Task:
    """Apply one event to a task, in place, and return the task as it is afterwards.

    A `Task` replaces what was there. A status update moves the message of the status before it into the history, and
    the message that began a turn after it. `append` adds parts to the artifact of that id, creating it if it is not
    there, and never merges text. A bare `Message` is the whole answer: the task that stood for it is COMPLETED.
    """
    if isinstance(event, TaskArtifactUpdateEvent):
        _fold_artifact(task.artifacts, event)
    elif isinstance(event, TaskStatusUpdateEvent):
        if task.status.message is not None:
            task.history.append(task.status.message)
        if event.metadata and (message := event.metadata.get(TURN_MESSAGE_METADATA)):
            task.history.append(Message.model_validate_json(to_json(message)))
        task.status = event.status
    elif isinstance(event, Task):
        return copy_task(event)
    else:
        task.status = TaskStatus(state=TaskState.COMPLETED, message=event, timestamp=task.status.timestamp)
    return task


def _fold_artifact(artifacts: list[Artifact], event: TaskArtifactUpdateEvent) -> None:
    changed = event.artifact
    # The artifact being streamed is the newest in nearly every case.
    for index in range(len(artifacts) - 1, -1, -1):
        held = artifacts[index]
        if held.artifact_id == changed.artifact_id:
            if event.append:
                held.parts.extend(changed.parts)
                if changed.metadata:
                    held.metadata = {**(held.metadata or {}), **changed.metadata}
                held.extensions.extend(uri for uri in changed.extensions if uri not in held.extensions)
            else:
                artifacts[index] = _copy_artifact(changed)
            return
    artifacts.append(_copy_artifact(changed))


def append_part(task: Task, artifact_id: str, part: Part) -> None:
    """What `fold` does with an event that appends one part to an artifact."""
    for held in reversed(task.artifacts):
        if held.artifact_id == artifact_id:
            held.parts.append(part)
            return
    task.artifacts.append(Artifact(artifact_id=artifact_id, parts=[part]))


def _copy_artifact(artifact: Artifact) -> Artifact:
    return artifact.model_copy(
        update={"parts": list(artifact.parts), "extensions": list(artifact.extensions)},
    )


def copy_task(task: Task) -> Task:
    """A copy that shares only messages and parts, which are values: nothing in this code base changes them."""
    return task.model_copy(
        update={
            "status": task.status.model_copy(),
            "artifacts": [_copy_artifact(artifact) for artifact in task.artifacts],
            "history": list(task.history),
        }
    )


def trim_history(task: Task, length: int | None) -> Task:
    """The task with at most the newest `length` messages; `None` leaves it as it is (A2A 3.2.4)."""
    if length is None or len(task.history) <= length:
        return task
    return task.model_copy(update={"history": task.history[-length:] if length else []})
