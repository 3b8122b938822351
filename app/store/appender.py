"""Grouped commits: what queues up while a transaction runs shares the next one.

There is no timer: an operation that finds the store idle is stored at once, and under load the transactions grow by
themselves.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from app.protocol.errors import UnavailableError
from app.protocol.events import Clock
from app.store.engines import ConnectionLostError, Database, LostCommitError, RacedError
from app.store.listing import milliseconds
from app.store.scripts import Script, fetch
from app.store.sql_head import Head
from app.store.sql_operations import Operation
from app.store.sql_plan import HeldKey, Plan
from app.store.sql_push import PushStatements, read_stored_configs
from app.store.sql_reads import ReadStatements
from app.store.sql_tasks import read_stored, read_tasks
from app.store.sql_writes import WriteStatements
from app.telemetry import get_logger

log = get_logger(__name__)
T = TypeVar("T")

MAX_ENTRIES: Final = 500
MAX_BYTES: Final = 1 << 20
"""Bounds of one transaction; a single operation may be larger."""
GIVE_UP_AFTER: Final = 5.0
"""Seconds for which a transaction that others came in between of, or whose end nobody knows, is tried again."""
RETRY_DELAY: Final = 0.02
"""Seconds before the third try, doubled with each further one; the second is made at once."""
RECENT_ENTRIES: Final = 2_000
"""Entries looked at to find out what a lost transaction left."""


class _Queued(NamedTuple):
    operation: Operation[Any]
    future: "asyncio.Future[Any]"


class _Outcome(NamedTuple):
    results: Sequence[Any]
    """What each operation decided, or the exception it raised."""
    plan: Plan


class Appender:
    """Stores operations in groups, each operation whole or not at all."""

    def __init__(
        self,
        database: Database,
        reads: ReadStatements,
        writes: WriteStatements,
        push: PushStatements,
        *,
        max_events: int | None,
        max_push_configs: int,
        clock: Clock,
        publish: Callable[[str], None],
    ) -> None:
        self._database = database
        self._reads = reads
        self._writes = writes
        self._push = push
        self._max_events = max_events
        self._max_push_configs = max_push_configs
        self._clock = clock
        self._publish = publish
        self._queue: deque[_Queued] = deque()
        self._wanted = asyncio.Event()
        self._closed = False
        self.snapshots_due: set[str] = set()
        """Tasks whose tail has become long: their next commit is to bring a snapshot."""

    async def run(self, operation: Operation[T]) -> T:
        """Store an operation; durable on return.

        One whose caller gives up is stored all the same.

        Raises:
            UnavailableError: the database is out of reach, or the store is closed.
            Exception: what the operation raises.
        """
        if self._closed:
            raise UnavailableError("The store is closed.")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append(_Queued(operation, future))
        self._wanted.set()
        return await future

    async def serve(self) -> None:
        """Store what is queued, until the appender is closed and all is stored."""
        while not self._closed or self._queue:
            await self._wanted.wait()
            self._wanted.clear()
            while self._queue:
                await self._store(self._take())

    def close(self) -> None:
        """Take no more; what is queued is still stored."""
        self._closed = True
        self._wanted.set()

    def _take(self) -> list[_Queued]:
        batch = [self._queue.popleft()]
        entries, size = batch[0].operation.entries, batch[0].operation.size
        while self._queue:
            following = self._queue[0].operation
            entries, size = entries + following.entries, size + following.size
            if entries > MAX_ENTRIES or size > MAX_BYTES:
                break
            batch.append(self._queue.popleft())
        return batch

    async def _store(self, batch: Sequence[_Queued]) -> bool:
        """Store these, and answer each; says whether the database was within reach."""
        try:
            outcome = await self._transact([queued.operation for queued in batch])
        except UnavailableError as error:
            for queued in batch:
                _settle(queued, UnavailableError(error.message, retry_after=error.retry_after))
            return False
        except asyncio.CancelledError:
            for queued in batch:
                _settle(queued, UnavailableError("The store is closed."))
            raise
        except Exception as error:
            if len(batch) == 1:
                _settle(batch[0], error)
                return True
            # One bad item must not fail the others.
            log.warning("a group could not be stored; each of it is tried alone", size=len(batch), error=repr(error))
            return await self._store_singly(batch)
        for task_id in outcome.plan.changed:
            self._publish(task_id)
        for queued, result in zip(batch, outcome.results, strict=True):
            _settle(queued, result)
        return True

    async def _store_singly(self, batch: Sequence[_Queued]) -> bool:
        within_reach = True
        for queued in batch:
            # Once the database is out of reach, the time it takes to find that out is not spent on each.
            if within_reach:
                within_reach = await self._store([queued])
            else:
                _settle(queued, UnavailableError("The database cannot be used now."))
        return within_reach

    async def _transact(self, operations: Sequence[Operation[Any]]) -> _Outcome:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + GIVE_UP_AFTER
        delay, careful = 0.0, False
        while True:
            try:
                outcome = await self._database.write(self._script(operations, careful=careful))
            except RacedError:
                careful = True
                failure = UnavailableError("Too many others write to the same tasks now.")
            except LostCommitError:
                for operation in operations:
                    operation.uncertain = True
                failure = UnavailableError("The connection to the store was lost.")
            except UnavailableError as error:
                # What may have been stored by a try before is worth a few more, to be able to say.
                if not operations[0].uncertain and not isinstance(error, ConnectionLostError):
                    raise
                failure = error
            else:
                self._note(outcome.plan)
                return outcome
            if loop.time() + delay > deadline:
                raise failure
            await asyncio.sleep(delay)
            delay = min(2 * delay, 1.0) or RETRY_DELAY

    def _note(self, plan: Plan) -> None:
        for task_id, head in plan.heads.items():
            if plan.snapshot_due(head):
                self.snapshots_due.add(task_id)
            else:
                self.snapshots_due.discard(task_id)

    def _script(self, operations: Sequence[Operation[Any]], *, careful: bool) -> Script[_Outcome]:
        plan = Plan(
            max_events=self._max_events, max_push_configs=self._max_push_configs, now_ms=milliseconds(self._clock())
        )
        yield from self._read(operations, plan, careful=careful)
        results: list[Any] = []
        for operation in operations:
            try:
                results.append(operation.decide(plan))
            except Exception as error:
                results.append(error)
        yield from plan.store(self._writes, self._push)
        return _Outcome(results, plan)

    def _read(self, operations: Sequence[Operation[Any]], plan: Plan, *, careful: bool) -> Script[None]:
        """Read into the plan what the operations are decided on, and lock it: heads in id order, then keys.

        `careful` looks even for tasks that are about to be made.
        """
        ids = sorted(
            {
                operation.task_id
                for operation in operations
                if operation.task_id is not None and (careful or operation.uncertain or not operation.makes_task)
            }
        )
        keys = sorted({operation.key for operation in operations if operation.key is not None})
        for row in (yield from fetch(self._writes.lock_heads, ids)) if ids else ():
            head = Head.read(row)
            plan.heads[head.id] = head
        for key, owner, *held in (yield from fetch(self._writes.held_keys, keys)) if keys else ():
            plan.held[key, bytes(owner)] = HeldKey(*held)
        yield from self._read_more(operations, plan)

    def _read_more(self, operations: Sequence[Operation[Any]], plan: Plan) -> Script[None]:
        """Read what is not in the heads, of the tasks whose operations ask for it."""
        bodies: set[str] = set()
        configured: set[str] = set()
        cursors: dict[str, int] = {}
        for operation in operations:
            found = plan.find(operation.owner, operation.task_id or "")
            if found is None:
                continue
            if operation.needs_body:
                bodies.add(found.id)
            if operation.has_push_config:
                configured.add(found.id)
            after = operation.entries_after(found)
            if after is not None:
                cursors[found.id] = min(after, cursors.get(found.id, after))
        if bodies:
            plan.bodies = yield from read_tasks(self._reads, sorted(bodies))
        if configured:
            plan.configs = yield from read_stored_configs(self._push, sorted(configured))
        if cursors:
            plan.entries = yield from read_stored(self._reads, cursors, RECENT_ENTRIES)


def _settle(queued: _Queued, result: Any) -> None:
    if queued.future.done():
        return
    if isinstance(result, BaseException):
        queued.future.set_exception(result)
    else:
        queued.future.set_result(result)
