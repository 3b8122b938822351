"""What `MemoryTaskStore` keeps of one owner."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from app.protocol.identity import Owner
from app.protocol.lifecycle import TERMINAL
from app.protocol.requests import ListTasksRequest, ListTasksResponse
from app.protocol.types import Task, TaskState
from app.store.base import LogEntry
from app.store.listing import PageToken, listed, milliseconds, page_size, status_time
from app.store.memory_copy import own_task

K = TypeVar("K")

Position = tuple[int, str]
"""Place in a listing: newest status first, ties by id."""


class Place(NamedTuple):
    """Where a task stands in the listings."""

    position: Position
    context_id: str | None
    state: TaskState


class Record:
    """One task: its head, its lease, its log."""

    __slots__ = (
        "attempt",
        "cancel_requested",
        "earliest",
        "entries",
        "epoch",
        "lease_until",
        "owner",
        "place",
        "task",
        "turn_seq",
        "worker",
    )

    def __init__(self, owner: Owner, task: Task) -> None:
        self.owner = owner
        self.task = task
        self.entries: list[LogEntry] = []
        self.earliest = 1
        """Position of the first entry kept."""
        self.epoch = 0
        self.worker: str | None = None
        self.lease_until = 0.0
        """0 where there is no lease: never taken, or given back."""
        self.cancel_requested = False
        self.attempt = 1
        self.turn_seq = 1
        self.place = self.current_place()

    @property
    def head(self) -> int:
        """Position of the newest entry; 0 if there is none."""
        return self.earliest + len(self.entries) - 1

    @property
    def ended(self) -> bool:
        """Whether the task is in a final state."""
        return self.task.status.state in TERMINAL

    def current_place(self) -> Place:
        """Where the task belongs by what it now is; `place` is where it was put."""
        return Place((-status_time(self.task), self.task.id), self.task.context_id, self.task.status.state)

    def after(self, seq: int, limit: int) -> list[LogEntry]:
        """Entries after a position."""
        start = max(0, seq - self.earliest + 1)
        return self.entries[start : start + limit]

    def truncate(self, keep: int) -> None:
        """Drop the oldest entries, keeping `keep` and never less than one.

        A quarter more is let stand before any is dropped, so that the cost of an entry stays the same.
        """
        surplus = len(self.entries) - max(1, keep)
        if surplus > keep // 4:
            del self.entries[:surplus]
            self.earliest += surplus


class Partition:
    """The tasks of one owner, and how many keys are theirs."""

    __slots__ = ("by_context", "by_state", "index", "keys", "owner", "records")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.records: dict[str, Record] = {}
        self.index: list[Position] = []
        """Positions of all tasks, in order; those of a context and of a state have an index of their own."""
        self.by_context: dict[str | None, list[Position]] = {}
        self.by_state: dict[TaskState, list[Position]] = {}
        self.keys = 0

    def add(self, record: Record) -> None:
        """Take in a task."""
        self.records[record.task.id] = record
        position, context_id, state = record.place
        insort(self.index, position)
        _insert(self.by_context, context_id, position)
        _insert(self.by_state, state, position)

    def move(self, record: Record) -> None:
        """Put a task at the place it now has."""
        old, new = record.place, record.current_place()
        if new == old:
            return
        record.place = new
        moved = new.position != old.position
        if moved:
            del self.index[bisect_left(self.index, old.position)]
            insort(self.index, new.position)
        if moved or new.context_id != old.context_id:
            _discard(self.by_context, old.context_id, old.position)
            _insert(self.by_context, new.context_id, new.position)
        if moved or new.state is not old.state:
            _discard(self.by_state, old.state, old.position)
            _insert(self.by_state, new.state, new.position)

    def remove(self, record: Record) -> None:
        """Forget a task; keys stay."""
        del self.records[record.task.id]
        position, context_id, state = record.place
        del self.index[bisect_left(self.index, position)]
        _discard(self.by_context, context_id, position)
        _discard(self.by_state, state, position)

    def page(self, params: ListTasksRequest) -> ListTasksResponse:
        """One page; raises `InvalidParamsError` for a token of another listing."""
        token = PageToken.decode(self.owner, params)
        size = page_size(params)
        index = self._narrowest(params)
        end = _end(index, params)
        start = 0
        if token is not None:
            start = bisect_left(index, (-token.timestamp, token.task_id + "\0"))
            total = token.total
        elif params.context_id is None or params.status is None:
            total = end
        else:
            total = sum(1 for _ in self._matching(index, params, 0, end))
        found: list[Record] = []
        for record in self._matching(index, params, start, end):
            found.append(record)
            if len(found) > size:
                break
        tasks = [own_task(listed(record.task, params)) for record in found[:size]]
        next_token = ""
        if len(found) > size:
            timestamp, task_id = found[size - 1].place.position
            next_token = PageToken(-timestamp, task_id, total).encode(self.owner, params)
        return ListTasksResponse(tasks=tasks, next_page_token=next_token, page_size=size, total_size=total)

    def _narrowest(self, params: ListTasksRequest) -> list[Position]:
        """The shortest index that holds every task of the listing."""
        index = self.index
        if params.context_id is not None:
            index = self.by_context.get(params.context_id, [])
        if params.status is not None:
            index = min(index, self.by_state.get(params.status, []), key=len)
        return index

    def _matching(self, index: list[Position], params: ListTasksRequest, start: int, end: int) -> Iterator[Record]:
        for number in range(start, end):
            record = self.records[index[number][1]]
            _, context_id, state = record.place
            if params.context_id is not None and context_id != params.context_id:
                continue
            if params.status is not None and state is not params.status:
                continue
            yield record


def _end(index: list[Position], params: ListTasksRequest) -> int:
    if params.status_timestamp_after is None:
        return len(index)
    return bisect_left(index, (-milliseconds(params.status_timestamp_after) + 1, ""))


def _insert(indexes: dict[K, list[Position]], key: K, position: Position) -> None:
    insort(indexes.setdefault(key, []), position)


def _discard(indexes: dict[K, list[Position]], key: K, position: Position) -> None:
    index = indexes[key]
    del index[bisect_left(index, position)]
    if not index:
        del indexes[key]
