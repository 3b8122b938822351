"""One task as `MemoryTaskStore` keeps it: bytes, so that nobody can change what is stored, and a task costs little.

A task is its parts when they were last written down, with the changes since folded in by whoever reads it. What nobody
reads is never put together.
"""

from typing import NamedTuple, Self

from app.protocol.events import ARTIFACT_UPDATE_PREFIX, TASK_PREFIX, Update, decode_event, encode_event
from app.protocol.identity import Owner
from app.protocol.lifecycle import TERMINAL, fold
from app.protocol.protojson import to_json
from app.protocol.types import Message, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent
from app.store.listing import milliseconds
from app.store.snapshots import SNAPSHOT_BYTES, decode_artifacts, encode_artifacts
from app.store.values import ArtifactDelta, LogEntry

Position = tuple[int, str]
"""Place in a listing: newest status first, ties by id."""


class Place(NamedTuple):
    """Where a task stands in the listings."""

    position: Position
    context_id: str | None
    state: TaskState


class Parts(NamedTuple):
    """A task written down."""

    place: Place
    head: bytes
    """All but the artifacts."""
    artifacts: bytes | None

    @classmethod
    def of(cls, task: Task) -> Self:
        """Write a task down.

        Raises:
            ValueError: it holds text that no store can keep.
        """
        head = to_json(task.model_copy(update={"artifacts": []}) if task.artifacts else task)
        return cls(place_of(task), head, encode_artifacts(task.artifacts) if task.artifacts else None)

    @classmethod
    def of_entry(cls, task: Task, entry: bytes) -> Self:
        """The same for a task whose first log entry is at hand."""
        return cls.of(task) if task.artifacts else cls(place_of(task), entry[len(TASK_PREFIX) : -1], None)


def place_of(task: Task) -> Place:
    """Where a task belongs."""
    return Place((-milliseconds(task.status.timestamp), task.id), task.context_id, task.status.state)


class Record:
    """One task: its parts, its lease, its log."""

    __slots__ = (
        "_changed_bytes",
        "_changes",
        "_parts",
        "_shape",
        "attempt",
        "cancel_requested",
        "earliest",
        "entries",
        "epoch",
        "hidden",
        "id",
        "lease_until",
        "log_bytes",
        "now",
        "owner",
        "place",
        "turn_seq",
        "worker",
    )

    def __init__(self, owner: Owner, parts: Parts) -> None:
        self.owner = owner
        self.id = parts.place.position[1]
        self.entries: list[bytes] = []
        self.earliest = 1
        """Position of the first entry kept."""
        self.log_bytes = 0
        """Bytes of all entries there ever were."""
        self.epoch = 0
        self.worker: str | None = None
        self.lease_until = 0.0
        """0 where there is no lease: never taken, or given back."""
        self.cancel_requested = False
        self.hidden = False
        """Whether no listing has the task."""
        self.attempt = 1
        self.turn_seq = 1
        self.place = parts.place
        """Where the listings have the task."""
        self.put(parts)

    # -- the task

    def put(self, parts: Parts) -> None:
        """Make the task what was written down."""
        self._parts = parts
        self._changes: list[bytes] = []
        self._changed_bytes = 0
        self._shape: _Shape | None = None
        self.now = parts.place
        """Where the task belongs by what it now is."""

    def task(self, *, artifacts: bool = True) -> Task:
        """The task as it is now, made for the caller; without its artifacts if they are not wanted."""
        task = Task.model_validate_json(self._parts.head)
        if artifacts and self._parts.artifacts is not None:
            task.artifacts = decode_artifacts(self._parts.artifacts)
        for data in self._changes:
            if artifacts or not data.startswith(ARTIFACT_UPDATE_PREFIX):
                task = fold(task, decode_event(data))
        if not artifacts:
            task.artifacts = []
        return task

    @property
    def long_unwritten(self) -> bool:
        """Whether the changes since the task was written down have become more than a reader should fold."""
        written = self._parts.artifacts
        return self._changed_bytes > max(SNAPSHOT_BYTES, 0 if written is None else len(written))

    @property
    def ended(self) -> bool:
        """Whether the task is in a final state."""
        return self.now.state in TERMINAL

    def add_delta(self, task: Task, delta: ArtifactDelta) -> bool:
        """Apply a change to one artifact if it makes the task equal to `task`; says whether it did.

        What it costs does not depend on how much the artifacts hold.
        """
        shape = self._shape or _Shape.of(self.task())
        wanted = _Shape.of(task)
        expected = dict(shape.parts)
        changed = delta.artifact
        before = expected.get(changed.artifact_id, 0) if delta.append else 0
        expected[changed.artifact_id] = before + len(changed.parts)
        # As lists: the order of artifacts counts too.
        if shape.head != wanted.head or list(expected.items()) != list(wanted.parts.items()):
            return False
        event = TaskArtifactUpdateEvent(task_id=task.id, artifact=delta.artifact, append=delta.append)
        self._change(encode_event(event))
        self._shape = wanted
        return True

    def _change(self, data: bytes) -> None:
        self._changes.append(data)
        self._changed_bytes += len(data)
        self._shape = None

    # -- its log

    @property
    def head(self) -> int:
        """Position of the newest entry; 0 if there is none."""
        return self.earliest + len(self.entries) - 1

    def write(self, update: Update) -> None:
        """Put an update at the end of the log."""
        data = update.data
        self.entries.append(data)
        self.log_bytes += len(data)
        self._change(data)
        if update.is_chunk:
            return
        event = update.event
        if isinstance(event, TaskStatusUpdateEvent):
            position = (-milliseconds(event.status.timestamp), self.id)
            self.now = Place(position, self.now.context_id, event.status.state)
        elif isinstance(event, Task):
            self.put(Parts.of_entry(event, data))
        elif isinstance(event, Message):
            self.now = self.now._replace(state=TaskState.COMPLETED)

    def after(self, seq: int, limit: int) -> list[LogEntry]:
        """Entries after a position."""
        start = max(0, seq - self.earliest + 1)
        first = self.earliest + start
        return [LogEntry(first + number, data) for number, data in enumerate(self.entries[start : start + limit])]

    def truncate(self, keep: int) -> None:
        """Drop the oldest entries, keeping `keep` and never less than one.

        A quarter more is let stand before any is dropped, so that the cost of an entry stays the same.
        """
        surplus = len(self.entries) - max(1, keep)
        if surplus > keep // 4:
            del self.entries[:surplus]
            self.earliest += surplus


class _Shape(NamedTuple):
    """What a task looks like from afar."""

    head: bytes
    """All but the artifacts."""
    parts: dict[str, int]
    """How many parts each artifact has, in their order."""

    @classmethod
    def of(cls, task: Task) -> Self:
        head = to_json(task.model_copy(update={"artifacts": []}))
        return cls(head, {artifact.artifact_id: len(artifact.parts) for artifact in task.artifacts})
