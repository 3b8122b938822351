"""`SqlTaskStore`: tasks in SQLite or PostgreSQL, every operation one transaction.

An event costs one log row and one small update of the task's head, whatever the task's size; transactions are shared by
what queues up while one runs.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, Self, TypeVar

from app.protocol.errors import UnavailableError
from app.protocol.events import Clock, utc_now
from app.protocol.identity import ANONYMOUS, Owner
from app.protocol.lifecycle import Event
from app.protocol.requests import ListTasksRequest, ListTasksResponse
from app.protocol.types import Task
from app.store.appender import Appender
from app.store.base import (
    Busy,
    CancelFlagged,
    Claimed,
    Commit,
    Conflict,
    ContextMismatch,
    Ended,
    IdempotencyKey,
    KeyClaimed,
    Lease,
    LogEntry,
    NewTask,
    NewTurn,
    NotFound,
    Purged,
    Replay,
    RetentionPolicy,
    Snapshot,
    StoreStartError,
    TaskStore,
)
from app.store.databases import database_for
from app.store.engine_sqlite import Synchronous
from app.store.engines import ConnectionLostError, LostCommitError, RacedError
from app.store.listing import milliseconds
from app.store.migrations import prepare
from app.store.push_configs import MAX_PUSH_CONFIGS
from app.store.scripts import Script, fetch
from app.store.sql_operations import (
    AppendEvent,
    BeginCancel,
    BeginTurn,
    ClaimKey,
    CommitUpdates,
    CreateTask,
    InsertTask,
    SaveTask,
    TakeOver,
)
from app.store.sql_push import PushStatements
from app.store.sql_push_configs import SqlPushConfigs
from app.store.sql_reads import ReadStatements
from app.store.sql_tasks import read_page, read_snapshot, read_tails
from app.store.sql_turns import (
    TurnStatements,
    release_key,
    remove_old,
    remove_old_keys,
    remove_owned,
    renew,
    stranded,
)
from app.store.sql_writes import WriteStatements
from app.store.statements import Builder
from app.store.tables import owner_digest
from app.store.turns import LogTail, Renewal, StrandedTurn
from app.store.values import nameable
from app.store.wakeups import LocalWakeups, Wakeups

T = TypeVar("T")

MAX_SEQ: Final = 2**62
"""No log comes to this position, and a database takes it for a number."""

MAX_TRIES: Final = 5
"""Of a transaction that is the same however often it runs, after its end was lost."""


class _Core:
    """What all views of a store share."""

    def __init__(
        self,
        url: str,
        *,
        wakeups: Wakeups,
        max_events: int | None,
        max_push_configs: int,
        pool_size: int,
        synchronous: Synchronous,
        clock: Clock,
    ) -> None:
        self.database = database_for(url, pool_size=pool_size, synchronous=synchronous)
        build = Builder(self.database.dialect)
        self.reads = ReadStatements(build)
        self.writes = WriteStatements(build)
        self.turns = TurnStatements(build)
        self.push = PushStatements(build)
        self.max_push_configs = max_push_configs
        self.wakeups = wakeups
        self.clock = clock
        self.appender = Appender(
            self.database,
            self.reads,
            self.writes,
            self.push,
            max_events=max_events,
            max_push_configs=max_push_configs,
            clock=clock,
            publish=wakeups.publish,
        )

    async def read(self, script: Callable[[], Script[T]]) -> T:
        """Run a script that only reads; on another connection where the first is found broken."""
        for _ in range(MAX_TRIES):
            try:
                return await self.database.read(script())
            except ConnectionLostError:
                continue
        return await self.database.read(script())

    async def repeatable(self, script: Callable[[], Script[T]]) -> T:
        """Run a transaction that may run twice without harm."""
        for _ in range(MAX_TRIES):
            try:
                return await self.database.write(script())
            except (LostCommitError, ConnectionLostError, RacedError):
                continue
        raise UnavailableError("The connection to the store was lost.")


class _View(TaskStore):
    """What one owner sees."""

    def __init__(self, core: _Core, owner: Owner) -> None:
        self._core = core
        self._owner = owner
        self._digest = owner_digest(owner)

    def for_owner(self, owner: Owner) -> TaskStore:
        """A view that can reach the tasks and keys of this owner and nothing else."""
        return self if owner == self._owner else _View(self._core, owner)

    def supports_owners(self) -> bool:
        """Yes."""
        return True

    def supports_idempotency(self) -> bool:
        """Yes."""
        return True

    def supports_event_log(self) -> bool:
        """Yes."""
        return True

    async def save(self, task: Task) -> None:
        """Create the task, or replace all but its log; durable on return. A final state stays."""
        await self._core.appender.run(SaveTask(self._owner, task))

    async def get(self, task_id: str) -> Task | None:
        """The task: its snapshot with the tail of its log folded in."""
        snapshot = await self.snapshot(task_id)
        return None if snapshot is None or snapshot.hidden else snapshot.task

    async def list(self, params: ListTasksRequest) -> ListTasksResponse:
        """One page of tasks, newest status first; without artifacts it reads no log."""
        return await self._core.read(lambda: read_page(self._core.reads, self._owner, params))

    async def insert_if_absent(self, task: Task) -> bool:
        """Store the task if its id is free; durable on return."""
        return await self._core.appender.run(InsertTask(self._owner, task))

    async def delete(self, task_id: str) -> None:
        """Remove the task with its log and its configurations; its keys stay."""
        core = self._core
        if nameable(task_id) and await core.repeatable(
            lambda: remove_owned(core.turns, core.writes, task_id, self._digest)
        ):
            core.wakeups.publish(task_id)

    async def count(self) -> int:
        """How many tasks this owner has."""
        ((count,),) = await self._core.read(lambda: fetch(self._core.reads.count, self._digest))
        return int(count)

    async def ping(self) -> None:
        """Read one row."""
        await self._core.read(lambda: fetch(self._core.reads.position, "", self._digest))

    async def claim_idempotency_key(self, key: str, message_id: str, task_id: str) -> KeyClaimed | Replay | Conflict:
        """Claim a key for a task whose turn begins with entry 1; the index is never full."""
        return await self._core.appender.run(ClaimKey(self._owner, IdempotencyKey(key, message_id), task_id))

    async def release_idempotency_key(self, key: str) -> None:
        """Free a key; one that is not held is no error."""
        if nameable(key):
            await self._core.repeatable(lambda: release_key(self._core.writes, key, self._digest))

    async def append_event(self, task_id: str, seq: int, event: Event) -> None:
        """Store an event at a position: a position that is taken stays as it is."""
        await self._core.appender.run(AppendEvent(self._owner, task_id, seq, event))

    async def last_event_seq(self, task_id: str) -> int:
        """The newest position of the log, 0 if it is empty."""
        return (await self._positions(task_id))[0]

    async def earliest_event_seq(self, task_id: str) -> int | None:
        """The oldest position kept."""
        last, earliest = await self._positions(task_id)
        return earliest if last else None

    async def read_events(self, task_id: str, after_seq: int, limit: int) -> Sequence[LogEntry]:
        """Entries after a position, in order."""
        if not nameable(task_id) or after_seq > MAX_SEQ:
            return []
        rows = await self._core.read(lambda: fetch(self._core.reads.events, task_id, self._digest, after_seq, limit))
        return [LogEntry(seq, bytes(data)) for seq, data in rows]

    async def create_task(self, new: NewTask) -> Claimed | Replay | Conflict:
        """Claim the key, store the task and its first entry, take the lease, in one transaction."""
        return await self._core.appender.run(CreateTask(self._owner, new))

    async def begin_turn(self, new: NewTurn) -> Claimed | Replay | Conflict | Busy | Ended | ContextMismatch | NotFound:
        """Claim the key, add the message and a WORKING entry, take the lease, in one transaction."""
        return await self._core.appender.run(BeginTurn(self._owner, new, self._core.clock))

    async def commit(self, commit: Commit) -> int:
        """Put the updates at the end of the log and move the head, in one transaction."""
        due = commit.task_id in self._core.appender.snapshots_due
        return await self._core.appender.run(CommitUpdates(self._owner, commit, with_snapshot=due))

    async def snapshot(self, task_id: str) -> Snapshot | None:
        """The task with its position, of one moment."""
        if not nameable(task_id):
            return None
        return await self._core.read(lambda: read_snapshot(self._core.reads, self._owner, task_id))

    async def begin_cancel(self, task_id: str, lease: Lease) -> Claimed | CancelFlagged | Ended | NotFound:
        """Flag a running turn, or take a task that nobody runs."""
        return await self._core.appender.run(BeginCancel(self._owner, task_id, lease))

    async def _positions(self, task_id: str) -> tuple[int, int]:
        if not nameable(task_id):
            return 0, 0
        rows = await self._core.read(lambda: fetch(self._core.reads.position, task_id, self._digest))
        return (rows[0][0], rows[0][1]) if rows else (0, 0)


class SqlTaskStore(_View, SqlPushConfigs):
    """The store of `sqlite://` and `postgresql://`, and the anonymous owner's view of it."""

    def __init__(
        self,
        url: str,
        *,
        wakeups: Wakeups | None = None,
        max_events_per_task: int | None = None,
        max_push_configs: int = MAX_PUSH_CONFIGS,
        pool_size: int = 5,
        sqlite_synchronous: Synchronous = "FULL",
        auto_migrate: bool = True,
        clock: Clock = utc_now,
    ) -> None:
        """A store that is not open yet: enter it as an asynchronous context.

        Raises:
            StoreStartError: the URL leads nowhere.
        """
        core = _Core(
            url,
            wakeups=wakeups or LocalWakeups(),
            max_events=max_events_per_task,
            max_push_configs=max_push_configs,
            pool_size=pool_size,
            synchronous=sqlite_synchronous,
            clock=clock,
        )
        super().__init__(core, ANONYMOUS)
        self._configs = core
        self._auto_migrate = auto_migrate
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open the database and bring its schema up to date.

        Raises:
            StoreStartError: the database cannot be used, or its schema is outdated and may not be changed here.
        """
        core = self._core
        async with AsyncExitStack() as stack:
            await core.database.open()
            stack.push_async_callback(core.database.close)
            try:
                await prepare(core.database, auto_migrate=self._auto_migrate)
                if core.database.dialect == "sqlite":
                    # The process that held these leases is gone: this one holds the file.
                    await core.repeatable(lambda: fetch(core.turns.release_all))
                    await core.repeatable(lambda: fetch(core.push.free_all))
            except UnavailableError as error:
                raise StoreStartError(error.message) from error
            group = await stack.enter_async_context(asyncio.TaskGroup())
            group.create_task(core.appender.serve(), name="store")
            stack.callback(core.appender.close)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close it; what is queued is still stored."""
        await self._stack.aclose()

    async def renew_leases(self, turns: Mapping[str, int], lease: Lease) -> Renewal:
        """Prolong the leases of a worker's turns, in one statement."""
        if not turns:
            return Renewal()
        return await self._core.repeatable(lambda: renew(self._core.turns, turns, lease))

    async def stranded_turns(self, limit: int) -> Sequence[StrandedTurn]:
        """Turns that nobody runs, oldest lease first."""
        return await self._core.read(lambda: stranded(self._core.turns, limit))

    async def take_over(self, turn: StrandedTurn, lease: Lease) -> Claimed | None:
        """Take a stranded turn."""
        return await self._core.appender.run(TakeOver(turn, lease))

    async def release_lease(self, task_id: str, epoch: int) -> None:
        """End the lease now."""
        if await self._core.repeatable(lambda: fetch(self._core.turns.release, task_id, epoch)):
            self._core.wakeups.publish(task_id)

    async def read_tails(self, cursors: Mapping[str, int], limit: int) -> Mapping[str, LogTail]:
        """The tails of many tasks, in one query."""
        if not cursors:
            return {}
        return await self._core.read(lambda: read_tails(self._core.reads, cursors, limit))

    async def purge(self, policy: RetentionPolicy) -> Purged:
        """Remove what the policy lets go, a batch a transaction."""
        core = self._core
        now = milliseconds(core.clock())
        before = now - round(policy.terminal_age * 1000)
        tasks = 0
        while ids := await core.repeatable(lambda: remove_old(core.turns, core.writes, before, policy.batch)):
            tasks += len(ids)
            for task_id in ids:
                core.wakeups.publish(task_id)
        before, keys = now - round(policy.key_age * 1000), 0
        while removed := await core.repeatable(lambda: remove_old_keys(core.turns, core.writes, before, policy.batch)):
            keys += removed
        return Purged(tasks, keys)
