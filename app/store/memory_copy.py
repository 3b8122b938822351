"""Copies for `MemoryTaskStore`, which keeps objects where other stores keep bytes.

Pydantic's deep copy takes five times as long. What is copied here is all that a caller could change in place, save the
parts of artifacts that hold no JSON: a streamed answer has thousands of them, and they are values.
"""

from typing import Any, Final, TypeVar

from pydantic import BaseModel

from app.protocol.lifecycle import Event
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
    return _clone(
        task,
        status=_status(task.status),
        artifacts=[_artifact(artifact) for artifact in task.artifacts],
        history=[_message(message) for message in task.history],
        metadata=_json(task.metadata),
    )


def own_event(event: Event) -> Event:
    """A copy to be folded into a stored task: what was committed cannot be changed by whoever committed it."""
    if isinstance(event, TaskArtifactUpdateEvent):
        artifact = _artifact(event.artifact)
        artifact.parts = [_part(part) for part in event.artifact.parts]
        return _clone(event, artifact=artifact)
    if isinstance(event, TaskStatusUpdateEvent):
        return _clone(event, status=_status(event.status))
    return own_task(event) if isinstance(event, Task) else event


def _status(status: TaskStatus) -> TaskStatus:
    return _clone(status, message=None if status.message is None else _message(status.message))


def _message(message: Message) -> Message:
    return _clone(
        message,
        parts=[_part(part) for part in message.parts],
        metadata=_json(message.metadata),
        extensions=list(message.extensions),
        reference_task_ids=list(message.reference_task_ids),
    )


def _artifact(artifact: Artifact) -> Artifact:
    return _clone(
        artifact,
        parts=[part if part.data is None and part.metadata is None else _part(part) for part in artifact.parts],
        metadata=_json(artifact.metadata),
        extensions=list(artifact.extensions),
    )


def _part(part: Part) -> Part:
    return _clone(part, data=_json(part.data), metadata=_json(part.metadata))


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_json(member) for member in value]
    return value


def _clone(model: M, **changes: object) -> M:
    # `model_copy` of a model without extra or private members, in half the time.
    cls = type(model)
    copy = cls.__new__(cls)
    _set(copy, "__dict__", {**model.__dict__, **changes})
    _set(copy, "__pydantic_fields_set__", model.__pydantic_fields_set__.copy())
    _set(copy, "__pydantic_extra__", None)
    _set(copy, "__pydantic_private__", None)
    return copy
