"""The event log as the rest of the server sees it: one way to write it, one way to read it.

`append` stores and only then wakes readers. A `Follower` yields entries after a position, then waits for more. Nobody
sees an event that a crash could take back, and every stream, subscription, blocking send and resume is this one reader.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from typing import Final, Self
from weakref import WeakValueDictionary

from app.protocol.errors import A2AError, LogTruncatedError, TaskNotFoundError, UnavailableError
from app.protocol.lifecycle import TERMINAL, TURN_ENDING, copy_task
from app.protocol.types import Task, TaskState
from app.store.base import Commit, LogEntry, TaskStore
from app.store.turns import TurnStore
from app.store.wakeups import Wakeups
from app.telemetry import get_logger

log = get_logger(__name__)

READ_LIMIT: Final = 500
"""Entries a read of the store brings at most."""
TAIL_ENTRIES: Final = 2_000
"""Entries kept of a task's tail while somebody follows it; a reader further behind reads the store."""
POLL_INTERVAL: Final = 1.0
"""Seconds between looks at every followed task, for hints that were lost."""
POLL_INTERVAL_UNHEARD: Final = 0.1
"""The same while no hint of other processes can come."""


class StreamPausedError(Exception):
    """A stream ends here because the process is about to, and not because there is no more."""


class _Tail:
    """The newest entries of one task, shared by all its followers in this process."""

    __slots__ = ("__weakref__", "entries", "error", "head", "settled", "task_id", "waiters")

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        self.entries: list[LogEntry] = []
        self.head: int | None = None
        self.waiters: list[asyncio.Future[None]] = []
        self.settled: Task | None = None
        self.error: A2AError | None = None

    def after(self, seq: int) -> list[LogEntry] | None:
        """Entries after a position; `None` if only the store can say."""
        if self.entries and seq >= (first := self.entries[0].seq) - 1:
            return self.entries[seq - first + 1 :]
        if self.head is not None and seq >= self.head:
            return []
        return None

    def push(self, entries: Sequence[LogEntry]) -> bool:
        """Add committed entries; `False` if some before them are missing."""
        if self.head is not None:
            if entries[0].seq > self.head + 1:
                return False
            if entries[0].seq <= self.head:
                entries = [entry for entry in entries if entry.seq > self.head]
                if not entries:
                    return True
        self.entries.extend(entries)
        self.head = entries[-1].seq
        if len(self.entries) > 2 * TAIL_ENTRIES:
            del self.entries[:-TAIL_ENTRIES]
        self.wake()
        return True

    def fail(self, error: A2AError) -> None:
        self.error = error
        self.wake()

    def wake(self) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Follower:
    """Reads one task's log from a position on, for as long as it lasts.

    It hears of everything committed from its creation on; create it before the read that decides the position.
    """

    def __init__(self, events: "EventLog", store: TaskStore, tail: _Tail, ends_on: Collection[TaskState]) -> None:
        self._events = events
        self._store = store
        self._tail = tail
        self.ends_on = ends_on
        """States after whose entry the log is read no further."""
        self._pauses = False
        self.position = 0
        """The position last yielded."""

    def start_at(self, seq: int, *, seed: Sequence[LogEntry] = (), current: bool = False) -> None:
        """Yield what comes after `seq`. `seed` are entries known to follow it; `current`: there were none just now."""
        self.position = seq
        if seed:
            self._tail.push(seed)
        elif current and self._tail.head is None:
            self._tail.head = seq

    def start_now(self) -> None:
        """Yield only what is committed from here on; for stores without a log, whose positions live in this process."""
        if self._tail.head is None:
            self._tail.head = 0
        self.position = self._tail.head

    @property
    def settled(self) -> Task | None:
        """The task as the end of its turn left it, if that happened in this process while somebody followed."""
        return self._tail.settled

    def pause_on_drain(self) -> Self:
        """Raise `StreamPausedError` rather than wait, once the process drains; for readers that can come back."""
        self._pauses = True
        return self

    async def batches(self) -> AsyncGenerator[Sequence[LogEntry]]:
        """Entries in order, as many at a time as there are; ends after the entry that ends the stream.

        Raises:
            LogTruncatedError: the store dropped entries that were not read yet.
            TaskNotFoundError: the task was removed.
            StreamPausedError: the process is about to end.
        """
        while True:
            batch: Sequence[LogEntry] | None = self._tail.after(self.position)
            if batch is None:
                # An empty read says nothing of what was committed while it ran.
                batch = await self._read() or self._tail.after(self.position)
            if not batch:
                await self._wait()
                continue
            for index, entry in enumerate(batch):
                state = entry.state
                if state is not None and state in self.ends_on:
                    batch = batch[: index + 1]
                    self.position = batch[-1].seq
                    yield batch
                    return
            self.position = batch[-1].seq
            yield batch

    async def next(self) -> LogEntry:
        """The next entry."""
        async with aclosing(self.batches()) as batches:
            return (await anext(batches))[0]

    async def finish(self) -> LogEntry:
        """Read to the end; return the last entry."""
        last: LogEntry | None = None
        async for batch in self.batches():
            last = batch[-1]
        assert last is not None  # noqa: S101 - there is no other way out than after an entry
        return last

    async def _read(self) -> Sequence[LogEntry]:
        entries = await self._store.read_events(self._tail.task_id, self.position, READ_LIMIT)
        if entries and entries[0].seq != self.position + 1:
            raise LogTruncatedError
        if not entries and self._tail.head is None:
            self._tail.head = self.position
        return entries

    async def _wait(self) -> None:
        self._check()
        waiter = asyncio.get_running_loop().create_future()
        self._tail.waiters.append(waiter)
        await waiter
        self._check()

    def _check(self) -> None:
        if self._tail.error is not None:
            raise self._tail.error
        if self._events.closed or (self._pauses and self._events.draining):
            raise StreamPausedError


