"""Reads of tasks and logs, as scripts.

On PostgreSQL each is one statement, which sees one state of the database. On SQLite the parts of a task are read by
statements of their own, in one read transaction.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from app.protocol.identity import Owner
from app.protocol.requests import ListTasksRequest, ListTasksResponse
from app.protocol.types import Task
from app.store.listing import PageToken, milliseconds, page_size
from app.store.scripts import Row, Script, fetch
from app.store.sql_head import compose, compose_status
from app.store.sql_plan import StoredEntry
from app.store.sql_reads import PageFilter, ReadStatements
from app.store.tables import context_digest, owner_digest
from app.store.turns import LogTail
from app.store.values import LogEntry, Snapshot, nameable


class _View(NamedTuple):
    """A row of a view: what is in the head."""

    id: str
    context_id: str | None
    state: str
    status_ms: int
    seq: int
    earliest_seq: int
    epoch: int
    metadata: bytes | None
    message: bytes | None
    hidden: bool
    live: bool


class _Parts(NamedTuple):
    """What is not in the head."""

    messages: Sequence[bytes] = ()
    artifacts: bytes | None = None
    tail: Sequence[bytes] = ()


def read_snapshot(sql: ReadStatements, owner: Owner, task_id: str) -> Script[Snapshot | None]:
    """The task with its position."""
    digest = owner_digest(owner)
    rows = yield from fetch(sql.task, *((task_id, digest, None) if sql.in_one else (task_id, digest)))
    if not rows:
        return None
    ((view, parts),) = yield from _with_parts(sql, rows, None, artifacts=True)
    return Snapshot(_task(view, parts), view.seq, view.earliest_seq, view.epoch, bool(view.live), bool(view.hidden))


def read_tasks(sql: ReadStatements, ids: Sequence[str]) -> Script[dict[str, Task]]:
    """Whole tasks by id, whoever owns them."""
    rows = yield from fetch(sql.tasks, *((ids, None) if sql.in_one else (ids,)))
    found = yield from _with_parts(sql, rows, None, artifacts=True)
    return {view.id: _task(view, parts) for view, parts in found}


def read_page(sql: ReadStatements, owner: Owner, params: ListTasksRequest) -> Script[ListTasksResponse]:
    """One page, newest status first; the listing is counted once, and its size travels in the token."""
    token = PageToken.decode(owner, params)
    size, artifacts = page_size(params), bool(params.include_artifacts)
    if params.context_id is not None and not nameable(params.context_id):
        return ListTasksResponse(page_size=size)
    after = params.status_timestamp_after
    chosen = PageFilter(params.context_id is not None, params.status is not None, after is not None, False, False)
    args: list[object] = [owner_digest(owner)]
    if params.context_id is not None:
        args += [context_digest(params.context_id), params.context_id]
    if params.status is not None:
        args.append(params.status)
    if after is not None:
        args.append(milliseconds(after))
    if token is None:
        ((total,),) = yield from fetch(sql.total(chosen), *args)
    else:
        total = token.total
        args += [token.timestamp, token.task_id]
    statement = sql.page(chosen._replace(cursor=token is not None, artifacts=artifacts))
    limit = [size + 1, params.history_length] if sql.in_one else [size + 1]
    rows = yield from fetch(statement, *args, *limit)
    found = yield from _with_parts(sql, rows[:size], params.history_length, artifacts=artifacts)
    next_token = ""
    if len(rows) > size:
        last = found[-1][0]
        next_token = PageToken(last.status_ms, last.id, total).encode(owner, params)
    tasks = [_task(view, parts) for view, parts in found]
    return ListTasksResponse(tasks=tasks, next_page_token=next_token, page_size=size, total_size=total)


def read_tails(sql: ReadStatements, cursors: Mapping[str, int], limit: int) -> Script[dict[str, LogTail]]:
    """The tail of each task, at most `limit` entries."""
    heads: dict[str, tuple[int, int, bool]] = {}
    entries: dict[str, list[LogEntry]] = defaultdict(list)
    for row in (yield from _follow(sql, cursors, limit)):
        task_id, earliest, last, cancelled, seq, _, data = row
        heads[task_id] = (earliest, last, bool(cancelled))
        if seq is not None:
            entries[task_id].append(LogEntry(seq, data))
    return {task_id: LogTail(entries[task_id], *head) for task_id, head in heads.items()}


def read_stored(sql: ReadStatements, cursors: Mapping[str, int], limit: int) -> Script[dict[str, list[StoredEntry]]]:
    """Entries after a position of each task, as they were written."""
    stored: dict[str, list[StoredEntry]] = defaultdict(list)
    for task_id, _, _, _, seq, epoch, data in (yield from _follow(sql, cursors, limit)):
        if seq is not None:
            stored[task_id].append(StoredEntry(seq, epoch, bytes(data)))
    return stored


def _follow(sql: ReadStatements, cursors: Mapping[str, int], limit: int) -> Script[Sequence[Row]]:
    if sql.in_one:
        return (yield from fetch(sql.follow, list(cursors), list(cursors.values()), limit))
    return (yield from fetch(sql.follow, list(cursors.items()), limit))


def _with_parts(
    sql: ReadStatements, rows: Sequence[Row], history: int | None, *, artifacts: bool
) -> Script[list[tuple[_View, _Parts]]]:
    width = len(_View._fields)
    if sql.in_one:
        return [(_View(*row[:width]), _Parts(*row[width:])) for row in map(tuple, rows)]
    views = [_View(*row) for row in rows]
    ids = [view.id for view in views]
    messages: dict[str, list[bytes]] = defaultdict(list)
    snapshots: dict[str, bytes] = {}
    tails: dict[str, list[bytes]] = defaultdict(list)
    if ids and history != 0:
        for task_id, data in (yield from fetch(sql.messages, ids, history)):
            messages[task_id].append(data)
    if ids and artifacts:
        rows_found = yield from fetch(sql.snapshots, ids)
        snapshots = {row[0]: row[1] for row in rows_found}
        for task_id, data in (yield from fetch(sql.tails, ids)):
            tails[task_id].append(data)
    return [(view, _Parts(messages[view.id], snapshots.get(view.id), tails[view.id])) for view in views]


def _task(view: _View, parts: _Parts) -> Task:
    status = compose_status(view.state, view.status_ms, view.message)
    return compose(
        view.id,
        view.context_id,
        status,
        metadata=view.metadata,
        messages=parts.messages,
        artifacts=parts.artifacts,
        tail=parts.tail,
    )
