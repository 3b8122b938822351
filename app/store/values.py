"""What goes into a task store and what comes out of it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from app.protocol.events import Update
from app.protocol.lifecycle import Event
from app.protocol.push import TaskPushNotificationConfig
from app.protocol.types import Artifact, Message, Task, TaskState

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def nameable(text: str) -> bool:
    """Whether every store can be asked for this: no NUL, no lone surrogate."""
    return "\0" not in text and (text.isascii() or not _SURROGATE.search(text))


def check_claim(key: str, message_id: str, task_id: str = "") -> None:
    """Let no claim of a key pass that some store cannot hold.

    Raises:
        ValueError: a part of it contains NUL or a lone surrogate.
    """
    if not (nameable(key) and nameable(message_id) and nameable(task_id)):
        raise ValueError("an idempotency key must not contain NUL or lone surrogates")


class LogEntry(Update):
    """One event of a task's log with its position."""

    __slots__ = ("seq",)

    def __init__(self, seq: int, data: bytes, event: Event | None = None) -> None:
        self.seq = seq
        """Position in the task's log: 1 for the Task as submitted, then rising by exactly 1."""
        self.data = data
        self.decoded = event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LogEntry) and (self.seq, self.data) == (other.seq, other.data)

    def __hash__(self) -> int:
        return hash((self.seq, self.data))

    def __repr__(self) -> str:
        return f"LogEntry({self.seq}, {self.data!r})"


class ArtifactDelta(NamedTuple):
    """What changed in one artifact of a task: these parts were appended, or the whole replaced."""

    artifact: Artifact
    append: bool


class IdempotencyKey(NamedTuple):
    """A key as a claim wants it: the key, and the message whose identity makes a retry a retry."""

    key: str
    message_id: str


class Lease(NamedTuple):
    """Who will run a turn, and for how long that holds without renewal."""

    worker: str
    """Names one server process."""
    ttl: float
    """Seconds, by the store's clock."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The turn is the caller's to run."""

    task: Task
    """As of the entry that began the turn; the caller's own copy."""
    epoch: int
    """Carried by every commit of the turn; a newer epoch makes this one stale. 0 where nothing is fenced."""
    first_seq: int
    """The position of the entry that began the turn."""
    entry: LogEntry
    """That entry."""
    attempt: int = 1
    """1, or more where an earlier run of the turn was lost."""
    head: int = 0
    """The newest position of the log; equal to `first_seq` unless the turn was taken over."""
    log_bytes: int = 0
    """Bytes of all entries of the log there ever were; 0 from a store that does not count them."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The key was claimed by the same message before; nothing was done."""

    task_id: str
    first_seq: int
    """The position of the entry that began the turn the key stands for; 0 where the store cannot say."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The key was claimed by another message; nothing was done."""


@dataclass(frozen=True, slots=True)
class Busy:
    """A turn of the task is running; nothing was done."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The task is in a final state; nothing was done."""

    state: TaskState


@dataclass(frozen=True, slots=True)
class ContextMismatch:
    """The message names another context than the task's; nothing was done."""


@dataclass(frozen=True, slots=True)
class NotFound:
    """This owner has no such task; nothing was done."""


@dataclass(frozen=True, slots=True)
class CancelFlagged:
    """A live lease runs the task: it has been asked to stop."""


@dataclass(frozen=True, slots=True)
class KeyClaimed:
    """The key is now held for this task."""


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to be created, with the turn that begins it."""

    task: Task
    """SUBMITTED, its message in the history."""
    key: IdempotencyKey | None = None
    lease: Lease | None = None
    """`None` leaves the task for whoever takes it."""
    hidden: bool = False
    """Whether nobody sees the task before its first entry that is no bare Message, since it may never be one."""
    push_config: TaskPushNotificationConfig | None = None
    """A webhook that hears of the task from its first entry on; it has both ids."""


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A message for a task that exists."""

    task_id: str
    message: Message
    context_id: str | None = None
    """Must equal the task's where it is given (A2A 3.4.3)."""
    key: IdempotencyKey | None = None
    lease: Lease | None = None
    push_config: TaskPushNotificationConfig | None = None
    """A webhook that hears of the task from the turn's first entry on; it has both ids."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Updates of one task, to be stored as one."""

    task_id: str
    epoch: int
    updates: Sequence[Update]
    task: Task
    """As it is after the updates. The store reads it before it first suspends and never keeps or changes it."""
    after_seq: int | None = None
    """The head of the log as the caller knows it, if it does.

    A commit that is tried again after its answer was lost finds its first entries after this position, with the same
    epoch and bytes; those count as written, and only the rest is.
    """


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A task and where it stands in its log, from one read."""

    task: Task
    seq: int
    """The newest position; 0 where the store keeps no log."""
    earliest_seq: int
    """The oldest position still kept; 0 where the store keeps no log or cannot say."""
    epoch: int = 0
    running: bool = False
    """Whether a live lease is on the task."""
    hidden: bool = False
    """Whether there is no such task to its owner: it has said nothing yet, or answered with a bare Message."""


class FencedError(Exception):
    """A commit came too late: a newer epoch holds the task, or the task has ended or is gone. Nothing was stored."""


class StoreStartError(Exception):
    """The store cannot be opened; the message is one sentence that says what to change."""


class EventLogGapError(Exception):
    """`append_event` was given a position beyond the end of the log."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What `purge` removes; ages in seconds."""

    terminal_age: float
    """Tasks in a final state whose status is older than this go, with log and configurations."""
    key_age: float = 86_400.0
    """Keys older than this go, if their task is gone."""
    batch: int = 500
    """Tasks a transaction."""


@dataclass(frozen=True, slots=True)
class Purged:
    """What `purge` removed."""

    tasks: int = 0
    keys: int = 0
