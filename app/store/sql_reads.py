"""The statements that read, for one of the two databases."""

from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    LargeBinary,
    Select,
    Text,
    bindparam,
    false,
    func,
    null,
    or_,
    select,
)

from app.store.scripts import Statement
from app.store.statements import Builder, number
from app.store.tables import EVENTS, MESSAGES, SNAPSHOTS, TASKS

_VIEW: Final = (
    TASKS.c.id,
    TASKS.c.context_id,
    TASKS.c.state,
    TASKS.c.status_ms,
    TASKS.c.seq,
    TASKS.c.earliest_seq,
    TASKS.c.epoch,
    TASKS.c.task_metadata,
    TASKS.c.status_message,
    TASKS.c.hidden,
)


class PageFilter(NamedTuple):
    """Which conditions a listing has; their values are arguments."""

    context: bool
    state: bool
    after: bool
    cursor: bool
    artifacts: bool


class ReadStatements:
    """What can be read. Arguments are in the order that the comments give."""

    def __init__(self, build: Builder) -> None:
        self._build = build
        self.in_one = build.has_arrays
        """Whether a head comes with all its parts."""
        mine = (TASKS.c.id == bindparam("id", type_=Text), TASKS.c.owner == bindparam("owner", type_=LargeBinary))
        # id, owner, history limit
        self.task = build.query(self._view(artifacts=True).where(*mine), *self._given("id", "owner"))
        # ids, history limit
        self.tasks = build.select(self._view(artifacts=True).where(build.among(TASKS.c.id, "ids")), *self._given("ids"))
        # ids[, history limit]
        self.messages = build.select(
            select(MESSAGES.c.task_id, MESSAGES.c.data)
            .join(TASKS, TASKS.c.id == MESSAGES.c.task_id)
            .where(build.among(MESSAGES.c.task_id, "ids"), _newest("history"))
            .order_by(MESSAGES.c.task_id, MESSAGES.c.position),
            "ids",
            "history",
        )
        self.snapshots = build.query(
            select(SNAPSHOTS.c.task_id, SNAPSHOTS.c.data).where(build.among(SNAPSHOTS.c.task_id, "ids")), "ids"
        )
        self.tails = build.select(
            select(EVENTS.c.task_id, EVENTS.c.data)
            .join(TASKS, TASKS.c.id == EVENTS.c.task_id)
            .where(build.among(EVENTS.c.task_id, "ids"), EVENTS.c.seq > TASKS.c.snapshot_seq)
            .order_by(EVENTS.c.task_id, EVENTS.c.seq),
            "ids",
        )
        # id, owner
        self.position = build.query(select(TASKS.c.seq, TASKS.c.earliest_seq).where(*mine), "id", "owner")
        # id, owner, after, limit
        self.events = build.select(
            select(EVENTS.c.seq, EVENTS.c.data)
            .join(TASKS, TASKS.c.id == EVENTS.c.task_id)
            .where(*mine, EVENTS.c.seq > bindparam("after", type_=BigInteger))
            .order_by(EVENTS.c.seq)
            .limit(bindparam("limit", type_=Integer))
            .offset(number(0)),
            "id",
            "owner",
            "after",
            "limit",
        )
        # owner
        self.count = build.query(
            select(func.count())
            .select_from(TASKS)
            .where(TASKS.c.owner == bindparam("owner", type_=LargeBinary), TASKS.c.hidden.is_(false())),
            "owner",
        )
        # pairs of id and position (see `Builder.pairs`), limit
        self.follow = _follow(build)
        self.page = lru_cache(maxsize=32)(self._page)
        """The statement of a page: owner[, context hash, context id][, state][, after][, time, id], limit, history."""
        self.total = lru_cache(maxsize=8)(self._total)
        """The statement that counts a listing: owner[, context hash, context id][, state][, after]."""

    def _given(self, *names: str) -> tuple[str, ...]:
        return (*names, "history") if self.in_one else names

    def _view(self, *, artifacts: bool) -> Select[Any]:
        live = TASKS.c.lease_until > self._build.now_ms
        if not self.in_one:
            return select(*_VIEW, live)
        messages = (
            select(MESSAGES.c.data)
            .where(MESSAGES.c.task_id == TASKS.c.id, _newest("history"))
            .order_by(MESSAGES.c.position)
        )
        parts: list[ColumnElement[Any]] = [func.array(messages.scalar_subquery())]
        view = select(*_VIEW, live, *parts)
        if not artifacts:
            return view
        tail = (
            select(EVENTS.c.data)
            .where(EVENTS.c.task_id == TASKS.c.id, EVENTS.c.seq > TASKS.c.snapshot_seq)
            .order_by(EVENTS.c.seq)
        )
        snapshot = select(SNAPSHOTS.c.data).where(SNAPSHOTS.c.task_id == TASKS.c.id)
        return view.add_columns(snapshot.scalar_subquery(), func.array(tail.scalar_subquery()))

    def _page(self, chosen: PageFilter) -> Statement:
        conditions, names = _conditions(chosen)
        if chosen.cursor:
            time, after_id = bindparam("time", type_=BigInteger), bindparam("after_id", type_=Text)
            # The first condition is what bounds the index scan; the second alone would not.
            conditions += [
                TASKS.c.status_ms <= time,
                or_(TASKS.c.status_ms < time, TASKS.c.id > after_id),
            ]
            names += ["time", "after_id"]
        page = (
            self._view(artifacts=chosen.artifacts)
            .where(*conditions)
            .order_by(TASKS.c.status_ms.desc(), TASKS.c.id)
            .limit(bindparam("limit", type_=Integer))
            .offset(number(0))
        )
        return self._build.select(page, *names, *self._given("limit"))

    def _total(self, chosen: PageFilter) -> Statement:
        conditions, names = _conditions(chosen)
        return self._build.query(select(func.count()).select_from(TASKS).where(*conditions), *names)


