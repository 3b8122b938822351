"""What a stream gives, and the state of one that may have to resume."""

from dataclasses import dataclass

from app.protocol.lifecycle import TERMINAL, TURN_ENDING, Event
from app.protocol.types import Message, Task, TaskState, TaskStatusUpdateEvent


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a stream."""

    event: Event
    id: str | None = None
    """Its position in the peer's log, if the peer keeps one."""
    reset: bool = False
    """The stream was cut and what was missed could not be replayed: this Task replaces all that came before."""
    resumed: bool = False
    """The stream was cut before this event, and has gone on without a hole."""

    @property
    def state(self) -> TaskState | None:
        """The state of the task from here on; `None` if the event says nothing of it."""
        if isinstance(self.event, Task | TaskStatusUpdateEvent):
            return self.event.status.state
        return None


class Progress:
    """How far a stream has come."""

    def __init__(self, *, until_turn_ends: bool) -> None:
        self.task_id: str | None = None
        self.last_event_id: str | None = None
        self.begun = False
        """Whether the peer has shown that it has the task."""
        self.ended = False
        self._ends_on = TURN_ENDING if until_turn_ends else TERMINAL

    def note(self, item: StreamEvent) -> None:
        """Take in an event."""
        event = item.event
        self.begun = True
        if item.id is not None:
            self.last_event_id = item.id
        if isinstance(event, Message):
            self.ended = True
            return
        self.task_id = event.id if isinstance(event, Task) else event.task_id
        if item.state is not None:
            # A handler may go on after AUTH_REQUIRED.
            self.ended = self.ends_with(item)

    def ends_with(self, item: StreamEvent) -> bool:
        """Whether nothing more is to be expected after this event."""
        return item.state in self._ends_on
