"""All that `MemoryTaskStore` holds: partitions by owner, and what counts across them."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from app.protocol.errors import UnavailableError
from app.protocol.events import Clock, Update
from app.protocol.identity import Owner
from app.protocol.lifecycle import fold
from app.protocol.types import Task
from app.store.base import Conflict, KeyClaimed, Lease, LogEntry, Replay
from app.store.memory_partition import KeyRecord, Partition, Record
from app.store.wakeups import Wakeups

EVICTION_BATCH: Final = 16
"""Ended tasks past their time that one new task removes at most."""


class Space:
    """All that a memory store holds, whoever looks at it."""

    def __init__(
        self,
        *,
        max_tasks: int,
        terminal_ttl: float,
        max_tenants: int,
        max_keys: int,
        key_ttl: float,
        max_events_per_task: int | None,
        clock: Clock,
        monotonic: Callable[[], float],
        wakeups: Wakeups,
    ) -> None:
        self.max_tasks = max_tasks
        self.terminal_ttl = terminal_ttl
        self.max_tenants = max_tenants
        self.max_keys = max_keys
        self.key_ttl = key_ttl
        self.max_events = max_events_per_task
        self.clock = clock
        self.monotonic = monotonic
        self.wakeups = wakeups
        self.partitions: dict[Owner, Partition] = {}
        self.tenants: dict[str, int] = {}
        self.tenant_keys: dict[str, int] = {}
        self.owners: dict[str, Owner] = {}
        self.ended: OrderedDict[str, float] = OrderedDict()
        """Ended tasks with the time they ended, oldest first."""

    def find(self, task_id: str) -> Record | None:
        """The task, whoever owns it."""
        owner = self.owners.get(task_id)
        return None if owner is None else self.partitions[owner].records[task_id]

    def partition(self, owner: Owner) -> Partition:
        """The partition to write to, made if need be."""
        found = self.partitions.get(owner)
        if found is None:
            if owner.tenant not in self.tenants and len(self.tenants) >= self.max_tenants:
                raise UnavailableError("The server has as many tenants as it can keep.", retry_after=60)
            self.tenants[owner.tenant] = self.tenants.get(owner.tenant, 0) + 1
            found = self.partitions[owner] = Partition(owner)
        return found

    def make_room(self) -> None:
        """Let ended tasks go: those past their time, and the oldest if the store is full."""
        due = self.monotonic() - self.terminal_ttl
        for _ in range(EVICTION_BATCH):
            task_id = next(iter(self.ended), None)
            if task_id is None or (self.ended[task_id] > due and len(self.owners) < self.max_tasks):
                break
            self.remove(task_id)
        if len(self.owners) >= self.max_tasks:
            raise UnavailableError("The server has as many running tasks as it can keep.", retry_after=5)

    def remove(self, task_id: str) -> None:
        """Forget a task with its log; its keys stay."""
        owner = self.owners.pop(task_id)
        self.ended.pop(task_id, None)
        partition = self.partitions[owner]
        partition.remove(partition.records[task_id])
        self.drop_if_empty(partition)
        self.wakeups.publish(task_id)

    def drop_if_empty(self, partition: Partition) -> None:
        """Forget an owner of whom nothing is left."""
        if partition.records or partition.keys:
            return
        del self.partitions[partition.owner]
        tenant = partition.owner.tenant
        self.tenants[tenant] -= 1
        if not self.tenants[tenant]:
            del self.tenants[tenant]

    def add(self, owner: Owner, task: Task) -> Record:
        """Take in a task, which is now the store's own."""
        self.make_room()
        record = Record(owner, task)
        self.partition(owner).add(record)
        self.owners[task.id] = owner
        self.settle(record)
        return record

    def settle(self, record: Record) -> None:
        """Note that a task has just been changed."""
        self.partitions[record.owner].move(record)
        if record.ended and record.task.id not in self.ended:
            self.ended[record.task.id] = self.monotonic()
            record.worker = None
            record.cancel_requested = False

    def live_lease(self, record: Record) -> bool:
        """Whether somebody runs the task."""
        return record.worker is not None and record.lease_until > self.monotonic()

    def take_lease(self, record: Record, lease: Lease | None) -> None:
        """Begin a new epoch, held by nobody if `lease` is `None`."""
        record.epoch += 1
        record.cancel_requested = False
        record.worker = lease.worker if lease is not None else None
        record.lease_until = self.monotonic() + lease.ttl if lease is not None else 0.0

    def write(self, record: Record, updates: Sequence[Update]) -> None:
        """Fold updates into a task and put them at the end of its log."""
        seq = record.head
        for update in updates:
            seq += 1
            record.task = fold(record.task, update.event)
            # Bytes only: kept event objects would cost memory, and the garbage collector a look at each.
            record.entries.append(LogEntry(seq, update.data))
        if self.max_events is not None:
            record.truncate(self.max_events)
        self.settle(record)

    def claim(self, owner: Owner, key: str, message_id: str, task_id: str, seq: int) -> KeyClaimed | Replay | Conflict:
        """Claim a key, letting those past their time go first. Raises `UnavailableError` if the index is full."""
        partition = self.partition(owner)
        now = self.monotonic()
        self.expire_keys(partition, now - self.key_ttl)
        held = partition.keys.get(key)
        if held is not None:
            return Replay(held.task_id, held.first_seq) if held.message_id == message_id else Conflict()
        if self.tenant_keys.get(owner.tenant, 0) >= self.max_keys:
            for other in [found for found in self.partitions.values() if found.owner.tenant == owner.tenant]:
                self.expire_keys(other, now - self.key_ttl)
            if self.tenant_keys.get(owner.tenant, 0) >= self.max_keys:
                self.drop_if_empty(partition)
                raise UnavailableError("The index of idempotency keys is full; nothing was run.", retry_after=60)
        self.tenant_keys[owner.tenant] = self.tenant_keys.get(owner.tenant, 0) + 1
        partition.keys[key] = KeyRecord(message_id, task_id, seq, now)
        return KeyClaimed()

    def release(self, partition: Partition, key: str) -> bool:
        """Free a key; say whether it was held."""
        held = partition.keys.pop(key, None)
        if held is None:
            return False
        self.tenant_keys[partition.owner.tenant] -= 1
        return True

    def expire_keys(self, partition: Partition, before: float) -> int:
        """Let keys claimed before a time go, oldest first; say how many."""
        expired = 0
        while partition.keys and next(iter(partition.keys.values())).claimed_at <= before:
            self.release(partition, next(iter(partition.keys)))
            expired += 1
        return expired