def _newest(parameter: str) -> ColumnElement[bool]:
    limit = bindparam(parameter, type_=Integer)
    return or_(limit.is_(null()), MESSAGES.c.position >= TASKS.c.history_length - limit)


def _conditions(chosen: PageFilter) -> tuple[list[ColumnElement[bool]], list[str]]:
    conditions = [TASKS.c.owner == bindparam("owner", type_=LargeBinary), TASKS.c.hidden.is_(false())]
    names = ["owner"]
    if chosen.context:
        conditions += [
            TASKS.c.context_hash == bindparam("context_hash", type_=BigInteger),
            TASKS.c.context_id == bindparam("context_id", type_=Text),
        ]
        names += ["context_hash", "context_id"]
    if chosen.state:
        conditions.append(TASKS.c.state == bindparam("state", type_=Text))
        names.append("state")
    if chosen.after:
        conditions.append(TASKS.c.status_ms >= bindparam("after", type_=BigInteger))
        names.append("after")
    return conditions, names


def _follow(build: Builder) -> Statement:
    """Positions have no holes, so a limit is a range."""
    wanted = build.pairs()
    newest = build.greatest(wanted.number, TASKS.c.earliest_seq - number(1)) + bindparam("limit", type_=BigInteger)
    tail = (EVENTS.c.task_id == TASKS.c.id) & (EVENTS.c.seq > wanted.number) & (EVENTS.c.seq <= newest)
    return build.select(
        select(
            TASKS.c.id,
            TASKS.c.earliest_seq,
            TASKS.c.seq,
            TASKS.c.cancel_requested,
            EVENTS.c.seq,
            EVENTS.c.epoch,
            EVENTS.c.data,
        )
        .select_from(wanted.source.join(TASKS, TASKS.c.id == wanted.text).outerjoin(EVENTS, tail))
        .order_by(TASKS.c.id, EVENTS.c.seq),
        *wanted.names,
        "limit",
    )
