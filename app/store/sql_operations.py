"""What a task store does to one task, as operations that share a transaction with others.

An operation says what is to be read for it; then it decides on what was read, all at once, and leaves in the plan what
is to be written. One that raises or refuses leaves nothing. An operation may be decided again, after a transaction that
failed, and finds what the one before it wrote if that was committed after all.
"""

from abc import abstractmethod
from typing import Final, Generic, TypeVar

from app.protocol.events import Clock, begin_turn_update, encode_event, update_of
from app.protocol.identity import Owner
from app.protocol.lifecycle import INTERRUPTED, TERMINAL, TURN_ENDING, Event, copy_task
from app.protocol.types import Task
from app.store.snapshots import encode_artifacts
from app.store.sql_head import Head
from app.store.sql_plan import Plan
from app.store.turns import StrandedTurn
from app.store.values import (
    Busy,
    CancelFlagged,
    Claimed,
    Commit,
    Conflict,
    ContextMismatch,
    Ended,
    EventLogGapError,
    FencedError,
    IdempotencyKey,
    KeyClaimed,
    Lease,
    LogEntry,
    NewTask,
    NewTurn,
    NotFound,
    Replay,
    check_claim,
    nameable,
)

T = TypeVar("T")

_NO_ENTRY: Final = LogEntry(0, b"")


class Operation(Generic[T]):
    """One step that either happens whole or not at all."""

    owner: Owner
    task_id: str | None = None
    """The task whose head is to be locked; `None` for an id that no task can have."""
    makes_task: bool = False
    """Whether the task is taken not to be there yet, so that nothing is looked up before it is found to be."""
    key: str | None = None
    """The idempotency key that is to be looked up."""
    needs_body: bool = False
    """Whether the whole task is to be read."""
    has_push_config: bool = False
    """Whether the push configurations of the task are to be read."""
    entries: int = 1
    size: int = 0
    """Log entries it writes, and their bytes, for the bounds of a transaction."""
    uncertain: bool = False
    """Whether a transaction with it may have been committed without our knowing."""
    tried_seq: int | None = None
    """The head of the log before it, when it was last decided."""
    tried_epoch: int | None = None
    """The epoch it wrote under, when it was last decided."""

    @abstractmethod
    def decide(self, plan: Plan) -> T:
        """The outcome, with what it takes in the plan."""

    def entries_after(self, head: Head) -> int | None:
        """The position after which the log is to be read for this operation; `None` for not at all."""
        if self.uncertain and self.tried_seq is not None and head.seq > self.tried_seq:
            return self.tried_seq
        return None


class CreateTask(Operation[Claimed | Replay | Conflict]):
    """`TaskStore.create_task`."""

    makes_task = True

    def __init__(self, owner: Owner, new: NewTask) -> None:
        self.owner, self.task_id = owner, new.task.id
        self.key = _storable_key(new.key)
        self._new = new
        # Handed back in the end: what is stored is written down before, and nothing here changes it.
        self._task = copy_task(new.task)
        self._data = update_of(new.task).data
        self.size = len(self._data)

    def decide(self, plan: Plan) -> Claimed | Replay | Conflict:
        """The task with its first entry, unless the key or the id is taken."""
        new, task = self._new, self._task
        head = plan.heads.get(task.id)
        if head is not None and self.uncertain and plan.already_written(task.id, 0, 1, [self._data]):
            return self._claimed(head)
        claim = plan.check_key(self.owner, new.key)
        if not isinstance(claim, KeyClaimed):
            return claim
        if head is not None:
            raise FencedError(f"the task id {task.id} is taken")
        self.tried_seq = 0
        head = plan.create(self.owner, task, self._data, hidden=new.hidden)
        plan.configure(new.push_config, 0)
        plan.claim(self.owner, new.key, task.id, 1)
        _take_lease(head, new.lease)
        return self._claimed(head)

    def _claimed(self, head: Head) -> Claimed:
        return Claimed(self._task, head.epoch, 1, LogEntry(1, self._data), head=1, log_bytes=head.log_bytes)