class EventLog:
    """Writes and reads the logs of all tasks of one server process."""

    def __init__(self, store: TaskStore, wakeups: Wakeups) -> None:
        self._turns = store if isinstance(store, TurnStore) else None
        self._keeps_log = store.supports_event_log()
        self._wakeups = wakeups
        self._tails: WeakValueDictionary[str, _Tail] = WeakValueDictionary()
        self._committing: set[str] = set()
        self._dirty: set[str] = set()
        self._changed = asyncio.Event()
        self._stop_listening = wakeups.listen(self._hear)
        self.draining = False
        """Whether streams pause instead of waiting for more."""
        self.closed = False
        """Whether nobody waits for more."""

    def drain(self) -> None:
        """Pause the streams: their readers come back elsewhere."""
        self.draining = True
        self._wake_all()

    def close(self) -> None:
        """Let no reader wait any longer, and hear no more hints."""
        self.closed = True
        self._stop_listening()
        self._wake_all()

    def _wake_all(self) -> None:
        for tail in list(self._tails.values()):
            tail.wake()

    async def append(self, store: TaskStore, commit: Commit) -> int:
        """Store updates, then show them to the followers; return the new head of the log.

        Durable on return, as far as the store is. Raises as `TaskStore.commit` does.
        """
        task_id = commit.task_id
        self._committing.add(task_id)
        try:
            head = await store.commit(commit)
        finally:
            self._committing.discard(task_id)
        tail = self._tails.get(task_id)
        if tail is None:
            return head
        first = head - len(commit.updates) + 1 if self._keeps_log else (tail.head or 0) + 1
        if commit.task.status.state in TURN_ENDING:
            ended = commit.task.status.state in TERMINAL
            tail.settled = commit.task if ended else copy_task(commit.task)
        else:
            tail.settled = None
        self._push(tail, [LogEntry(first + n, update.data, update.decoded) for n, update in enumerate(commit.updates)])
        return head

    async def release(self, task_id: str, epoch: int) -> None:
        """End the lease of a turn that waits for its caller, so that the next message need not."""
        if self._turns is not None:
            await self._turns.release_lease(task_id, epoch)

    def publish(self, task_id: str, entry: LogEntry) -> None:
        """Show followers an entry that the store has just committed in the course of beginning a turn."""
        tail = self._tails.get(task_id)
        if tail is not None and self._keeps_log:
            tail.settled = None
            self._push(tail, [entry])

    def follow(self, store: TaskStore, task_id: str, ends_on: Collection[TaskState]) -> Follower:
        """A reader of the task's log that ends after an entry with one of these states."""
        tail = self._tails.get(task_id)
        if tail is None:
            tail = self._tails[task_id] = _Tail(task_id)
        return Follower(self, store, tail, ends_on)

    async def fetch_changes(self) -> None:
        """Serve hints for ever: read what is new of all tasks they name, in one query."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            names, self._dirty = self._dirty, set()
            await self._fetch(names)

    async def poll(self) -> None:
        """Look at every followed task now and then, for ever: the way out when hints are lost."""
        while True:
            await asyncio.sleep(POLL_INTERVAL if self._wakeups.connected else POLL_INTERVAL_UNHEARD)
            await self._fetch(list(self._tails))

    def _push(self, tail: _Tail, entries: Sequence[LogEntry]) -> None:
        if not tail.push(entries):
            self._mark(tail.task_id)

    def _hear(self, task_id: str | None) -> None:
        if task_id is None:
            for name in list(self._tails):
                self._mark(name)
        elif task_id in self._tails and task_id not in self._committing:
            self._mark(task_id)

    def _mark(self, task_id: str) -> None:
        self._dirty.add(task_id)
        self._changed.set()

    async def _fetch(self, names: Collection[str]) -> None:
        if self._turns is None:
            return
        tails = {name: tail for name in names if (tail := self._tails.get(name)) is not None}
        cursors = {name: tail.head for name, tail in tails.items() if tail.head is not None}
        if not cursors:
            return
        try:
            found = await self._turns.read_tails(cursors, READ_LIMIT)
        except UnavailableError as error:
            log.warning("the tails of followed tasks could not be read", error=str(error))
            return
        for name, cursor in cursors.items():
            tail, new = tails[name], found.get(name)
            if new is None:
                self._fail(tail, TaskNotFoundError())
            elif new.entries and new.entries[0].seq == cursor + 1:
                tail.push(new.entries)
                if new.last_seq > (tail.head or 0):
                    self._mark(name)
            elif new.last_seq > cursor:
                self._fail(tail, LogTruncatedError())

    def _fail(self, tail: _Tail, error: A2AError) -> None:
        # Whoever comes later begins with a tail that knows nothing of it.
        if self._tails.get(tail.task_id) is tail:
            del self._tails[tail.task_id]
        tail.fail(error)
