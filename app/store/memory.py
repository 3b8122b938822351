"""`MemoryTaskStore`: tasks, logs, keys and leases in this process; gone when it ends.

No method suspends between its first look and its last change, so each is atomic on the event loop.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from app.protocol.events import Clock, Update, begin_turn_update, update_of, utc_now
from app.protocol.identity import ANONYMOUS, Owner
from app.protocol.lifecycle import TURN_ENDING, Event
from app.protocol.requests import ListTasksRequest, ListTasksResponse
from app.protocol.types import Task
from app.store.base import (
    ArtifactDelta,
    Busy,
    CancelFlagged,
    Claimed,
    Commit,
    Conflict,
    ContextMismatch,
    Ended,
    EventLogGapError,
    FencedError,
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
    TaskStore,
    refuse_turn,
)
from app.store.memory_partition import Partition
from app.store.memory_push import MemoryPushConfigs
from app.store.memory_record import Parts, Record
from app.store.memory_space import Space
from app.store.push_configs import MAX_PUSH_CONFIGS
from app.store.turns import LogTail, Renewal, StrandedTurn
from app.store.wakeups import LocalWakeups, Wakeups


class _View(TaskStore):
    """What one owner sees."""

    def __init__(self, space: Space, owner: Owner) -> None:
        self._space = space
        self._owner = owner

    def for_owner(self, owner: Owner) -> TaskStore:
        """A view that can reach the tasks and keys of this owner and nothing else."""
        return self if owner == self._owner else _View(self._space, owner)

    def supports_owners(self) -> bool:
        """Yes."""
        return True

    def supports_idempotency(self) -> bool:
        """Yes."""
        return True

    def supports_event_log(self) -> bool:
        """Yes."""
        return True

    def _record(self, task_id: str) -> Record | None:
        partition = self._space.partitions.get(self._owner)
        return None if partition is None else partition.records.get(task_id)

    def _shown(self, task_id: str) -> Record | None:
        record = self._record(task_id)
        return None if record is None or record.hidden else record

    async def save(self, task: Task) -> None:
        """Create the task, or replace its snapshot at the head of its log. A final state stays."""
        record = self._record(task.id)
        if record is None:
            if task.id in self._space.owners:
                raise FencedError(f"the task id {task.id} is taken")
            self._space.add(self._owner, Parts.of(task))
        else:
            if record.ended and record.now.state is not task.status.state:
                raise FencedError("the task has ended")
            record.put(Parts.of(task))
            if record.hidden:
                self._space.partitions[self._owner].reveal(record)
            self._space.settle(record)
        self._space.wakeups.publish(task.id)

    async def get(self, task_id: str) -> Task | None:
        """The task, or `None`; the caller's own."""
        record = self._shown(task_id)
        return None if record is None else record.task()

    async def list(self, params: ListTasksRequest) -> ListTasksResponse:
        """One page of tasks, newest status first."""
        partition = self._space.partitions.get(self._owner) or Partition(self._owner)
        return partition.page(params)

    async def insert_if_absent(self, task: Task) -> bool:
        """Store the task if its id is free."""
        if task.id in self._space.owners:
            return False
        self._space.add(self._owner, Parts.of(task))
        return True

    async def delete(self, task_id: str) -> None:
        """Remove the task and its log; its keys stay."""
        if self._record(task_id) is not None:
            self._space.remove(task_id)

    async def count(self) -> int:
        """How many tasks this owner has."""
        partition = self._space.partitions.get(self._owner)
        return 0 if partition is None else len(partition.index)

    async def claim_idempotency_key(self, key: str, message_id: str, task_id: str) -> KeyClaimed | Replay | Conflict:
        """Claim a key for a task whose turn begins with entry 1."""
        return self._space.claim(self._owner, key, message_id, task_id, 1)

    async def release_idempotency_key(self, key: str) -> None:
        """Free a key; one that is not held is no error."""
        self._space.release(self._owner, key)

    async def save_artifact_delta(self, task: Task, delta: ArtifactDelta) -> None:
        """Apply the change in place; falls back to `save` where the stored task does not match."""
        record = self._record(task.id)
        if record is None or record.ended or not record.add_delta(task, delta):
            await self.save(task)
            return
        self._space.wakeups.publish(task.id)

    async def append_event(self, task_id: str, seq: int, event: Event) -> None:
        """Store an event at a position: a position that is taken stays as it is."""
        update = update_of(event)
        record = self._record(task_id)
        if record is None:
            raise FencedError("there is no such task")
        if seq <= record.head:
            return
        if seq > record.head + 1:
            raise EventLogGapError(f"the log ends at {record.head}; {seq} would leave a gap")
        if record.ended:
            raise FencedError("the task has ended")
        self._space.write(record, [update])
        self._space.wakeups.publish(task_id)

    async def last_event_seq(self, task_id: str) -> int:
        """The newest position of the log, 0 if it is empty."""
        record = self._record(task_id)
        return 0 if record is None else record.head

    async def read_events(self, task_id: str, after_seq: int, limit: int) -> Sequence[LogEntry]:
        """Entries after a position, in order."""
        record = self._record(task_id)
        return [] if record is None else record.after(after_seq, limit)

    async def earliest_event_seq(self, task_id: str) -> int | None:
        """The oldest position kept."""
        record = self._record(task_id)
        return record.earliest if record is not None and record.entries else None

    async def create_task(self, new: NewTask) -> Claimed | Replay | Conflict:
        """Claim the key, store the task and its first entry, take the lease; all or nothing."""
        space, task = self._space, new.task
        update = update_of(task)
        if new.key is not None:
            claim = space.claim(self._owner, new.key.key, new.key.message_id, task.id, 1)
            if not isinstance(claim, KeyClaimed):
                return claim
        try:
            if task.id in space.owners:
                raise FencedError(f"the task id {task.id} is taken")
            record = space.add(self._owner, Parts.of_entry(task, update.data), hidden=new.hidden)
        except BaseException:
            if new.key is not None:
                space.release(self._owner, new.key.key)
            raise
        record.entries.append(update.data)
        record.log_bytes = len(update.data)
        space.push.put(new.push_config, 0)
        space.take_lease(record, new.lease)
        space.wakeups.publish(task.id)
        return Claimed(task, record.epoch, 1, LogEntry(1, update.data), head=1, log_bytes=record.log_bytes)

    async def begin_turn(self, new: NewTurn) -> Claimed | Replay | Conflict | Busy | Ended | ContextMismatch | NotFound:
        """Claim the key, add the message and a WORKING entry, take the lease, raise the epoch; all or nothing."""
        space = self._space
        if new.key is not None:
            answer = space.answer(self._owner, new.key.key, new.key.message_id)
            if answer is not None:
                return answer
        record = self._shown(new.task_id)
        task = record.task() if record is not None else None
        refusal = refuse_turn(task, new)
        if record is None or task is None or refusal is not None:
            return refusal or NotFound()
        if space.live_lease(record):
            return Busy()
        seq = record.head + 1
        update = begin_turn_update(task, new.message, space.clock())
        space.push.check(new.push_config)
        if new.key is not None:
            claim = space.claim(self._owner, new.key.key, new.key.message_id, new.task_id, seq)
            if not isinstance(claim, KeyClaimed):
                return claim
        space.push.put(new.push_config, seq - 1)
        space.take_lease(record, new.lease)
        record.attempt, record.turn_seq = 1, seq
        space.write(record, [update])
        space.wakeups.publish(new.task_id)
        entry = LogEntry(seq, update.data)
        return Claimed(record.task(), record.epoch, seq, entry, head=seq, log_bytes=record.log_bytes)

    async def commit(self, commit: Commit) -> int:
        """Fold the updates into the stored task and put them at the end of its log."""
        record = self._record(commit.task_id)
        if record is None or record.epoch != commit.epoch:
            raise FencedError(commit.task_id)
        updates = commit.updates
        if commit.after_seq is not None and record.head > commit.after_seq:
            updates = _unwritten(record, commit.after_seq, updates)
            if not updates:
                return record.head
        if record.ended:
            raise FencedError(commit.task_id)
        ends = commit.task.status.state in TURN_ENDING
        parts = Parts.of(commit.task) if ends or record.long_unwritten else None
        self._space.write(record, updates, parts)
        self._space.wakeups.publish(commit.task_id)
        return record.head

    async def snapshot(self, task_id: str) -> Snapshot | None:
        """The task with its position."""
        record = self._record(task_id)
        if record is None:
            return None
        running = self._space.live_lease(record)
        return Snapshot(record.task(), record.head, record.earliest, record.epoch, running, record.hidden)

    async def begin_cancel(self, task_id: str, lease: Lease) -> Claimed | CancelFlagged | Ended | NotFound:
        """Flag a running turn, or take a task that nobody runs."""
        record = self._shown(task_id)
        if record is None:
            return NotFound()
        if record.ended:
            return Ended(record.now.state)
        if self._space.live_lease(record):
            record.cancel_requested = True
            self._space.wakeups.publish(task_id)
            return CancelFlagged()
        self._space.take_lease(record, lease)
        return Claimed(record.task(), record.epoch, record.head, LogEntry(0, b""), head=record.head)


