"""What one transaction will write: decided in memory on rows that are locked, then written in a few statements."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic_core import to_json as dump_json

from app.protocol.events import Update
from app.protocol.extensions import TURN_MESSAGE_METADATA
from app.protocol.identity import Owner
from app.protocol.lifecycle import Event, fold
from app.protocol.protojson import to_json
from app.protocol.push import TaskPushNotificationConfig
from app.protocol.types import Message, Task, TaskStatusUpdateEvent
from app.store.engines import RacedError
from app.store.scripts import Script, Statement, fetch, write
from app.store.snapshots import SNAPSHOT_BYTES, encode_artifacts
from app.store.sql_head import Head, encode_struct
from app.store.sql_push import PushStatements, StoredConfigs, config_row
from app.store.sql_writes import WriteStatements
from app.store.tables import context_digest, owner_digest
from app.store.values import Conflict, IdempotencyKey, KeyClaimed, LogEntry, Replay


class HeldKey(NamedTuple):
    """What an idempotency key stands for."""

    message_id: str
    task_id: str
    first_seq: int


class StoredEntry(NamedTuple):
    """An entry as the log has it."""

    seq: int
    epoch: int
    data: bytes


class Plan:
    """The rows a transaction has read, as they are after what was decided so far, and what is to be written for it."""

    def __init__(self, *, max_events: int | None, max_push_configs: int, now_ms: int) -> None:
        self.now_ms = now_ms
        self.heads: dict[str, Head] = {}
        self.held: dict[tuple[str, bytes], HeldKey] = {}
        self.bodies: dict[str, Task] = {}
        """Whole tasks, for the operations that asked for them."""
        self.entries: dict[str, list[StoredEntry]] = {}
        """Entries already in the log, for operations that are tried again."""
        self.configs: StoredConfigs = {}
        """Push configurations of the tasks that are to get another."""
        self.changed: set[str] = set()
        """Tasks whose followers are to be woken."""
        self._max_events = max_events
        self._max_push_configs = max_push_configs
        self._events: list[tuple[str, int, int, bytes]] = []
        self._messages: list[tuple[str, int, bytes]] = []
        self._moved: list[str] = []
        self._snapshots: dict[str, bytes] = {}
        self._claims: list[tuple[Any, ...]] = []
        self._configs: list[tuple[Any, ...]] = []
        self._cleared: list[str] = []
        self._described: dict[str, tuple[Any, ...]] = {}

    # -- what is there

    def find(self, owner: Owner, task_id: str) -> Head | None:
        """The head of a task, if it is this owner's."""
        head = self.heads.get(task_id)
        return head if head is not None and head.owner == owner else None

    def check_key(self, owner: Owner, key: IdempotencyKey | None) -> KeyClaimed | Replay | Conflict:
        """What a claim of the key would find; `KeyClaimed` if it is free, or there is none."""
        held = None if key is None else self.held.get((key.key, owner_digest(owner)))
        if key is None or held is None:
            return KeyClaimed()
        return Replay(held.task_id, held.first_seq) if held.message_id == key.message_id else Conflict()

    def already_written(self, task_id: str, after_seq: int, epoch: int, data: Sequence[bytes]) -> int:
        """How many of these entries the log has right after a position, written under this epoch."""
        stored = [entry for entry in self.entries.get(task_id, ()) if entry.seq > after_seq]
        count = 0
        for entry, wanted in zip(stored, data, strict=False):
            if entry != (after_seq + count + 1, epoch, wanted):
                break
            count += 1
        return count

    # -- what is to be written

    def claim(self, owner: Owner, key: IdempotencyKey | None, task_id: str, first_seq: int) -> None:
        """Claim a free key."""
        if key is not None:
            digest = owner_digest(owner)
            self.held[key.key, digest] = HeldKey(key.message_id, task_id, first_seq)
            self._claims.append((key.key, digest, key.message_id, task_id, first_seq, self.now_ms))

    def configure(self, config: TaskPushNotificationConfig | None, after: int) -> None:
        """Add a webhook that hears of what follows a position; raises `TooManyPushConfigsError` as its store does."""
        if config is not None:
            self._configs.append(config_row(config, after, self.configs, self._max_push_configs))

    def create(self, owner: Owner, task: Task, entry: bytes | None = None, *, hidden: bool = False) -> Head:
        """Add a task, with the first entry of its log or with none."""
        head = Head.make(owner, task, self.now_ms)
        head.hidden = hidden
        self.heads[task.id] = head
        self._add_messages(head, [to_json(message) for message in task.history])
        if entry is not None:
            head.seq = head.snapshot_seq = 1
            head.log_bytes = len(entry)
            self._events.append((task.id, 1, 1, entry))
        if task.artifacts:
            self.put_snapshot(head, encode_artifacts(task.artifacts))
        self.changed.add(task.id)
        return head

    def replace(self, head: Head, task: Task) -> None:
        """Make everything but the log as the task has it."""
        head.set_status(task.status)
        head.hidden = False
        if not head.fresh:
            self._cleared.append(head.id)
            self._moved = [task_id for task_id in self._moved if task_id != head.id]
            self._described[head.id] = (
                head.id,
                task.context_id,
                context_digest(task.context_id),
                encode_struct(task.metadata),
            )
        head.context_id, head.metadata = task.context_id, encode_struct(task.metadata)
        self._messages = [message for message in self._messages if message[0] != head.id]
        head.history_length = 0
        self._add_messages(head, [to_json(message) for message in task.history])
        self.put_snapshot(head, encode_artifacts(task.artifacts))

    def append(self, head: Head, updates: Sequence[Update], epoch: int) -> LogEntry | None:
        """Put updates at the end of the log, with what they say of the status and the history; the last as an entry."""
        task_id, seq, entry = head.id, head.seq, None
        body = self.bodies.get(task_id)
        for update in updates:
            data = update.data
            seq += 1
            head.seq = seq
            head.tail_bytes += len(data)
            head.log_bytes += len(data)
            self._events.append((task_id, seq, epoch, data))
            if not update.is_chunk:
                self._say(head, update.event)
            if head.hidden and not update.is_reply:
                head.hidden, head.settled = False, True
            if body is not None:
                body = self.bodies[task_id] = fold(body, update.event)
        if updates:
            entry = LogEntry(seq, updates[-1].data, updates[-1].decoded)
        head.progressed = True
        self.changed.add(task_id)
        return entry

    def _say(self, head: Head, event: Event) -> None:
        if isinstance(event, TaskStatusUpdateEvent):
            self._set_status(head, event)
        elif isinstance(event, Task):
            self.replace(head, event)
        elif isinstance(event, Message):
            head.set_reply(event)

    def put_snapshot(self, head: Head, artifacts: bytes) -> None:
        """Store the artifacts as they are at the head of the log."""
        self._snapshots[head.id] = artifacts
        head.snapshot_bytes = len(artifacts)
        self.move_snapshot(head)

    def move_snapshot(self, head: Head) -> None:
        """Declare the stored snapshot current: nothing since it has changed an artifact."""
        head.snapshot_seq, head.tail_bytes = head.seq, 0
        head.progressed = True

    def snapshot_due(self, head: Head) -> bool:
        """Whether the tail has become longer than reading it should take."""
        if head.tail_bytes > max(SNAPSHOT_BYTES, head.snapshot_bytes):
            return True
        if self._max_events is None or head.tail_bytes <= head.snapshot_bytes:
            return False
        return head.seq - head.snapshot_seq > self._max_events

    def _set_status(self, head: Head, event: TaskStatusUpdateEvent) -> None:
        if head.stored_message:
            self._moved.append(head.id)
            head.history_length += 1
        elif head.message is not None:
            self._add_messages(head, [head.message])
        if event.metadata and (message := event.metadata.get(TURN_MESSAGE_METADATA)):
            self._add_messages(head, [dump_json(message)])
        head.set_status(event.status)

    def _add_messages(self, head: Head, messages: Sequence[bytes]) -> None:
        for message in messages:
            self._messages.append((head.id, head.history_length, message))
            head.history_length += 1

    # -- writing it

    def store(self, sql: WriteStatements, push: PushStatements) -> Script[None]:
        """Write it all: heads in the order of their ids, then what hangs on them, then keys in their order.

        Raises:
            RacedError: a row that was read has changed, or one that was not there is.
        """
        dropped = self._truncate()
        fresh = [head for head in self.heads.values() if head.fresh]
        known = [head for head in self.heads.values() if not head.fresh]
        settled = [head.update_row() for head in known if head.settled]
        progressed = [head.progress_row() for head in known if head.progressed and not head.settled]
        if self._cleared:
            yield from fetch(sql.clear_history, self._cleared)
        if self._moved:
            yield from fetch(sql.move_status_messages, self._moved)
        yield from _all(sql.insert_heads, sorted(head.insert_row() for head in fresh))
        yield from _all(sql.update_heads, sorted(settled))
        yield from _all(sql.advance_heads, sorted(progressed))
        yield from write(sql.describe_heads, list(self._described.values()))
        yield from write(sql.insert_messages, self._messages)
        yield from write(sql.insert_events, self._events)
        yield from write(sql.put_snapshots, sorted(self._snapshots.items()))
        yield from write(sql.drop_events, dropped)
        yield from write(push.put, sorted(self._configs))
        yield from _all(sql.insert_keys, sorted(self._claims))

    def _truncate(self) -> list[tuple[str, int]]:
        """Let entries below the snapshots go where there are too many; say from where on each log stays.

        A quarter more is let stand before any is dropped, so that the cost of an entry stays the same.
        """
        keep = self._max_events
        dropped: list[tuple[str, int]] = []
        if keep is None:
            return dropped
        for head in self.heads.values():
            surplus = head.seq - head.earliest_seq + 1 - keep
            if head.progressed and surplus > keep // 4:
                first = min(head.seq - keep, head.snapshot_seq, head.seq - 1) + 1
                if first > head.earliest_seq:
                    head.earliest_seq = first
                    dropped.append((head.id, first))
        return dropped


def _all(statement: Statement, rows: Sequence[Sequence[Any]]) -> Script[None]:
    count = yield from write(statement, rows)
    if count != len(rows):
        raise RacedError