class BeginTurn(Operation[Claimed | Replay | Conflict | Busy | Ended | ContextMismatch | NotFound]):
    """`TaskStore.begin_turn`."""

    needs_body = True

    def __init__(self, owner: Owner, new: NewTurn, clock: Clock) -> None:
        self.owner, self.task_id = owner, _known(new.task_id)
        self.key = _storable_key(new.key)
        self.has_push_config = new.push_config is not None
        self._new = new
        self._clock = clock
        self._written: LogEntry | None = None

    def decide(  # noqa: PLR0911 - one way out a refusal
        self, plan: Plan
    ) -> Claimed | Replay | Conflict | Busy | Ended | ContextMismatch | NotFound:
        """The message and a WORKING entry under a new epoch; a key that was claimed before answers first."""
        new, head = self._new, plan.find(self.owner, self._new.task_id)
        if head is not None and self._landed(plan, head) and self._written is not None:
            return self._claimed(plan, head, self._written)
        claim = plan.check_key(self.owner, new.key)
        if not isinstance(claim, KeyClaimed):
            return claim
        if head is None or head.hidden:
            return NotFound()
        if new.context_id is not None and new.context_id != head.context_id:
            return ContextMismatch()
        if head.ended:
            return Ended(head.state)
        if head.live:
            return Busy()
        body = plan.bodies[head.id]
        update = begin_turn_update(body, new.message, self._clock())
        current = head.snapshot_seq == head.seq
        plan.configure(new.push_config, head.seq)
        self.tried_seq = head.seq
        plan.claim(self.owner, new.key, head.id, head.seq + 1)
        _take_lease(head, new.lease)
        self.tried_epoch = head.epoch
        head.attempt, head.turn_seq = 1, head.seq + 1
        entry = plan.append(head, [update], head.epoch)
        body = plan.bodies[head.id]
        if current:
            plan.move_snapshot(head)
        else:
            plan.put_snapshot(head, encode_artifacts(body.artifacts))
        assert entry is not None  # noqa: S101 - one update, one entry
        self._written = entry
        return self._claimed(plan, head, entry)

    def _claimed(self, plan: Plan, head: Head, entry: LogEntry) -> Claimed:
        body = copy_task(plan.bodies[head.id])
        return Claimed(body, head.epoch, entry.seq, entry, head=entry.seq, log_bytes=head.log_bytes)

    def _landed(self, plan: Plan, head: Head) -> bool:
        if not self.uncertain or self._written is None or self.tried_seq is None or head.epoch != self.tried_epoch:
            return False
        return plan.already_written(head.id, self.tried_seq, head.epoch, [self._written.data]) == 1


class CommitUpdates(Operation[int]):
    """`TaskStore.commit`."""

    def __init__(self, owner: Owner, commit: Commit, *, with_snapshot: bool) -> None:
        self.owner, self.task_id = owner, _known(commit.task_id)
        self._epoch = commit.epoch
        self._updates = list(commit.updates)
        self._after = commit.after_seq
        self.entries = len(self._updates)
        self.size = sum(len(update.data) for update in self._updates)
        # The task goes on changing once this call suspends, so what may be stored of it is written down now.
        self._artifacts: bytes | None = None
        if with_snapshot or any(update.state in TURN_ENDING for update in self._updates):
            self._artifacts = encode_artifacts(commit.task.artifacts)

    def entries_after(self, head: Head) -> int | None:
        """What follows the position the caller or the try before knows of, if anything does."""
        if self.uncertain and self._after is None:
            self._after = self.tried_seq
        return self._after if self._after is not None and head.seq > self._after else None

    def decide(self, plan: Plan) -> int:
        """The updates at the end of the log, without those that a try before has left there."""
        head = plan.find(self.owner, self.task_id or "")
        if head is None:
            raise FencedError("there is no such task")
        updates, done = self._updates, 0
        if self._after is not None and head.seq > self._after:
            done = plan.already_written(head.id, self._after, self._epoch, [update.data for update in updates])
            if done == len(updates):
                return self._after + done
        if head.epoch != self._epoch:
            raise FencedError("a newer epoch holds the task")
        if head.ended:
            raise FencedError("the task has ended")
        self.tried_seq = head.seq
        alone = self._after is None or head.seq == self._after + done
        plan.append(head, updates[done:], self._epoch)
        if self._artifacts is not None and alone:
            plan.put_snapshot(head, self._artifacts)
        return head.seq


class BeginCancel(Operation[Claimed | CancelFlagged | Ended | NotFound]):
    """`TaskStore.begin_cancel`."""

    needs_body = True

    def __init__(self, owner: Owner, task_id: str, lease: Lease) -> None:
        self.owner, self.task_id = owner, _known(task_id)
        self._lease = lease

    def decide(self, plan: Plan) -> Claimed | CancelFlagged | Ended | NotFound:
        """A flag on a running turn, or a lease on a task that nobody runs."""
        head = plan.find(self.owner, self.task_id or "")
        if head is None or head.hidden:
            return NotFound()
        if head.ended:
            return Ended(head.state)
        if not (self.uncertain and head.epoch == self.tried_epoch and head.worker == self._lease.worker):
            if head.live:
                head.cancel_requested = head.settled = True
                plan.changed.add(head.id)
                return CancelFlagged()
            _take_lease(head, self._lease)
            self.tried_epoch = head.epoch
        return Claimed(copy_task(plan.bodies[head.id]), head.epoch, head.seq, _NO_ENTRY, head=head.seq)


