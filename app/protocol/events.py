"""Events as the log keeps them: one JSON line each, the `StreamResponse` that a client reads."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from app.protocol.extensions import TURN_MESSAGE_METADATA
from app.protocol.lifecycle import Event, payload
from app.protocol.protojson import MAX_ENTRY_DEPTH, is_deeper_than, to_dict, to_json
from app.protocol.types import (
    Message,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

Clock = Callable[[], datetime]
"""Says what time it is: aware, UTC, whole milliseconds."""


def utc_now() -> datetime:
    """The system's time, cut to the milliseconds that the wire carries."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


class Update(NamedTuple):
    """An event with its bytes in the log."""

    event: Event
    data: bytes


ARTIFACT_UPDATE_PREFIX: Final = b'{"artifactUpdate":'
STATUS_UPDATE_PREFIX: Final = b'{"statusUpdate":'
TASK_PREFIX: Final = b'{"task":'
MESSAGE_PREFIX: Final = b'{"message":'
_PREFIXES: Final[dict[type, bytes]] = {
    TaskArtifactUpdateEvent: ARTIFACT_UPDATE_PREFIX,
    TaskStatusUpdateEvent: STATUS_UPDATE_PREFIX,
    Task: TASK_PREFIX,
    Message: MESSAGE_PREFIX,
}


def encode_event(event: Event) -> bytes:
    """The event as a `StreamResponse` in ProtoJSON, one line of UTF-8.

    Raises:
        ValueError: it holds text that no store can keep (NUL, a lone surrogate).
    """
    return _PREFIXES[type(event)] + to_json(event) + b"}"


def decode_event(data: bytes) -> Event:
    """The reverse of `encode_event`."""
    return payload(StreamResponse.model_validate_json(data))


def update_of(event: Event) -> Update:
    """The event with its bytes, as an entry of the log that `decode_event` can read.

    Raises:
        ValueError: as `encode_event`, or it is nested deeper than `MAX_ENTRY_DEPTH`.
    """
    data = encode_event(event)
    if is_deeper_than(MAX_ENTRY_DEPTH, data):
        raise ValueError(f"the event's JSON is nested more than {MAX_ENTRY_DEPTH} levels deep")
    return Update(event, data)


def begin_turn_update(task: Task, message: Message, now: datetime) -> Update:
    """The entry that begins a later turn: WORKING, carrying the user's message for the history."""
    return update_of(
        TaskStatusUpdateEvent(
            task_id=task.id,
            context_id=task.context_id,
            status=TaskStatus(state=TaskState.WORKING, timestamp=now),
            metadata={TURN_MESSAGE_METADATA: to_dict(message)},
        )
    )
