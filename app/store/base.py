"""`TaskStore`: what a server asks of the place that keeps its tasks.

Five methods are required. The rest have defaults, so that a store of five methods works; what it cannot do is asked of
`supports_*()` and then neither advertised nor promised. The compound methods gather steps that must not come apart: the
defaults do them one by one, a store with transactions overrides each with one.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, Self

from app.protocol.errors import PushNotificationNotSupportedError, UnsupportedOperationError
from app.protocol.events import begin_turn_update, update_of, utc_now
from app.protocol.identity import ANONYMOUS, Owner
from app.protocol.lifecycle import TERMINAL, Event, copy_task, fold
from app.protocol.push import TaskPushNotificationConfig
from app.protocol.requests import ListTasksRequest, ListTasksResponse
from app.protocol.types import Message, Task, TaskArtifactUpdateEvent
from app.store.push_configs import PushConfigStore
from app.store.values import (
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
)

__all__ = [
    "ArtifactDelta",
    "Busy",
    "CancelFlagged",
    "Claimed",
    "Commit",
    "Conflict",
    "ContextMismatch",
    "Ended",
    "EventLogGapError",
    "FencedError",
    "IdempotencyKey",
    "KeyClaimed",
    "Lease",
    "LogEntry",
    "NewTask",
    "NewTurn",
    "NotFound",
    "Purged",
    "Replay",
    "RetentionPolicy",
    "Snapshot",
    "StoreStartError",
    "TaskStore",
    "refuse_turn",
]

CLAIM_WAIT: Final = 2.0
"""Seconds for which a send waits for the task of one with the same key that is between its claim and its insert."""
CLAIM_POLL: Final = 0.02


class TaskStore(ABC):
    """Keeps the tasks of one owner; `for_owner` gives the view of another.

    Every value returned is the caller's own: it never changes under them, and changing it changes nothing stored.
    Faults of the database surface as `UnavailableError`.
    """

    # -- required

    @abstractmethod
    async def save(self, task: Task) -> None:
        """Create or replace a task.

        A store with an event log replaces the snapshot, makes it current at the head of the log, and refuses to change
        the state of a task that has ended.

        Raises:
            FencedError: the task has ended in another state.
        """

    @abstractmethod
    async def get(self, task_id: str) -> Task | None:
        """The task, or `None` if this owner has none of that id."""

    @abstractmethod
    async def list(self, params: ListTasksRequest) -> ListTasksResponse:
        """One page of tasks, newest status first, ties by id; `total_size` is the same on every page (A2A 3.1.4).

        Tasks come with artifacts only if `include_artifacts`, and with all their history up to `history_length`.

        Raises:
            InvalidParamsError: the page token is not of this listing.
        """

    @abstractmethod
    async def insert_if_absent(self, task: Task) -> bool:
        """Store the task if its id is free, atomically; say whether it was."""

    @abstractmethod
    async def delete(self, task_id: str) -> None:
        """Remove the task, its log and its configurations, never an idempotency key. Absent is no error."""

    # -- provided: counting and idempotency

    async def count(self) -> int:
        """How many tasks there are; 0 from a store that does not count."""
        return 0

    def supports_idempotency(self) -> bool:
        """Whether keys can be claimed. `False` refuses keyed sends and keeps the extension off the card."""
        return False

    async def claim_idempotency_key(self, key: str, message_id: str, task_id: str) -> "KeyClaimed | Replay | Conflict":
        """Claim a key for a task on behalf of a message, atomically: of racing claims exactly one is `KeyClaimed`.

        Sameness is the message id, never the content.

        Raises:
            UnsupportedOperationError: this store has no index of keys.
            UnavailableError: the index is full; nothing was claimed.
        """
        raise UnsupportedOperationError("This store cannot honour idempotency keys.")

    async def release_idempotency_key(self, key: str) -> None:
        """Free a key whose send created nothing. A key that is not held is no error."""
        raise UnsupportedOperationError("This store cannot honour idempotency keys.")

    async def save_artifact_delta(self, task: Task, delta: ArtifactDelta) -> None:
        """Store a change of one artifact that `task` already shows; leaves exactly what `save(task)` would."""
        await self.save(task)

    # -- provided: the event log

    def supports_event_log(self) -> bool:
        """Whether events are kept by position. `False` means streams without `id:` and no resume."""
        return False

    async def append_event(self, task_id: str, seq: int, event: Event) -> None:
        """Store an event at a position; a position already taken is left as it is.

        Raises:
            EventLogGapError: the position is beyond the next one.
            FencedError: there is no such task, or it has ended.
            UnsupportedOperationError: this store keeps no log.
        """
        raise UnsupportedOperationError("This store keeps no event log.")

    async def last_event_seq(self, task_id: str) -> int:
        """The newest position of the log, 0 if it is empty."""
        raise UnsupportedOperationError("This store keeps no event log.")

    async def read_events(self, task_id: str, after_seq: int, limit: int) -> Sequence[LogEntry]:
        """At most `limit` entries after a position (exclusive), in order."""
        raise UnsupportedOperationError("This store keeps no event log.")

    async def earliest_event_seq(self, task_id: str) -> int | None:
        """The oldest position kept; `None` if there is none, or the store cannot say."""
        return None

    async def event_log_covers(self, task_id: str, after_seq: int) -> bool:
        """Whether a replay from `after_seq` (exclusive) is whole, as far as can be known."""
        earliest = await self.earliest_event_seq(task_id)
        return earliest is None or after_seq >= earliest - 1

    # -- compound

    async def create_task(self, new: NewTask) -> "Claimed | Replay | Conflict":
        """Claim the key, store the task, its first entry and its webhook, take the lease.

        All or nothing in a store with transactions. The default releases the key on every failure path, hides no task,
        and with a key whose task is not there yet waits for it, at most `CLAIM_WAIT` seconds.

        Raises:
            PushNotificationNotSupportedError: a webhook, and no place for it.
            UnsupportedOperationError: a key, and no index of keys.
            UnavailableError: the store is full or out of reach.
        """
        task = new.task
        update = update_of(task)
        claim = await self._claim(new.key, task.id)
        if not isinstance(claim, KeyClaimed):
            return claim
        try:
            if not await self.insert_if_absent(task):
                raise FencedError(f"a task {task.id} exists")
            if self.supports_event_log():
                await self.append_event(task.id, 1, task)
            await self._configure(new.push_config, 0)
        except BaseException:
            await self._release(new.key)
            raise
        return Claimed(copy_task(task), 0, 1, LogEntry(1, update.data, update.event))

    async def begin_turn(
        self, new: NewTurn
    ) -> "Claimed | Replay | Conflict | Busy | Ended | ContextMismatch | NotFound":
        """Claim the key, add the message to the history and a WORKING entry to the log, take a lease and a new epoch.

        A key that was claimed before answers first, whatever became of the task. Of concurrent calls for one task
        exactly one is `Claimed`. A webhook is stored with the turn.

        Raises:
            PushNotificationNotSupportedError: a webhook, and no place for it.
            TooManyPushConfigsError: a webhook, and the task has as many as it may.
            UnsupportedOperationError: a key, and no index of keys.
            UnavailableError: the index of keys is full, or the store out of reach.
        """
        claim = await self._claim(new.key, new.task_id)
        if not isinstance(claim, KeyClaimed):
            return claim
        try:
            task = await self.get(new.task_id)
            refusal = refuse_turn(task, new)
            if task is None or refusal is not None:
                await self._release(new.key)
                return refusal or NotFound()
            update = begin_turn_update(task, new.message, utc_now())
            seq = await self.last_event_seq(task.id) + 1 if self.supports_event_log() else 0
            task = fold(task, update.event)
            await self._configure(new.push_config, seq - 1)
            if self.supports_event_log():
                await self.append_event(task.id, seq, update.event)
            await self.save(task)
        except BaseException:
            await self._release(new.key)
            raise
        return Claimed(task, 0, seq, LogEntry(seq, update.data, update.event))

    async def commit(self, commit: Commit) -> int:
        """Store updates of one task and the task as they leave it; return the new head of the log.

        The entries take the next positions. All or nothing, and durable on return, in a store with transactions. A bare
        Message ends the task, which stays hidden; the default cannot hide one and deletes it.

        Raises:
            FencedError: the epoch is stale, the task has ended, or it is gone.
        """
        if any(isinstance(update.event, Message) for update in commit.updates):
            await self.delete(commit.task_id)
            return 0
        seq = 0
        if self.supports_event_log():
            seq = await self.last_event_seq(commit.task_id)
            for update in commit.updates:
                seq += 1
                await self.append_event(commit.task_id, seq, update.event)
        if len(commit.updates) == 1 and isinstance(event := commit.updates[0].event, TaskArtifactUpdateEvent):
            await self.save_artifact_delta(commit.task, ArtifactDelta(event.artifact, bool(event.append)))
        else:
            await self.save(commit.task)
        return seq

    async def snapshot(self, task_id: str) -> Snapshot | None:
        """The task with its position, in one read; `None` if this owner has none of that id."""
        task = await self.get(task_id)
        if task is None:
            return None
        if not self.supports_event_log():
            return Snapshot(task, 0, 0)
        return Snapshot(task, await self.last_event_seq(task_id), await self.earliest_event_seq(task_id) or 0)

    async def begin_cancel(self, task_id: str, lease: Lease) -> "Claimed | CancelFlagged | Ended | NotFound":
        """Ask a running turn to stop, or take the task from nobody so that the caller may commit CANCELED.

        `Claimed.first_seq` and `.entry` mean nothing here.
        """
        task = await self.get(task_id)
        if task is None:
            return NotFound()
        if task.status.state in TERMINAL:
            return Ended(task.status.state)
        return Claimed(task, 0, 0, LogEntry(0, b""))

    # -- owners and life

    async def ping(self) -> None:
        """Return if the store is within reach. Raises `UnavailableError` if it is not."""

    def supports_owners(self) -> bool:
        """Whether `for_owner` can keep owners apart."""
        return False

    def for_owner(self, owner: Owner) -> "TaskStore":
        """A view that can reach the tasks and keys of this owner and nothing else.

        Raises:
            UnsupportedOperationError: another owner than the anonymous one, on a store that cannot keep them apart.
        """
        if owner != ANONYMOUS:
            raise UnsupportedOperationError("This store cannot keep owners apart.")
        return self

    async def __aenter__(self) -> Self:
        """Open what the store needs, before its first use."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Close it, after its last."""

    # -- the steps of the defaults

    async def _claim(self, key: IdempotencyKey | None, task_id: str) -> "KeyClaimed | Replay | Conflict":
        if key is None:
            return KeyClaimed()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CLAIM_WAIT
        while True:
            claim = await self.claim_idempotency_key(key.key, key.message_id, task_id)
            if not isinstance(claim, Replay) or await self.get(claim.task_id) is not None or loop.time() > deadline:
                return claim
            await asyncio.sleep(CLAIM_POLL)

    async def _release(self, key: IdempotencyKey | None) -> None:
        if key is not None:
            await self.release_idempotency_key(key.key)

    async def _configure(self, config: TaskPushNotificationConfig | None, after: int) -> None:
        if config is None:
            return
        # A view of some other owner is not what keeps the configurations, and cannot say whose this one is.
        if not isinstance(self, PushConfigStore) or self.supports_owners():
            raise PushNotificationNotSupportedError
        await self.put_push_config(ANONYMOUS, config, after)


def refuse_turn(task: Task | None, new: NewTurn) -> "Ended | ContextMismatch | NotFound | None":
    """Why a task takes no further message, lease aside; `None` if it does."""
    if task is None:
        return NotFound()
    if new.context_id is not None and new.context_id != task.context_id:
        return ContextMismatch()
    if task.status.state in TERMINAL:
        return Ended(task.status.state)
    return None