class TakeOver(Operation[Claimed | None]):
    """`TurnStore.take_over`."""

    needs_body = True

    def __init__(self, turn: StrandedTurn, lease: Lease) -> None:
        self.owner, self.task_id = turn.owner, turn.task_id
        self._turn = turn
        self._lease = lease

    def decide(self, plan: Plan) -> Claimed | None:
        """A lease on a turn that nobody runs, under a new epoch."""
        head = plan.find(self.owner, self._turn.task_id)
        if head is None:
            return None
        if not (self.uncertain and head.epoch == self.tried_epoch and head.worker == self._lease.worker):
            if head.epoch != self._turn.epoch or head.live or head.state in TERMINAL | INTERRUPTED:
                return None
            # A turn that was never leased begins its first run now.
            head.attempt += head.worker is not None
            _take_lease(head, self._lease)
            self.tried_epoch = head.epoch
        body = copy_task(plan.bodies[head.id])
        return Claimed(body, head.epoch, head.turn_seq, _NO_ENTRY, head.attempt, head.seq, head.log_bytes)


class AppendEvent(Operation[None]):
    """`TaskStore.append_event`."""

    def __init__(self, owner: Owner, task_id: str, seq: int, event: Event) -> None:
        self.owner, self.task_id = owner, _known(task_id)
        self._seq = seq
        self._update = update_of(event)
        self.size = len(self._update.data)

    def decide(self, plan: Plan) -> None:
        """The event at the next position; one that is taken stays as it is."""
        head = plan.find(self.owner, self.task_id or "")
        if head is None:
            raise FencedError("there is no such task")
        if self._seq <= head.seq:
            return
        if self._seq > head.seq + 1:
            raise EventLogGapError(f"the log ends at {head.seq}; {self._seq} would leave a gap")
        if head.ended:
            raise FencedError("the task has ended")
        plan.append(head, [self._update], head.epoch)


class SaveTask(Operation[None]):
    """`TaskStore.save`."""

    def __init__(self, owner: Owner, task: Task) -> None:
        self.owner, self.task_id = owner, task.id
        self._task = task.model_copy(deep=True)
        self.size = len(encode_event(task))

    def decide(self, plan: Plan) -> None:
        """The task as it is, current at the head of its log."""
        task, head = self._task, plan.heads.get(self._task.id)
        if head is None:
            plan.create(self.owner, task)
            return
        if head.owner != self.owner:
            raise FencedError(f"the task id {task.id} is taken")
        if head.ended and head.state is not task.status.state:
            raise FencedError("the task has ended")
        plan.replace(head, task)
        plan.changed.add(task.id)


class InsertTask(Operation[bool]):
    """`TaskStore.insert_if_absent`."""

    def __init__(self, owner: Owner, task: Task) -> None:
        self.owner, self.task_id = owner, task.id
        self._task = task.model_copy(deep=True)
        self.size = len(encode_event(task))
        self._created_ms: int | None = None

    def decide(self, plan: Plan) -> bool:
        """The task, if its id is free."""
        head = plan.heads.get(self._task.id)
        if head is not None:
            return self.uncertain and head.owner == self.owner and head.created_ms == self._created_ms
        self._created_ms = plan.now_ms
        plan.create(self.owner, self._task)
        return True


class ClaimKey(Operation[KeyClaimed | Replay | Conflict]):
    """`TaskStore.claim_idempotency_key`."""

    def __init__(self, owner: Owner, key: IdempotencyKey, task_id: str) -> None:
        self.owner, self.key = owner, _storable_key(key, task_id)
        self._key = key
        self._for = task_id

    def decide(self, plan: Plan) -> KeyClaimed | Replay | Conflict:
        """The key for a task whose turn begins with entry 1, if it is free."""
        claim = plan.check_key(self.owner, self._key)
        if isinstance(claim, KeyClaimed):
            plan.claim(self.owner, self._key, self._for, 1)
        elif self.uncertain and isinstance(claim, Replay) and claim.task_id == self._for:
            return KeyClaimed()
        return claim


def _known(task_id: str) -> str | None:
    return task_id if nameable(task_id) else None


def _storable_key(key: IdempotencyKey | None, task_id: str = "") -> str | None:
    if key is None:
        return None
    check_claim(key.key, key.message_id, task_id)
    return key.key


def _take_lease(head: Head, lease: Lease | None) -> None:
    if lease is None:
        head.take_lease(None, 0.0)
    else:
        head.take_lease(lease.worker, lease.ttl)
