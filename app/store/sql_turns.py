"""Statements and scripts over the turns of all owners: leases, retention."""

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import ARRAY, BigInteger, Integer, LargeBinary, Text, any_, bindparam, exists, not_, select, update

from app.protocol.identity import Owner
from app.store.scripts import Script, fetch, write
from app.store.sql_writes import WriteStatements
from app.store.statements import Builder, number
from app.store.tables import ENDED, KEYS, RUNNABLE, TASKS
from app.store.turns import Renewal, StrandedTurn
from app.store.values import Lease

ALL: Final = 2**31 - 1


class TurnStatements:
    """Arguments are in the order that the comments give."""

    def __init__(self, build: Builder) -> None:
        self.has_arrays = build.has_arrays
        wanted = build.pairs()
        renewed = [
            TASKS.c.id == wanted.text,
            TASKS.c.epoch == wanted.number,
            TASKS.c.worker == bindparam("held_by", type_=Text),
            # A lease given back is over: a renewal already under way must not bring it to life again.
            TASKS.c.lease_until > number(0),
        ]
        if build.has_arrays:
            # An update takes rows in any order, and would wait in a circle with commits, which take them by id.
            ids = bindparam(wanted.names[0], type_=ARRAY(Text))
            locked = select(TASKS.c.id).where(TASKS.c.id == any_(ids)).order_by(TASKS.c.id).with_for_update()
            renewed.append(TASKS.c.id.in_(select(locked.cte("locked").c.id)))
        # pairs of id and epoch (see `Builder.pairs`), worker, milliseconds
        self.renew = build.query(
            update(TASKS)
            .values(lease_until=build.now_ms + bindparam("ttl_ms", type_=BigInteger))
            .where(*renewed)
            .returning(TASKS.c.id, TASKS.c.cancel_requested),
            *wanted.names,
            "held_by",
            "ttl_ms",
        )
        # limit
        self.stranded = build.query(
            select(TASKS.c.tenant, TASKS.c.subject, TASKS.c.id, TASKS.c.epoch, TASKS.c.attempt)
            .where(RUNNABLE, TASKS.c.lease_until <= build.now_ms)
            .order_by(TASKS.c.lease_until, TASKS.c.id)
            .limit(bindparam("limit", type_=Integer))
            .offset(number(0)),
            "limit",
        )
        # id, epoch
        self.release = build.query(
            update(TASKS)
            .values(lease_until=number(0))
            .where(
                TASKS.c.id == bindparam("task", type_=Text), TASKS.c.epoch == bindparam("of_epoch", type_=BigInteger)
            )
            .returning(TASKS.c.id),
            "task",
            "of_epoch",
        )
        self.release_all = build.query(
            update(TASKS).values(lease_until=number(0)).where(TASKS.c.lease_until > number(0)).returning(TASKS.c.id)
        )
        # before, limit
        self.old_tasks = build.query(
            select(TASKS.c.id)
            .where(ENDED, TASKS.c.status_ms <= bindparam("before", type_=BigInteger))
            .order_by(TASKS.c.status_ms)
            .limit(bindparam("limit", type_=Integer))
            .offset(number(0))
            .with_for_update(skip_locked=True),
            "before",
            "limit",
        )
        # before, limit
        self.old_keys = build.query(
            select(KEYS.c.key, KEYS.c.owner)
            .where(
                KEYS.c.created_ms <= bindparam("before", type_=BigInteger),
                not_(exists(select(TASKS.c.id).where(TASKS.c.id == KEYS.c.task_id))),
            )
            .limit(bindparam("limit", type_=Integer))
            .offset(number(0))
            .with_for_update(of=KEYS, skip_locked=True),
            "before",
            "limit",
        )
        # id, owner
        self.owned = build.query(
            select(TASKS.c.id)
            .where(
                TASKS.c.id == bindparam("task", type_=Text), TASKS.c.owner == bindparam("of_owner", type_=LargeBinary)
            )
            .with_for_update(),
            "task",
            "of_owner",
        )


def renew(sql: TurnStatements, turns: Mapping[str, int], lease: Lease) -> Script[Renewal]:
    """Prolong leases, all in one statement."""
    pairs: list[object] = [list(turns), list(turns.values())] if sql.has_arrays else [list(turns.items())]
    rows = yield from fetch(sql.renew, *pairs, lease.worker, round(lease.ttl * 1000))
    held = {task_id for task_id, _ in rows}
    return Renewal(frozenset(turns.keys() - held), frozenset(task_id for task_id, cancel in rows if cancel))


def stranded(sql: TurnStatements, limit: int) -> Script[list[StrandedTurn]]:
    """Turns that nobody runs."""
    rows = yield from fetch(sql.stranded, limit)
    return [StrandedTurn(Owner(tenant, subject), *rest) for tenant, subject, *rest in rows]


def remove(sql: WriteStatements, ids: Sequence[str]) -> Script[None]:
    """Delete tasks with all that is theirs but keys."""
    for statement in (*sql.delete_parts, sql.delete_heads):
        yield from fetch(statement, list(ids))


def remove_owned(sql: TurnStatements, writes: WriteStatements, task_id: str, owner: bytes) -> Script[bool]:
    """Delete a task if it is this owner's; say whether it was."""
    rows = yield from fetch(sql.owned, task_id, owner)
    if not rows:
        return False
    yield from remove(writes, [task_id])
    return True


def remove_old(sql: TurnStatements, writes: WriteStatements, before_ms: int, limit: int) -> Script[list[str]]:
    """Delete the oldest tasks that ended before a time; their ids."""
    ids = [task_id for (task_id,) in (yield from fetch(sql.old_tasks, before_ms, limit))]
    if ids:
        yield from remove(writes, sorted(ids))
    return ids


def remove_old_keys(sql: TurnStatements, writes: WriteStatements, before_ms: int, limit: int) -> Script[int]:
    """Delete keys that were claimed before a time and whose task is gone; how many."""
    keys = [(row[0], row[1]) for row in (yield from fetch(sql.old_keys, before_ms, limit))]
    return (yield from write(writes.release_keys, keys))


def release_key(sql: WriteStatements, key: str, owner: bytes) -> Script[None]:
    """Free a key."""
    yield from write(sql.release_keys, [(key, owner)])
