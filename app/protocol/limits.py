"""How much a client may send and an agent may say. The settings carry the same numbers; a test keeps them equal."""

from dataclasses import dataclass
from typing import Final

from app.protocol.events import Update
from app.protocol.lifecycle import TERMINAL
from app.protocol.protojson import MAX_ID_LENGTH
from app.protocol.types import Task


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """What bounds the events of a task."""

    event_bytes: int = 1024 * 1024
    """Of one event's JSON."""
    artifacts: int = 1_000
    """Of one task."""
    events: int = 50_000
    """Of one task over all its turns, by position in the log; the event that ends it comes in addition."""
    bytes: int = 50_000_000
    """Of all these events' JSON; the event that ends the task comes in addition."""
    id_length: int = MAX_ID_LENGTH
    """Of an artifact's id, in characters."""


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """What bounds a client's message beside the size of the body."""

    metadata_bytes: int = 1024 * 1024
    """Of the message's metadata as JSON, and of the request's."""
    parts: int = 1_000
    id_length: int = MAX_ID_LENGTH
    """Of each id in a message, in characters."""


TURN_LIMITS: Final = TurnLimits()
MESSAGE_LIMITS: Final = MessageLimits()


class LimitError(ValueError):
    """What an agent said is over a limit of this server; nothing of it was taken, and something else may be said."""


class TurnMeter:
    """Counts what a turn says."""

    __slots__ = ("_bytes", "_limits", "_seq")

    def __init__(self, limits: TurnLimits, head: int, log_bytes: int) -> None:
        """`head` and `log_bytes`: the newest position of the task's log, and the bytes of its entries so far."""
        self._limits = limits
        self._seq = head
        self._bytes = log_bytes

    def over(self, update: Update) -> str | None:
        """Why the task has to end instead of saying this; `None` if it has not.

        Raises:
            LimitError: the event alone is too large.
        """
        limits, size = self._limits, len(update.data)
        if size > limits.event_bytes:
            raise LimitError(f"the event has {size} bytes and may have {limits.event_bytes}; write it in pieces")
        if self._seq < limits.events and self._bytes + size <= limits.bytes:
            return None
        if update.state in TERMINAL:
            return None
        most = f"{limits.events} events" if self._seq >= limits.events else f"{limits.bytes} bytes of events"
        return f"The task failed because it has more than {most}, the most that this server keeps of one."

    def add(self, size: int) -> None:
        """Count an event that was taken."""
        self._seq += 1
        self._bytes += size

    def check_new_artifact(self, task: Task, artifact_id: str) -> None:
        """Refuse what is written whole or first, not a piece that is appended.

        Raises:
            LimitError: the task has as many artifacts as it may, and this is none of them; or the id is too long.
        """
        limits = self._limits
        if len(artifact_id) > limits.id_length:
            raise LimitError(f"the id of an artifact has at most {limits.id_length} characters")
        if len(task.artifacts) >= limits.artifacts and all(held.artifact_id != artifact_id for held in task.artifacts):
            raise LimitError(f"a task has at most {limits.artifacts} artifacts")
