"""The statements that write, for one of the two databases."""

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Integer,
    LargeBinary,
    Text,
    Update,
    case,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.types import TypeEngine

from app.store.scripts import Statement
from app.store.statements import Builder, Rows, number
from app.store.tables import EVENTS, KEYS, MESSAGES, PUSH_CONFIGS, SNAPSHOTS, TASKS

OF_A_TASK: Final = (EVENTS, MESSAGES, SNAPSHOTS, PUSH_CONFIGS)
"""Tables whose rows go with their task."""

_MATCH: Final[dict[str, TypeEngine[Any]]] = {
    "id": Text(),
    "was_epoch": BigInteger(),
    "was_seq": BigInteger(),
    "was_state": Text(),
}
_PROGRESS: Final[dict[str, TypeEngine[Any]]] = {
    "seq": BigInteger(),
    "earliest_seq": BigInteger(),
    "snapshot_seq": BigInteger(),
    "snapshot_bytes": BigInteger(),
    "tail_bytes": BigInteger(),
    "log_bytes": BigInteger(),
}
_TURN: Final[dict[str, TypeEngine[Any]]] = {
    "state": Text(),
    "status_ms": BigInteger(),
    "history_length": Integer(),
    "epoch": BigInteger(),
    "turn_seq": BigInteger(),
    "attempt": Integer(),
    "worker": Text(),
    "cancel_requested": Boolean(),
    "hidden": Boolean(),
}


class WriteStatements:
    """What a transaction can do. Arguments are in the order that the comments give."""

    def __init__(self, build: Builder) -> None:
        # ids, in their order
        self.lock_heads = build.select(
            select(
                TASKS.c.id,
                TASKS.c.tenant,
                TASKS.c.subject,
                TASKS.c.context_id,
                TASKS.c.state,
                TASKS.c.status_ms,
                TASKS.c.seq,
                TASKS.c.earliest_seq,
                TASKS.c.snapshot_seq,
                TASKS.c.snapshot_bytes,
                TASKS.c.tail_bytes,
                TASKS.c.log_bytes,
                TASKS.c.history_length,
                TASKS.c.epoch,
                TASKS.c.turn_seq,
                TASKS.c.attempt,
                TASKS.c.worker,
                TASKS.c.cancel_requested,
                TASKS.c.hidden,
                TASKS.c.created_ms,
                TASKS.c.status_message.is_not(None),
                TASKS.c.lease_until > build.now_ms,
            )
            .where(build.among(TASKS.c.id, "ids"))
            .order_by(TASKS.c.id)
            .with_for_update(),
            "ids",
        )
        # keys
        self.held_keys = build.query(
            select(KEYS.c.key, KEYS.c.owner, KEYS.c.message_id, KEYS.c.task_id, KEYS.c.first_seq).where(
                build.among(KEYS.c.key, "keys")
            ),
            "keys",
        )
        self.insert_heads = _insert_heads(build)
        self.advance_heads = _update_heads(build, _PROGRESS)
        self.update_heads = _update_heads(build, _PROGRESS | _TURN, status=True)
        # id, context_id, context_hash, task_metadata
        self.describe_heads = build.change(
            {"id": Text(), "context_id": Text(), "context_hash": BigInteger(), "task_metadata": LargeBinary()},
            lambda row: (
                update(TASKS).values({name: row[name] for name in row.names[1:]}).where(TASKS.c.id == row["id"])
            ),
        )
        # ids: the message of the status becomes the newest of the history
        self.move_status_messages = build.query(
            insert(MESSAGES).from_select(
                ["task_id", "position", "data"],
                select(TASKS.c.id, TASKS.c.history_length, TASKS.c.status_message).where(
                    build.among(TASKS.c.id, "ids"), TASKS.c.status_message.is_not(None)
                ),
            ),
            "ids",
        )
        # columns of the table
        self.insert_messages = build.insert(MESSAGES)
        self.insert_events = build.insert(EVENTS)
        self.put_snapshots = build.insert(SNAPSHOTS, on_conflict="replace")
        self.insert_keys = build.insert(KEYS, on_conflict="keep")
        # key, owner
        self.release_keys = build.change(
            {"key": Text(), "owner": LargeBinary()},
            lambda row: delete(KEYS).where(KEYS.c.key == row["key"], KEYS.c.owner == row["owner"]),
        )
        # task id, position of the first entry to stay
        self.drop_events = build.change(
            {"id": Text(), "first": BigInteger()},
            lambda row: delete(EVENTS).where(EVENTS.c.task_id == row["id"], EVENTS.c.seq < row["first"]),
        )
        # ids
        self.clear_history = _delete(build, MESSAGES.c.task_id)
        self.delete_heads = _delete(build, TASKS.c.id)
        self.delete_parts = tuple(_delete(build, table.c.task_id) for table in OF_A_TASK)


def _insert_heads(build: Builder) -> Statement:
    """Columns of the table, with milliseconds of lease from now in place of `lease_until`."""

    def lease(row: Rows) -> dict[str, ColumnElement[Any]]:
        ttl = row["lease_until"]
        return {"lease_until": case((ttl == number(0), number(0)), else_=build.now_ms + ttl)}

    return build.insert(TASKS, lease, on_conflict="keep")


def _update_heads(build: Builder, changed: dict[str, TypeEngine[Any]], *, status: bool = False) -> Statement:
    """Columns of `_MATCH` as they were read, then those to change; with the status also its message and the lease.

    Changes nothing where the row is no longer as it was read: another epoch holds it, or the task has ended.
    """
    extra: dict[str, TypeEngine[Any]] = {}
    if status:
        extra = {"lease_ms": BigInteger(), "has_message": Boolean(), "status_message": LargeBinary()}

    def made(row: Rows) -> Update:
        values: dict[str, ColumnElement[Any]] = {name: row[name] for name in changed}
        if status:
            values["lease_until"] = _lease(build, row)
            values["status_message"] = case((row["has_message"], row["status_message"]), else_=TASKS.c.status_message)
        return (
            update(TASKS)
            .values(values)
            .where(
                TASKS.c.id == row["id"],
                TASKS.c.epoch == row["was_epoch"],
                TASKS.c.seq == row["was_seq"],
                TASKS.c.state == row["was_state"],
            )
        )

    return build.change(_MATCH | changed | extra, made)


def _lease(build: Builder, row: Rows) -> ColumnElement[int]:
    ttl = row["lease_ms"]
    return case(
        (ttl.is_(None), TASKS.c.lease_until),
        (ttl == number(0), number(0)),
        else_=build.now_ms + ttl,
    )


def _delete(build: Builder, key: ColumnElement[str]) -> Statement:
    return build.query(delete(key.table).where(build.among(key, "ids")), "ids")
