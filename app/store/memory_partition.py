"""What `MemoryTaskStore` keeps of one owner."""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from app.protocol.identity import Owner
from app.protocol.lifecycle import TERMINAL
from app.protocol.requests import ListTasksRequest, ListTasksResponse
from app.protocol.types import Task
from app.store.base import LogEntry
from app.store.listing import PageToken, listed, milliseconds, page_size, status_time


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
        "position",
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
        self.cancel_requested = False
        self.attempt = 1
        self.turn_seq = 1
        self.position = (-status_time(task), task.id)
        """Place in the listing: newest status first, ties by id."""

    @property
    def head(self) -> int:
        """Position of the newest entry; 0 if there is none."""
        return self.earliest + len(self.entries) - 1

    @property
    def ended(self) -> bool:
        """Whether the task is in a final state."""
        return self.task.status.state in TERMINAL

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


class KeyRecord(NamedTuple):
    """What an idempotency key stands for."""

    message_id: str
    task_id: str
    first_seq: int
    claimed_at: float


class Partition:
    """The tasks and keys of one owner."""

    __slots__ = ("index", "keys", "owner", "records")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.records: dict[str, Record] = {}
        self.index: list[tuple[int, str]] = []
        """Places of all tasks, in listing order."""
        self.keys: OrderedDict[str, KeyRecord] = OrderedDict()
        """By time of claim, oldest first."""

    def add(self, record: Record) -> None:
        """Take in a task."""
        self.records[record.task.id] = record
        insort(self.index, record.position)

    def move(self, record: Record) -> None:
        """Put a task at the place its status now has."""
        position = (-status_time(record.task), record.task.id)
        if position != record.position:
            self._unplace(record)
            record.position = position
            insort(self.index, position)

    def remove(self, record: Record) -> None:
        """Forget a task; keys stay."""
        del self.records[record.task.id]
        self._unplace(record)

    def _unplace(self, record: Record) -> None:
        del self.index[bisect_left(self.index, record.position)]

    def page(self, params: ListTasksRequest) -> ListTasksResponse:
        """One page; raises `InvalidParamsError` for a token of another listing."""
        token = PageToken.decode(self.owner, params)
        size = page_size(params)
        total = token.total if token is not None else self._count(params)
        start = 0
        if token is not None:
            start = bisect_left(self.index, (-token.timestamp, token.task_id + "\0"))
        found: list[Record] = []
        for record in self._matching(params, start):
            found.append(record)
            if len(found) > size:
                break
        tasks = [listed(record.task, params) for record in found[:size]]
        next_token = ""
        if len(found) > size:
            last = found[size - 1]
            next_token = PageToken(-last.position[0], last.task.id, total).encode(self.owner, params)
        return ListTasksResponse(tasks=tasks, next_page_token=next_token, page_size=size, total_size=total)

    def _matching(self, params: ListTasksRequest, start: int) -> Iterator[Record]:
        for place in range(start, self._end(params)):
            record = self.records[self.index[place][1]]
            if params.context_id is not None and record.task.context_id != params.context_id:
                continue
            if params.status is not None and record.task.status.state is not params.status:
                continue
            yield record

    def _end(self, params: ListTasksRequest) -> int:
        if params.status_timestamp_after is None:
            return len(self.index)
        return bisect_left(self.index, (-milliseconds(params.status_timestamp_after) + 1, ""))

    def _count(self, params: ListTasksRequest) -> int:
        if params.context_id is None and params.status is None:
            return self._end(params)
        return sum(1 for _ in self._matching(params, 0))