class MemoryTaskStore(_View, MemoryPushConfigs):
    """The store of `memory://`, and the anonymous owner's view of it."""

    def __init__(
        self,
        *,
        max_tasks: int = 10_000,
        terminal_ttl: float = 3_600.0,
        max_tenants: int = 1_000,
        max_keys: int = 100_000,
        key_ttl: float = 86_400.0,
        max_events_per_task: int | None = None,
        max_push_configs: int = MAX_PUSH_CONFIGS,
        clock: Clock = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
        wakeups: Wakeups | None = None,
    ) -> None:
        """Bounds: tasks in all (ended ones make room first), keys a tenant, webhooks a task; times in seconds."""
        space = Space(
            max_tasks=max_tasks,
            terminal_ttl=terminal_ttl,
            max_tenants=max_tenants,
            max_keys=max_keys,
            key_ttl=key_ttl,
            max_events_per_task=max_events_per_task,
            clock=clock,
            monotonic=monotonic,
            wakeups=wakeups or LocalWakeups(),
        )
        space.push.limit = max_push_configs
        super().__init__(space, ANONYMOUS)

    async def renew_leases(self, turns: Mapping[str, int], lease: Lease) -> Renewal:
        """Prolong the leases of a worker's turns."""
        lost, cancelled = set(), set()
        until = self._space.monotonic() + lease.ttl
        for task_id, epoch in turns.items():
            record = self._space.find(task_id)
            if record is None or record.epoch != epoch or record.worker != lease.worker or not record.lease_until:
                # A lease given back is over: a renewal already under way must not bring it to life again.
                lost.add(task_id)
                continue
            record.lease_until = until
            if record.cancel_requested:
                cancelled.add(task_id)
        return Renewal(frozenset(lost), frozenset(cancelled))

    async def stranded_turns(self, limit: int) -> Sequence[StrandedTurn]:
        """Turns that nobody runs, oldest lease first."""
        now = self._space.monotonic()
        found = [record for record in self._space.running.values() if record.lease_until <= now]
        found.sort(key=lambda record: record.lease_until)
        return [StrandedTurn(record.owner, record.id, record.epoch, record.attempt) for record in found[:limit]]

    async def take_over(self, turn: StrandedTurn, lease: Lease) -> Claimed | None:
        """Take a stranded turn."""
        record = self._space.find(turn.task_id)
        if record is None or record.epoch != turn.epoch or self._space.live_lease(record):
            return None
        if record.now.state in TURN_ENDING:
            return None
        # A turn that was never leased begins its first run now.
        record.attempt += record.worker is not None
        self._space.take_lease(record, lease)
        task, entry = record.task(), LogEntry(0, b"")
        return Claimed(task, record.epoch, record.turn_seq, entry, record.attempt, record.head, record.log_bytes)

    async def release_lease(self, task_id: str, epoch: int) -> None:
        """End the lease now."""
        record = self._space.find(task_id)
        if record is not None and record.epoch == epoch:
            record.lease_until = 0.0
            self._space.wakeups.publish(task_id)

    async def read_tails(self, cursors: Mapping[str, int], limit: int) -> Mapping[str, LogTail]:
        """The tails of many tasks."""
        tails = {}
        for task_id, after in cursors.items():
            record = self._space.find(task_id)
            if record is not None:
                entries = record.after(after, limit)
                tails[task_id] = LogTail(entries, record.earliest, record.head, record.cancel_requested)
        return tails

    async def purge(self, policy: RetentionPolicy) -> Purged:
        """Remove what the policy lets go."""
        space = self._space
        now = space.monotonic()
        tasks = 0
        while space.ended and next(iter(space.ended.values())) <= now - policy.terminal_age:
            space.remove(next(iter(space.ended)))
            tasks += 1
        return Purged(tasks, space.purge_keys(now - policy.key_age))


def _unwritten(record: Record, after_seq: int, updates: Sequence[Update]) -> Sequence[Update]:
    """What is not yet in the log of updates that were tried before."""
    written = record.after(after_seq, len(updates))
    if any(entry.data != update.data for entry, update in zip(written, updates, strict=False)):
        raise FencedError(record.id)
    return updates[len(written) :]
