"""Events as the log keeps them: one JSON line each, the `StreamResponse` that a client reads."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from app.protocol.extensions import TURN_MESSAGE_METADATA
from app.protocol.lifecycle import Event, payload
from app.protocol.protojson import MAX_ENTRY_DEPTH, is_deeper_than, text_to_json, to_dict, to_json
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

Clock = Callable[[], datetime]
"""Says what time it is: aware, UTC, whole milliseconds."""


def utc_now() -> datetime:
    """The system's time, cut to the milliseconds that the wire carries."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


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


class Update:
    """An event as the log has it: its bytes, and the event itself when asked for."""

    __slots__ = ("data", "decoded")

    def __init__(self, data: bytes, event: Event | None = None) -> None:
        self.data = data
        """A `StreamResponse` in ProtoJSON, one line."""
        self.decoded = event
        """The event, if it was at hand or has been asked for."""

    @property
    def event(self) -> Event:
        """The event; to be read, never changed."""
        if self.decoded is None:
            self.decoded = decode_event(self.data)
        return self.decoded

    @property
    def is_chunk(self) -> bool:
        """Whether it changes an artifact and nothing else."""
        return self.data.startswith(ARTIFACT_UPDATE_PREFIX)

    @property
    def is_reply(self) -> bool:
        """Whether it is a bare Message, which ends a task that nobody sees."""
        return self.data.startswith(MESSAGE_PREFIX)

    @property
    def state(self) -> TaskState | None:
        """The state the task is in from this event on; `None` if it says nothing of it."""
        if self.is_chunk:
            return None
        event = self.event
        return event.status.state if isinstance(event, Task | TaskStatusUpdateEvent) else TaskState.COMPLETED

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Update) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)


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
    return Update(data, event)


class TextChunks:
    """Writes the pieces of a streamed text, each appended to an artifact as one part.

    What it makes is what `update_of` would, without a model for every level.
    """

    __slots__ = ("_after", "_before")

    def __init__(self, task: Task, artifact_id: str) -> None:
        empty = Artifact(artifact_id=artifact_id, parts=[Part(text="")])
        event = TaskArtifactUpdateEvent(task_id=task.id, context_id=task.context_id, artifact=empty, append=True)
        before, _, self._after = encode_event(event).rpartition(b'""')
        self._before = before

    def update(self, text: str) -> Update:
        """The piece with this text.

        Raises:
            ValueError: no store can keep the text (NUL, a lone surrogate).
        """
        return Update(self._before + text_to_json(text) + self._after)


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
