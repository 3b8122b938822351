"""The tables of the SQL store. What belongs to a task is keyed by the task's id first, so that it can be sharded by it.

Times are milliseconds since the epoch, which no time zone setting can change. JSON is kept as UTF-8 bytes, as it is
sent. Identifiers compare by code point on every database, as the order of a listing asks. What clients choose freely is
indexed by its digest: PostgreSQL takes no more than 2,700 bytes into an index.
"""

import hashlib
from typing import Final

from sqlalchemy import BigInteger, Boolean, Index, Integer, LargeBinary, MetaData, Table, Text, false, text
from sqlalchemy.types import TypeEngine
from sqlmodel import Field, SQLModel

from app.protocol.identity import Owner
from app.protocol.lifecycle import INTERRUPTED, TERMINAL
from app.protocol.types import TaskState


def owner_digest(owner: Owner) -> bytes:
    """Stands for an owner in keys and indexes; long enough that no two owners ever share one."""
    text = f"{len(owner.tenant)}:{owner.tenant}{owner.subject}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def context_digest(context_id: str | None) -> int | None:
    """Narrows a search for a context; not unique."""
    if context_id is None:
        return None
    digest = hashlib.blake2b(context_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def config_digest(config_id: str) -> bytes:
    """Stands for a push configuration's id, which is too long for an index."""
    return hashlib.blake2b(config_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()


NAME: Final[TypeEngine[str]] = Text().with_variant(Text(collation="C"), "postgresql")


def _states(states: frozenset[TaskState]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))


RUNNABLE: Final = text(f"state NOT IN ({_states(TERMINAL | INTERRUPTED)})")
"""Tasks whose turn is running, or should be. Written alike in indexes and queries, or the index goes unused."""

ENDED: Final = text(f"state IN ({_states(TERMINAL)})")
"""Tasks in a final state."""

DELIVERABLE: Final = text("state = 'active'")
"""Push configurations that have or will have something to be told."""


class Base(SQLModel):
    """What the tables share: names of constraints that migrations can rely on."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class TaskHead(Base, table=True):
    """One task without what grows: whose it is, where it stands, who runs it. Small, since every event updates it."""

    __tablename__ = "tasks"
    __table_args__ = (
        Index("ix_tasks_listing", "owner", text("status_ms DESC"), "id"),
        Index("ix_tasks_context", "owner", "context_hash", text("status_ms DESC"), "id"),
        Index("ix_tasks_state", "owner", "state", text("status_ms DESC"), "id"),
        Index("ix_tasks_lease", "lease_until", postgresql_where=RUNNABLE, sqlite_where=RUNNABLE),
        Index("ix_tasks_ended", "status_ms", postgresql_where=ENDED, sqlite_where=ENDED),
        # Room for the next versions of a row on its own page: an event then touches no index.
        {"postgresql_with": {"fillfactor": "70"}},
    )

    id: str = Field(sa_type=NAME, primary_key=True)
    owner: bytes = Field(sa_type=LargeBinary)
    """Digest of tenant and subject."""
    tenant: str = Field(sa_type=NAME)
    subject: str = Field(sa_type=NAME)
    context_id: str | None = Field(sa_type=NAME)
    context_hash: int | None = Field(sa_type=BigInteger)
    state: str = Field(sa_type=NAME)
    status_ms: int = Field(sa_type=BigInteger)
    """When the status was recorded; 0 if it does not say."""
    seq: int = Field(sa_type=BigInteger)
    """Newest position of the log; 0 if there is none."""
    earliest_seq: int = Field(sa_type=BigInteger)
    """Oldest position kept."""
    snapshot_seq: int = Field(sa_type=BigInteger)
    """Position up to which `task_snapshots` holds the artifacts."""
    snapshot_bytes: int = Field(sa_type=BigInteger)
    tail_bytes: int = Field(sa_type=BigInteger)
    """Bytes of the entries after the snapshot."""
    history_length: int = Field(sa_type=Integer)
    """Messages in `task_messages`."""
    epoch: int = Field(sa_type=BigInteger)
    turn_seq: int = Field(sa_type=BigInteger)
    """Position of the entry that began the turn."""
    attempt: int = Field(sa_type=Integer)
    worker: str | None = Field(sa_type=NAME)
    """Who holds or held the lease; `None` if nobody ever did, or the task has ended."""
    lease_until: int = Field(sa_type=BigInteger)
    """By the database's clock; 0 for none."""
    cancel_requested: bool = Field(sa_type=Boolean)
    created_ms: int = Field(sa_type=BigInteger)
    task_metadata: bytes | None = Field(sa_type=LargeBinary)
    status_message: bytes | None = Field(sa_type=LargeBinary)
    hidden: bool = Field(sa_type=Boolean, sa_column_kwargs={"server_default": false()})
    """Whether its owner does not see it: it has said nothing yet, or answered with a bare Message."""
    log_bytes: int = Field(sa_type=BigInteger, sa_column_kwargs={"server_default": "0"})
    """Bytes of all entries there ever were."""


class TaskMessage(Base, table=True):
    """One message of a task's history; the message of the current status is not among them."""

    __tablename__ = "task_messages"
    __table_args__ = {"sqlite_with_rowid": False}

    task_id: str = Field(sa_type=NAME, primary_key=True)
    position: int = Field(sa_type=Integer, primary_key=True, sa_column_kwargs={"autoincrement": False})
    """From 0, oldest first."""
    data: bytes = Field(sa_type=LargeBinary)


class TaskSnapshot(Base, table=True):
    """The artifacts of a task as of `TaskHead.snapshot_seq`: a JSON array. No row means none."""

    __tablename__ = "task_snapshots"

    task_id: str = Field(sa_type=NAME, primary_key=True)
    data: bytes = Field(sa_type=LargeBinary)


class TaskEvent(Base, table=True):
    """One entry of a task's log."""

    __tablename__ = "task_events"
    __table_args__ = {"sqlite_with_rowid": False}

    task_id: str = Field(sa_type=NAME, primary_key=True)
    seq: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    epoch: int = Field(sa_type=BigInteger)
    """The epoch it was written under."""
    data: bytes = Field(sa_type=LargeBinary)
    """A `StreamResponse` in ProtoJSON."""


class IdempotencyKeyRow(Base, table=True):
    """What a key stands for. No foreign key: a key outlives its task."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (Index("ix_idempotency_keys_created_ms", "created_ms"), {"sqlite_with_rowid": False})

    key: str = Field(sa_type=NAME, primary_key=True)
    owner: bytes = Field(sa_type=LargeBinary, primary_key=True)
    """Digest of the tenant and subject the key is unique within."""
    message_id: str = Field(sa_type=NAME)
    task_id: str = Field(sa_type=NAME)
    first_seq: int = Field(sa_type=BigInteger)
    created_ms: int = Field(sa_type=BigInteger)


class PushConfigRow(Base, table=True):
    """A webhook that hears of a task's events, how far it has heard, and who tells it."""

    __tablename__ = "push_configs"
    __table_args__ = (
        Index("ix_push_configs_due_ms", "due_ms", postgresql_where=DELIVERABLE, sqlite_where=DELIVERABLE),
        # Room for the next versions of a row on its own page.
        {"postgresql_with": {"fillfactor": "70"}},
    )

    task_id: str = Field(sa_type=NAME, primary_key=True)
    config_hash: bytes = Field(sa_type=LargeBinary, primary_key=True)
    """Digest of the id, which clients choose."""
    state: str = Field(sa_type=NAME)
    """Whether it is to be delivered to: `active`, `finished` or `disabled`."""
    position: int = Field(sa_type=BigInteger)
    """Newest entry delivered."""
    revision: int = Field(sa_type=BigInteger)
    """Raised with every replacement."""
    failures: int = Field(sa_type=Integer)
    """Deliveries that failed since the last that did not."""
    due_ms: int = Field(sa_type=BigInteger)
    """When it may be claimed, by the database's clock."""
    claimed_by: str | None = Field(sa_type=NAME)
    """Who delivers, or did last."""
    claimed_until: int = Field(sa_type=BigInteger)
    """By the database's clock; 0 for nobody."""
    data: bytes = Field(sa_type=LargeBinary)
    """A `TaskPushNotificationConfig` in ProtoJSON, credentials included."""


def _table(name: str) -> Table:
    return Base.metadata.tables[name]


TASKS: Final = _table("tasks")
MESSAGES: Final = _table("task_messages")
SNAPSHOTS: Final = _table("task_snapshots")
EVENTS: Final = _table("task_events")
KEYS: Final = _table("idempotency_keys")
PUSH_CONFIGS: Final = _table("push_configs")
