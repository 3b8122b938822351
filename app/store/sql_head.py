"""A task's head row in memory, and how a task is laid out over the tables."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pydantic import JsonValue, TypeAdapter

from app.protocol.events import decode_event
from app.protocol.identity import Owner
from app.protocol.lifecycle import TERMINAL, fold
from app.protocol.protojson import to_json
from app.protocol.types import Message, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus
from app.store.listing import milliseconds
from app.store.scripts import Row
from app.store.snapshots import decode_artifacts
from app.store.tables import context_digest, owner_digest

_STRUCT: Final = TypeAdapter(dict[str, JsonValue])
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def encode_struct(struct: dict[str, JsonValue] | None) -> bytes | None:
    """A JSON object, if there is one."""
    return None if struct is None else _STRUCT.dump_json(struct)


def compose(
    task_id: str,
    context_id: str | None,
    status: TaskStatus,
    *,
    metadata: bytes | None,
    messages: Sequence[bytes],
    artifacts: bytes | None = None,
    tail: Sequence[bytes] = (),
) -> Task:
    """The task from its parts: the artifacts of the snapshot, with what the entries of the tail did to them."""
    task = Task(
        id=task_id,
        context_id=context_id,
        status=status,
        artifacts=decode_artifacts(artifacts) if artifacts is not None else [],
        history=[],
        metadata=_STRUCT.validate_json(metadata) if metadata is not None else None,
    )
    for data in tail:
        event = decode_event(data)
        if isinstance(event, TaskArtifactUpdateEvent):
            fold(task, event)
        elif isinstance(event, Task):
            task.artifacts = event.artifacts
    task.history = [Message.model_validate_json(message) for message in messages]
    return task


def compose_status(state: str, status_ms: int, message: bytes | None) -> TaskStatus:
    """The current status from its columns."""
    return TaskStatus(
        state=TaskState(state),
        message=Message.model_validate_json(message) if message is not None else None,
        timestamp=_EPOCH + timedelta(milliseconds=status_ms) if status_ms else None,
    )


class Head:
    """What a transaction knows of a task, and changes."""

    __slots__ = (
        "attempt",
        "cancel_requested",
        "context_id",
        "created_ms",
        "earliest_seq",
        "epoch",
        "fresh",
        "hidden",
        "history_length",
        "id",
        "lease_ms",
        "live",
        "log_bytes",
        "message",
        "metadata",
        "owner",
        "progressed",
        "seq",
        "settled",
        "snapshot_bytes",
        "snapshot_seq",
        "state",
        "status_ms",
        "stored_message",
        "tail_bytes",
        "turn_seq",
        "was",
        "worker",
    )

    id: str
    owner: Owner
    context_id: str | None
    state: TaskState
    status_ms: int
    seq: int
    earliest_seq: int
    snapshot_seq: int
    snapshot_bytes: int
    tail_bytes: int
    log_bytes: int
    history_length: int
    epoch: int
    turn_seq: int
    attempt: int
    worker: str | None
    live: bool
    """Whether a live lease is on the task."""
    lease_ms: int | None
    """The lease from now on: milliseconds, 0 for none, `None` to leave it."""
    cancel_requested: bool
    hidden: bool
    created_ms: int
    message: bytes | None
    """The message of the status, as far as this transaction set it."""
    stored_message: bool
    """Whether the message of the status is the one in the row."""
    metadata: bytes | None
    """Written with a fresh head only."""
    fresh: bool
    """Whether there is no row yet."""
    progressed: bool
    """Whether the log's columns changed."""
    settled: bool
    """Whether status, turn or lease changed."""
    was: tuple[int, int, str]
    """Epoch, seq and state of the row as it was read."""

    @classmethod
    def read(cls, row: Row) -> "Head":
        """From a row of `lock_heads`."""
        head = cls()
        (
            head.id,
            tenant,
            subject,
            head.context_id,
            state,
            head.status_ms,
            head.seq,
            head.earliest_seq,
            head.snapshot_seq,
            head.snapshot_bytes,
            head.tail_bytes,
            head.log_bytes,
            head.history_length,
            head.epoch,
            head.turn_seq,
            head.attempt,
            head.worker,
            cancel_requested,
            hidden,
            head.created_ms,
            stored_message,
            live,
        ) = row
        head.owner = Owner(tenant, subject)
        head.state = TaskState(state)
        head.cancel_requested, head.hidden = bool(cancel_requested), bool(hidden)
        head.stored_message, head.live = bool(stored_message), bool(live)
        head.message = head.metadata = head.lease_ms = None
        head.fresh = head.progressed = head.settled = False
        head.was = (head.epoch, head.seq, head.state)
        return head

    @classmethod
    def make(cls, owner: Owner, task: Task, now_ms: int) -> "Head":
        """Of a task that is not stored yet, with an empty log."""
        head = cls()
        head.id, head.owner = task.id, owner
        head.seq = head.snapshot_seq = head.snapshot_bytes = head.tail_bytes = head.log_bytes = 0
        head.history_length = head.epoch = 0
        head.earliest_seq = head.turn_seq = head.attempt = 1
        head.worker, head.lease_ms, head.live = None, 0, False
        head.created_ms = now_ms
        head.fresh = True
        head.hidden = head.progressed = head.settled = False
        head.was = (0, 0, "")
        head.set_status(task.status)
        head.context_id, head.metadata = task.context_id, encode_struct(task.metadata)
        return head

    @property
    def ended(self) -> bool:
        """Whether the task is in a final state."""
        return self.state in TERMINAL

    def set_status(self, status: TaskStatus) -> None:
        """Replace the status; a final state takes the lease away."""
        self.status_ms = milliseconds(status.timestamp)
        self._set_state(status.state, status.message)

    def set_reply(self, message: Message) -> None:
        """End the task with a bare Message; when its status was recorded stays."""
        self._set_state(TaskState.COMPLETED, message)

    def _set_state(self, state: TaskState, message: Message | None) -> None:
        self.state = state
        self.message = None if message is None else to_json(message)
        self.stored_message = False
        self.settled = True
        if self.ended:
            self.worker, self.lease_ms, self.live = None, 0, False
        self.cancel_requested = False if self.ended or self.fresh else self.cancel_requested

    def take_lease(self, worker: str | None, ttl: float) -> None:
        """Raise the epoch and hold the task for a worker, or for nobody yet."""
        self.epoch += 1
        self.cancel_requested = False
        self.worker = worker
        self.lease_ms = round(ttl * 1000) if worker is not None else 0
        self.live = worker is not None
        self.settled = True

    def insert_row(self) -> tuple[Any, ...]:
        """All columns of `tasks`."""
        return (
            self.id,
            owner_digest(self.owner),
            self.owner.tenant,
            self.owner.subject,
            self.context_id,
            context_digest(self.context_id),
            self.state,
            self.status_ms,
            self.seq,
            self.earliest_seq,
            self.snapshot_seq,
            self.snapshot_bytes,
            self.tail_bytes,
            self.history_length,
            self.epoch,
            self.turn_seq,
            self.attempt,
            self.worker,
            self.lease_ms or 0,
            self.cancel_requested,
            self.created_ms,
            self.metadata,
            self.message,
            self.hidden,
            self.log_bytes,
        )

    def progress_row(self) -> tuple[Any, ...]:
        """Arguments of `advance_heads`."""
        return (
            self.id,
            *self.was,
            self.seq,
            self.earliest_seq,
            self.snapshot_seq,
            self.snapshot_bytes,
            self.tail_bytes,
            self.log_bytes,
        )

    def update_row(self) -> tuple[Any, ...]:
        """Arguments of `update_heads`."""
        return (
            *self.progress_row(),
            self.state,
            self.status_ms,
            self.history_length,
            self.epoch,
            self.turn_seq,
            self.attempt,
            self.worker,
            self.cancel_requested,
            self.hidden,
            self.lease_ms,
            not self.stored_message,
            self.message,
        )
