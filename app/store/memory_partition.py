"""What `MemoryTaskStore` keeps of one owner."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TypeVar

from app.protocol.identity import Owner
from app.protocol.lifecycle import trim_history
from app.protocol.requests import ListTasksRequest, ListTasksResponse
from app.store.listing import PageToken, milliseconds, page_size
from app.store.memory_record import Position, Record

K = TypeVar("K")


class Partition:
    """The tasks of one owner, and how many keys are theirs."""

    __slots__ = ("by_context", "by_state", "index", "keys", "owner", "records")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.records: dict[str, Record] = {}
        self.index: list[Position] = []
        """Positions of all tasks, in order; those of a context and of a state have an index of their own."""
        self.by_context: dict[str | None, list[Position]] = {}
        self.by_state: dict[str, list[Position]] = {}
        self.keys = 0

    def add(self, record: Record) -> None:
        """Take in a task."""
        self.records[record.id] = record
        if not record.hidden:
            self._list(record)

    def reveal(self, record: Record) -> None:
        """Show a task that was hidden."""
        record.hidden, record.place = False, record.now
        self._list(record)

    def _list(self, record: Record) -> None:
        position, context_id, state = record.place
        insort(self.index, position)
        _insert(self.by_context, context_id, position)
        _insert(self.by_state, state, position)

    def move(self, record: Record) -> None:
        """Put a task at the place it now has."""
        old, new = record.place, record.now
        if new == old or record.hidden:
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
        del self.records[record.id]
        if record.hidden:
            return
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
        wanted = bool(params.include_artifacts)
        tasks = [trim_history(record.task(artifacts=wanted), params.history_length) for record in found[:size]]
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
