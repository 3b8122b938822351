"""Copies for `MemoryTaskStore`, which keeps objects where other stores keep bytes.

Pydantic's deep copy takes many times as long. What is copied here is all that a caller could change in place, save the
parts of artifacts that hold no JSON: a streamed answer has thousands of them, and they are values.
"""

from typing import Any, Final, TypeVar

from pydantic import BaseModel

from app.protocol.lifecycle import Event, fold
from app.protocol.types import (
    Artifact,
    Message,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatus,
    TaskStatusUpdateEvent,
)

M = TypeVar("M", bound=BaseModel)
_set: Final = object.__setattr__


def own_task(task: Task) -> Task:
    """A copy that nobody else can change; it shares with `task` only artifact parts of text, bytes or a URL."""
    members = task.__dict__.copy()
    members["status"] = _status(task.status)
    members["history"] = [_message(message) for message in task.history]
    if task.artifacts:
        members["artifacts"] = [_artifact(artifact) for artifact in task.artifacts]
    else:
        members["artifacts"] = []
    if task.metadata is not None:
        members["metadata"] = _json(task.metadata)
    return _clone(task, members)


def own_fold(task: Task, event: Event) -> Task:
    """`fold` into a stored task, which then shares nothing with the event, parts of artifacts included."""
    if isinstance(event, Task):
        return own_task(event)
    folded = fold(task, event)
    if isinstance(event, TaskStatusUpdateEvent):
        folded.status = _status(event.status)
    elif isinstance(event, TaskArtifactUpdateEvent):
        _own_artifact(folded.artifacts, event.artifact)
    return folded


def _own_artifact(artifacts: list[Artifact], changed: Artifact) -> None:
    for held in reversed(artifacts):
        if held.artifact_id == changed.artifact_id:
            if changed.parts:
                # They are the last ones now, whether they were appended or replaced what was there.
                held.parts[-len(changed.parts) :] = [_part(part) for part in changed.parts]
            if changed.metadata is not None:
                held.metadata = _json(held.metadata)
            return


def _status(status: TaskStatus) -> TaskStatus:
    members = status.__dict__.copy()
    if status.message is not None:
        members["message"] = _message(status.message)
    return _clone(status, members)


def _message(message: Message) -> Message:
    members = message.__dict__.copy()
    members["parts"] = [_part(part) for part in message.parts]
    members["extensions"] = message.extensions.copy()
    members["reference_task_ids"] = message.reference_task_ids.copy()
    if message.metadata is not None:
        members["metadata"] = _json(message.metadata)
    return _clone(message, members)


def _artifact(artifact: Artifact) -> Artifact:
    members = artifact.__dict__.copy()
    members["parts"] = [part if part.data is None and part.metadata is None else _part(part) for part in artifact.parts]
    members["extensions"] = artifact.extensions.copy()
    if artifact.metadata is not None:
        members["metadata"] = _json(artifact.metadata)
    return _clone(artifact, members)


def _part(part: Part) -> Part:
    members = part.__dict__.copy()
    if part.data is not None:
        members["data"] = _json(part.data)
    if part.metadata is not None:
        members["metadata"] = _json(part.metadata)
    return _clone(part, members)


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_json(member) for member in value]
    return value


def _clone(model: M, members: dict[str, Any]) -> M:
    # What `model_copy` does for a model without extra or private members, in a quarter of the time.
    copy = object.__new__(type(model))
    _set(copy, "__dict__", members)
    _set(copy, "__pydantic_fields_set__", model.__pydantic_fields_set__.copy())
    _set(copy, "__pydantic_extra__", None)
    _set(copy, "__pydantic_private__", None)
    return copy
