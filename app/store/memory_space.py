"""All that `MemoryTaskStore` holds: partitions by owner, and what counts across them."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from app.protocol.errors import UnavailableError
from app.protocol.events import Clock, Update
from app.protocol.identity import Owner
from app.protocol.lifecycle import TURN_ENDING
from app.store.base import Conflict, KeyClaimed, Lease, Replay
from app.store.memory_configs import KeptConfigs
from app.store.memory_partition import Partition
from app.store.memory_record import Parts, Record
from app.store.values import check_claim
from app.store.wakeups import Wakeups

EVICTION_BATCH: Final = 16
"""Ended tasks past their time that one new task removes at most; the same of keys and a claim."""


class KeyRecord(NamedTuple):
    """What an idempotency key stands for."""

    message_id: str
    task_id: str
    first_seq: int
    claimed_at: float


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
        self.keys: OrderedDict[tuple[Owner, str], KeyRecord] = OrderedDict()
        """By time of claim, oldest first."""
        self.owners: dict[str, Owner] = {}
        self.ended: OrderedDict[str, float] = OrderedDict()
        """Ended tasks with the time they ended, oldest first."""
        self.running: dict[str, Record] = {}
        """Tasks that are somebody's to run: neither ended nor waiting."""
        self.push = KeptConfigs()

    def find(self, task_id: str) -> Record | None:
        """The task, whoever owns it."""
        owner = self.owners.get(task_id)
        return None if owner is None else self.partitions[owner].records[task_id]

    def owned(self, owner: Owner, task_id: str) -> Record | None:
        """The task, if it is this owner's, who sees it."""
        record = self.find(task_id) if self.owners.get(task_id) == owner else None
        return None if record is None or record.hidden else record

    def partition(self, owner: Owner) -> Partition:
        """The partition to write to, made if need be."""
        found = self.partitions.get(owner)
        if found is None:
            if owner.tenant not in self.tenants and len(self.tenants) >= self.max_tenants:
                self._let_go_what_is_due()
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

    def _let_go_what_is_due(self) -> None:
        # Tenants that left only what is past its time must not keep new ones out.
        now = self.monotonic()
        while self.ended and next(iter(self.ended.values())) <= now - self.terminal_ttl:
            self.remove(next(iter(self.ended)))
        self._expire_keys(now - self.key_ttl, len(self.keys))

    def remove(self, task_id: str) -> None:
        """Forget a task with its log; its keys stay."""
        owner = self.owners.pop(task_id)
        self.ended.pop(task_id, None)
        self.running.pop(task_id, None)
        self.push.forget(task_id)
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

    def add(self, owner: Owner, parts: Parts, *, hidden: bool = False) -> Record:
        """Take in a task."""
        self.make_room()
        record = Record(owner, parts)
        record.hidden = hidden
        self.partition(owner).add(record)
        self.owners[record.id] = owner
        self._note_state(record)
        return record

    def settle(self, record: Record) -> None:
        """Note that a task has just been changed."""
        self.partitions[record.owner].move(record)
        self._note_state(record)

    def _note_state(self, record: Record) -> None:
        if record.now.state in TURN_ENDING:
            self.running.pop(record.id, None)
        else:
            self.running[record.id] = record
        if record.ended and record.id not in self.ended:
            self.ended[record.id] = self.monotonic()
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

    def write(self, record: Record, updates: Sequence[Update], parts: Parts | None = None) -> None:
        """Put updates at the end of a task's log; `parts` is what the task then is, if that is to be written down."""
        for update in updates:
            record.write(update)
        if parts is not None:
            record.put(parts)
        if self.max_events is not None:
            record.truncate(self.max_events)
        if record.hidden and not all(update.is_reply for update in updates):
            self.partitions[record.owner].reveal(record)
            self._note_state(record)
        elif record.now is not record.place:
            self.settle(record)

    def held(self, owner: Owner, key: str) -> KeyRecord | None:
        """What a key stands for, if it is claimed and within its time."""
        found = self.keys.get((owner, key))
        if found is None or found.claimed_at > self.monotonic() - self.key_ttl:
            return found
        self.release(owner, key)
        return None

    def answer(self, owner: Owner, key: str, message_id: str) -> Replay | Conflict | None:
        """What a key that was claimed before answers; `None` if it is free.

        Raises:
            ValueError: no database could hold the key.
        """
        check_claim(key, message_id)
        held = self.held(owner, key)
        if held is None:
            return None
        return Replay(held.task_id, held.first_seq) if held.message_id == message_id else Conflict()

    def claim(self, owner: Owner, key: str, message_id: str, task_id: str, seq: int) -> KeyClaimed | Replay | Conflict:
        """Claim a key, letting some of those past their time go first.

        Raises:
            UnavailableError: the tenant's index is full, or there are too many tenants; nothing was claimed.
            ValueError: a part of it is what no database could hold.
        """
        check_claim(key, message_id, task_id)
        answer = self.answer(owner, key, message_id)
        if answer is not None:
            return answer
        now = self.monotonic()
        self._expire_keys(now - self.key_ttl, EVICTION_BATCH)
        if self.tenant_keys.get(owner.tenant, 0) >= self.max_keys:
            self._expire_keys(now - self.key_ttl, len(self.keys))
            if self.tenant_keys.get(owner.tenant, 0) >= self.max_keys:
                raise UnavailableError("The index of idempotency keys is full; nothing was run.", retry_after=60)
        self.partition(owner).keys += 1
        self.tenant_keys[owner.tenant] = self.tenant_keys.get(owner.tenant, 0) + 1
        self.keys[owner, key] = KeyRecord(message_id, task_id, seq, now)
        return KeyClaimed()

    def release(self, owner: Owner, key: str) -> None:
        """Free a key; one that is not held is no error."""
        if self.keys.pop((owner, key), None) is None:
            return
        self.tenant_keys[owner.tenant] -= 1
        if not self.tenant_keys[owner.tenant]:
            del self.tenant_keys[owner.tenant]
        partition = self.partitions[owner]
        partition.keys -= 1
        self.drop_if_empty(partition)

    def _expire_keys(self, before: float, limit: int) -> None:
        for _ in range(limit):
            oldest = next(iter(self.keys.items()), None)
            if oldest is None or oldest[1].claimed_at > before:
                return
            self.release(*oldest[0])

    def purge_keys(self, before: float) -> int:
        """Free keys claimed before a time whose task is gone; say how many."""
        due = []
        for place, held in self.keys.items():
            if held.claimed_at > before:
                break
            if held.task_id not in self.owners:
                due.append(place)
        for owner, key in due:
            self.release(owner, key)
        return len(due)
