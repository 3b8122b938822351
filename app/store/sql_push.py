"""Statements and scripts over push configurations."""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    LargeBinary,
    Text,
    bindparam,
    case,
    false,
    literal_column,
    select,
)
from sqlalchemy import delete as delete_from
from sqlalchemy import update as update_of

from app.protocol.identity import Owner
from app.protocol.lifecycle import TERMINAL
from app.protocol.protojson import to_json
from app.protocol.push import TaskPushNotificationConfig
from app.store.push_configs import (
    ConfigKey,
    DeliveryReport,
    DeliveryState,
    PushDelivery,
    TooManyPushConfigsError,
    config_key,
)
from app.store.scripts import Script, Statement, fetch, write
from app.store.statements import Builder, Rows, number
from app.store.tables import PUSH_CONFIGS, TASKS, config_digest
from app.store.values import Lease

CONFIGS: Final = PUSH_CONFIGS.c
ACTIVE: Final = literal_column("'active'", Text)
"""Written into the statement, or the index goes unused."""


class StoredConfig(NamedTuple):
    """What is known of a configuration without its content."""

    state: DeliveryState
    position: int
    revision: int
    claimed_by: str | None
    claimed_until: int


StoredConfigs = Mapping[tuple[str, bytes], StoredConfig]
"""By task and digest of the id."""


class PushStatements:
    """Arguments are in the order that the comments give."""

    def __init__(self, build: Builder) -> None:
        self._build = build
        mine = (
            TASKS.c.id == bindparam("task", type_=Text),
            TASKS.c.owner == bindparam("of_owner", type_=LargeBinary),
            TASKS.c.hidden.is_(false()),
        )
        one = CONFIGS.config_hash == bindparam("hash", type_=LargeBinary)
        joined = PUSH_CONFIGS.join(TASKS, TASKS.c.id == CONFIGS.task_id)
        # id, owner
        self.lock_task = build.query(
            select(TASKS.c.seq, TASKS.c.state).where(*mine).with_for_update(), "task", "of_owner"
        )
        # task ids
        self.of_tasks = build.query(
            select(
                CONFIGS.task_id,
                CONFIGS.config_hash,
                CONFIGS.state,
                CONFIGS.position,
                CONFIGS.revision,
                CONFIGS.claimed_by,
                CONFIGS.claimed_until,
            )
            .where(build.among(CONFIGS.task_id, "ids"))
            .order_by(CONFIGS.task_id, CONFIGS.config_hash)
            .with_for_update(),
            "ids",
        )
        # columns of the table
        self.put = build.insert(PUSH_CONFIGS, on_conflict="replace")
        # id, owner
        self.seen = build.query(select(TASKS.c.id).where(*mine), "task", "of_owner")
        self.listed = build.query(select(CONFIGS.data).select_from(joined).where(*mine), "task", "of_owner")
        # id, owner, digest
        self.get = build.query(select(CONFIGS.data).select_from(joined).where(*mine, one), "task", "of_owner", "hash")
        # id, digest
        self.delete = build.change(_KEY, lambda row: delete_from(PUSH_CONFIGS).where(*_is(row)))
        self.due = lru_cache(maxsize=4)(self._due)
        """Those that are behind and free to be claimed: limit[, task ids]."""
        # id, digest, worker, milliseconds
        self.claim = build.change(
            _KEY | {"worker": Text(), "ttl_ms": BigInteger()},
            lambda row: (
                update_of(PUSH_CONFIGS)
                .values(claimed_by=row["worker"], claimed_until=build.now_ms + row["ttl_ms"])
                .where(*_is(row))
            ),
        )
        # id, digest, worker, revision, position, failures, state, milliseconds of lease and of delay
        self.report = build.change(
            _HELD
            | {
                "revision": BigInteger(),
                "position": BigInteger(),
                "failures": Integer(),
                "state": Text(),
                "ttl_ms": BigInteger(),
                "delay_ms": BigInteger(),
            },
            lambda row: (
                update_of(PUSH_CONFIGS)
                .values(
                    position=row["position"],
                    failures=row["failures"],
                    state=row["state"],
                    due_ms=case((row["ttl_ms"] > number(0), CONFIGS.due_ms), else_=build.now_ms + row["delay_ms"]),
                    claimed_until=case((row["ttl_ms"] > number(0), build.now_ms + row["ttl_ms"]), else_=number(0)),
                )
                .where(*_is(row), CONFIGS.claimed_by == row["worker"], CONFIGS.revision == row["revision"])
            ),
        )
        # task ids, worker
        self.held = build.query(
            select(CONFIGS.task_id, CONFIGS.config_hash, CONFIGS.revision).where(
                build.among(CONFIGS.task_id, "ids"), CONFIGS.claimed_by == bindparam("worker", type_=Text)
            ),
            "ids",
            "worker",
        )
        # id, digest, worker
        self.free = build.change(
            _HELD,
            lambda row: (
                update_of(PUSH_CONFIGS)
                .values(claimed_until=number(0))
                .where(*_is(row), CONFIGS.claimed_by == row["worker"])
            ),
        )
        self.free_all = build.query(
            update_of(PUSH_CONFIGS)
            .values(claimed_until=number(0))
            .where(CONFIGS.claimed_until > number(0))
            .returning(CONFIGS.task_id)
        )

    def _due(self, failed: bool, targeted: bool) -> Statement:
        conditions = [
            CONFIGS.state == ACTIVE,
            CONFIGS.due_ms <= self._build.now_ms,
            CONFIGS.claimed_until <= self._build.now_ms,
            CONFIGS.position < TASKS.c.seq,
            CONFIGS.failures > number(0) if failed else CONFIGS.failures == number(0),
        ]
        if targeted:
            conditions.append(self._build.among(CONFIGS.task_id, "ids"))
        return self._build.query(
            select(
                TASKS.c.tenant,
                TASKS.c.subject,
                CONFIGS.task_id,
                CONFIGS.config_hash,
                CONFIGS.position,
                CONFIGS.failures,
                CONFIGS.revision,
                CONFIGS.data,
            )
            .select_from(PUSH_CONFIGS.join(TASKS, TASKS.c.id == CONFIGS.task_id))
            .where(*conditions)
            .order_by(CONFIGS.due_ms)
            .limit(bindparam("limit", type_=Integer))
            .offset(number(0))
            .with_for_update(of=PUSH_CONFIGS, skip_locked=True),
            "limit",
            *(("ids",) if targeted else ()),
        )


_KEY: Final[dict[str, Any]] = {"id": Text(), "hash": LargeBinary()}
_HELD: Final[dict[str, Any]] = {**_KEY, "worker": Text()}


def _is(row: Rows) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return CONFIGS.task_id == row["id"], CONFIGS.config_hash == row["hash"]


def read_stored_configs(sql: PushStatements, task_ids: Sequence[str]) -> Script[dict[tuple[str, bytes], StoredConfig]]:
    """Lock all configurations of some tasks, whose heads are locked."""
    rows = yield from fetch(sql.of_tasks, list(task_ids))
    return {(task_id, bytes(digest)): StoredConfig(*rest) for task_id, digest, *rest in rows}


def config_row(
    config: TaskPushNotificationConfig, after: int, stored: StoredConfigs, limit: int, *, ended: bool = False
) -> tuple[Any, ...]:
    """The row of a configuration that is created or replaced; a new one begins after a position.

    Raises:
        TooManyPushConfigsError: it is new, and the task has as many as it may.
    """
    task_id, config_id = config_key(config)
    digest = config_digest(config_id)
    found = stored.get((task_id, digest))
    if found is None and sum(of_task == task_id for of_task, _ in stored) >= limit:
        raise TooManyPushConfigsError(limit)
    goes_on = found is not None and found.state == "active"
    return (
        task_id,
        digest,
        "active" if goes_on or not ended else "finished",
        found.position if found is not None and goes_on else after,
        1 if found is None else found.revision + 1,
        0,
        0,
        None if found is None else found.claimed_by,
        0 if found is None else found.claimed_until,
        to_json(config),
    )


def put_config(
    sql: PushStatements, owner: bytes, config: TaskPushNotificationConfig, after: int | None, limit: int
) -> Script[bool]:
    """Create or replace a configuration; `False` if the owner has no such task."""
    task_id, _ = config_key(config)
    found = yield from fetch(sql.lock_task, task_id, owner)
    if not found:
        return False
    ((head, state),) = found
    stored = yield from read_stored_configs(sql, [task_id])
    row = config_row(config, head if after is None else after, stored, limit, ended=state in TERMINAL)
    yield from write(sql.put, [row])
    return True


def delete_config(sql: PushStatements, owner: bytes, key: ConfigKey) -> Script[bool]:
    """Remove a configuration; `False` if the owner has no such task."""
    task_id, config_id = key
    found = yield from fetch(sql.lock_task, task_id, owner)
    if found:
        yield from write(sql.delete, [(task_id, config_digest(config_id))])
    return bool(found)


def claim_configs(
    sql: PushStatements, lease: Lease, fresh: int, failed: int, task_ids: Collection[str] | None
) -> Script[list[PushDelivery]]:
    """Claim what is behind and due."""
    claimed, rows = [], []
    targets = [] if task_ids is None else [list(task_ids)]
    for limit, has_failed in ((fresh, False), (failed, True)):
        if limit <= 0:
            continue
        found = yield from fetch(sql.due(has_failed, bool(targets)), limit, *targets)
        for tenant, subject, task_id, digest, position, failures, revision, data in found:
            config = TaskPushNotificationConfig.model_validate_json(bytes(data))
            claimed.append(PushDelivery(Owner(tenant, subject), config, position, failures, revision))
            rows.append((task_id, bytes(digest), lease.worker, round(lease.ttl * 1000)))
    yield from write(sql.claim, rows)
    return claimed


def record_reports(
    sql: PushStatements, lease: Lease, reports: Sequence[DeliveryReport]
) -> Script[frozenset[ConfigKey]]:
    """Store reports; those whose claim was lost or whose configuration was replaced."""
    ttl = round(lease.ttl * 1000)
    rows = [
        (
            *_row_key(report.key),
            lease.worker,
            report.revision,
            report.position,
            report.failures,
            report.state,
            ttl if report.hold else 0,
            round(report.delay * 1000),
        )
        for report in sorted(reports, key=lambda report: report.key)
    ]
    if (yield from write(sql.report, rows)) == len(rows):
        return frozenset()
    found = yield from fetch(sql.held, sorted({report.key[0] for report in reports}), lease.worker)
    held = {(task_id, bytes(digest)): revision for task_id, digest, revision in found}
    lost = [report for report in reports if held.get(_row_key(report.key)) != report.revision]
    ended = [(*_row_key(report.key), lease.worker) for report in lost if not report.hold]
    yield from write(sql.free, ended)
    return frozenset(report.key for report in lost)


def _row_key(key: ConfigKey) -> tuple[str, bytes]:
    return key[0], config_digest(key[1])
