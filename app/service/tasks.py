"""The operations of A2A, for any binding. Each takes who asks and a request, and answers or raises an `A2AError`."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from app.protocol.agent_card import AgentCard
from app.protocol.errors import (
    InvalidParamsError,
    LogTruncatedError,
    TaskNotFoundError,
    UnavailableError,
    UnsupportedOperationError,
)
from app.protocol.lifecycle import TERMINAL, TURN_ENDING, trim_history
from app.protocol.requests import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    SendMessageRequest,
    SubscribeToTaskRequest,
)
from app.protocol.types import Message, Task
from app.service.cancels import Canceller
from app.service.event_log import EventLog, Follower, StreamPausedError
from app.service.sends import Begun, Sender
from app.service.streams import EventStream, Resume, stream, task_entry, undecided
from app.service.turns import Caller
from app.store.base import LogEntry, Snapshot

MAX_EVENTS_PAGE: Final = 10_000
MAX_CURSOR_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class Answer:
    """What a send answers."""

    result: Task | Message
    replayed: bool
    """Whether an earlier send of the same key began the turn."""


@dataclass(frozen=True, slots=True)
class EventPage:
    """A stretch of a task's log."""

    events: Sequence[LogEntry]
    earliest_seq: int
    last_seq: int


class StreamAtEndError(UnsupportedOperationError):
    """A resume asks for what comes after the last entry of a log that has ended: nothing ever will."""

    default_message = "The task has ended and its events were all delivered."


class TaskService:
    """The operations on tasks."""

    def __init__(
        self,
        events: EventLog,
        sender: Sender,
        canceller: Canceller,
        *,
        may_reply: bool = False,
        streaming: bool = True,
    ) -> None:
        """`may_reply`: whether the agent may answer with a bare Message, so that a new task may turn out to be none."""
        self._events = events
        self._sender = sender
        self._canceller = canceller
        self._may_reply = may_reply
        self._streaming = streaming

    async def send_message(self, caller: Caller, request: SendMessageRequest, header_key: str | None = None) -> Answer:
        """SendMessage (A2A 3.1.1): answers when the turn has ended, or at once with `return_immediately`.

        Raises what `Sender.check` and `Sender.begin` raise.
        """
        key = self._sender.check(caller, request, header_key)
        configuration = request.configuration
        at_once = configuration is not None and bool(configuration.return_immediately)
        history_length = configuration.history_length if configuration is not None else None
        begun = await self._sender.begin(caller, request, key, with_task=at_once)
        result = await (self._begun if at_once else self._finished)(caller, begun)
        if isinstance(result, Task):
            result = trim_history(result, history_length)
        return Answer(result, begun.replayed)

    async def send_streaming_message(
        self,
        caller: Caller,
        request: SendMessageRequest,
        header_key: str | None = None,
        last_event_id: str | None = None,
    ) -> EventStream:
        """SendStreamingMessage (A2A 3.1.2): the task as the turn began, then its events until the turn ends.

        `last_event_id` resumes the stream of a keyed send; without a key it is refused, since it would begin a second
        turn.

        Raises what `Sender.check` and `Sender.begin` raise, and `UnsupportedOperationError` where the card says that
        this agent does not stream.
        """
        self._check_streaming()
        key = self._sender.check(caller, request, header_key)
        keeps_log = caller.store.supports_event_log()
        cursor = _cursor(last_event_id) if last_event_id is not None and keeps_log else None
        if cursor is not None and key is None:
            raise InvalidParamsError.of(
                "Last-Event-ID",
                "resumes a stream only with an idempotency key; use tasks/{id}:subscribe for a task that exists",
            )
        configuration = request.configuration
        history_length = configuration.history_length if configuration is not None else None
        is_new = request.message.task_id is None
        begun = await self._sender.begin(caller, request, key, with_task=not is_new or not keeps_log)
        if begun.replayed:
            return await self._replay(caller, begun, cursor, history_length)
        if cursor is not None and cursor > begun.first_seq:
            raise InvalidParamsError.of("Last-Event-ID", "is beyond the end of the log")
        follower = self._events.follow(caller.store, begun.task_id, TURN_ENDING).pause_on_drain()
        if not keeps_log:
            follower.start_now()
        else:
            follower.start_at(begun.first_seq, current=True)
        first = begun.entry if is_new and keeps_log else None
        if first is None:
            assert begun.task is not None  # noqa: S101 - asked for above
            first = task_entry(begun.first_seq, begun.task)
        entries = stream([first], follower.batches(), history_length)
        return EventStream(undecided(entries) if self._may_reply and is_new else entries, keeps_log)

    async def get_task(self, caller: Caller, request: GetTaskRequest) -> Task:
        """GetTask (A2A 3.1.3)."""
        return trim_history(await self._get(caller, request.id), request.history_length)

    async def list_tasks(self, caller: Caller, request: ListTasksRequest) -> ListTasksResponse:
        """ListTasks (A2A 3.1.4)."""
        return await caller.store.list(request)

    async def cancel_task(self, caller: Caller, request: CancelTaskRequest) -> Task:
        """CancelTask (A2A 3.1.5): stops the turn, wherever it runs, and answers with the task CANCELED.

        Callers that cancel a running task at the same time all get the task. Waits a few seconds at most.

        Raises:
            TaskNotFoundError: the caller has no such task.
            TaskNotCancelableError: the task has ended, or ended otherwise before it could be stopped.
        """
        return await self._canceller.cancel(caller, request.id)

    async def subscribe_to_task(
        self, caller: Caller, request: SubscribeToTaskRequest, last_event_id: str | None = None
    ) -> EventStream:
        """SubscribeToTask (A2A 3.1.6): the task now and what follows, until it ends.

        With `last_event_id`: exactly the entries after that position, or a fresh Task where the log no longer reaches
        back so far.

        Raises:
            TaskNotFoundError: the caller has no such task.
            UnsupportedOperationError: the task has ended and there is no cursor, or this agent does not stream.
            StreamAtEndError: the task has ended and the cursor is at its end.
            InvalidParamsError: the cursor is not a position of this log.
        """
        self._check_streaming()
        cursor = _cursor(last_event_id) if last_event_id is not None and caller.store.supports_event_log() else None
        self._sender.refuse_if_draining()
        follower = self._events.follow(caller.store, request.id, TERMINAL).pause_on_drain()
        snapshot = await self._snapshot(caller, request.id)
        if not caller.store.supports_event_log():
            follower.start_now()
        ended = snapshot.task.status.state in TERMINAL
        if cursor is None:
            if ended:
                raise UnsupportedOperationError(f"The task has ended ({snapshot.task.status.state}).")
            return self._from_snapshot(caller, snapshot, follower)
        if cursor > snapshot.seq:
            raise InvalidParamsError.of("Last-Event-ID", "is beyond the end of the log")
        if ended and cursor == snapshot.seq:
            raise StreamAtEndError
        if cursor < snapshot.earliest_seq - 1:
            return self._from_snapshot(caller, snapshot, follower, resumes=True)
        return await self._resume(caller, snapshot, follower, cursor)

    async def list_events(self, caller: Caller, task_id: str, after: int, limit: int) -> EventPage:
        """A stretch of the log after a position, oldest first; `earliest_seq` tells whether something is missing.

        Raises:
            TaskNotFoundError: the caller has no such task.
            UnsupportedOperationError: the store keeps no log.
        """
        if not caller.store.supports_event_log():
            raise UnsupportedOperationError("The task store of this server keeps no event log.")
        if self._may_reply:
            await self._snapshot(caller, task_id)
        entries = await caller.store.read_events(task_id, after, limit)
        # Read after the entries, so that what was dropped meanwhile shows.
        last = await caller.store.last_event_seq(task_id)
        earliest = await caller.store.earliest_event_seq(task_id)
        if last == 0 and await caller.store.get(task_id) is None:
            raise TaskNotFoundError
        return EventPage(entries, earliest or 0, max(last, entries[-1].seq if entries else 0))

    def get_extended_agent_card(self) -> AgentCard:
        """GetExtendedAgentCard (A2A 3.1.11), on a server that has none."""
        raise UnsupportedOperationError("This agent has no extended agent card.")

    def _check_streaming(self) -> None:
        """Before any task is looked up (A2A 3.3.4)."""
        if not self._streaming:
            raise UnsupportedOperationError("This agent does not stream; send without streaming, and poll.")

    # -- turns

    async def _begun(self, caller: Caller, begun: Begun) -> Task | Message:
        """The task as it is, once it is known to be one."""
        if not self._may_reply or begun.first_seq > 1 or (begun.replayed and not caller.store.supports_event_log()):
            return begun.task or await self._get(caller, begun.task_id)
        try:
            entry = await self._after_first(caller, begun).next()
        except StreamPausedError:
            return await self._as_it_is(caller, begun)
        return _reply(entry) or await self._get(caller, begun.task_id)

    async def _finished(self, caller: Caller, begun: Begun) -> Task | Message:
        """The task when its turn has ended, or the Message that was answered in its place."""
        if begun.replayed and not caller.store.supports_event_log():
            await self._sender.at_rest(begun.task_id)
            return await self._get(caller, begun.task_id)
        try:
            return await self._end(caller, begun)
        except StreamPausedError:
            return await self._as_it_is(caller, begun)

    async def _end(self, caller: Caller, begun: Begun) -> Task | Message:
        if begun.first_seq or not begun.replayed:
            with suppress(LogTruncatedError):
                follower = self._after_first(caller, begun)
                last = await follower.finish()
                return _reply(last) or follower.settled or await self._get(caller, begun.task_id)
        # The log does not reach back to the turn, or nobody can say where it began: the task, when no turn of it runs.
        while True:
            follower = self._events.follow(caller.store, begun.task_id, TURN_ENDING)
            snapshot = await self._snapshot(caller, begun.task_id)
            if snapshot.task.status.state in TURN_ENDING:
                return snapshot.task
            follower.start_at(snapshot.seq, current=True)
            with suppress(LogTruncatedError):
                await follower.finish()
                return await self._get(caller, begun.task_id)

    async def _as_it_is(self, caller: Caller, begun: Begun) -> Task:
        """The task in the middle of its turn, because this process ends and another goes on with it.

        An error would make a caller without a key send again, and run twice.
        """
        snapshot = await self._snapshot(caller, begun.task_id, hidden_too=True)
        if snapshot.hidden:
            raise UnavailableError("The server is shutting down before the agent said anything.")
        return snapshot.task

    def _after_first(self, caller: Caller, begun: Begun) -> Follower:
        """Reads what follows the entry that began a turn."""
        follower = self._events.follow(caller.store, begun.task_id, TURN_ENDING)
        if not caller.store.supports_event_log():
            follower.start_now()
        else:
            follower.start_at(begun.first_seq, current=not begun.replayed)
        return follower

    async def _replay(
        self, caller: Caller, begun: Begun, cursor: int | None, history_length: int | None
    ) -> EventStream:
        """The stream of a turn that an earlier send began: from its first entry, or after the cursor."""
        follower = self._events.follow(caller.store, begun.task_id, TURN_ENDING).pause_on_drain()
        snapshot = await self._snapshot(caller, begun.task_id, hidden_too=True)
        before_turn = max(0, begun.first_seq - 1)
        position = before_turn if cursor is None else cursor
        if position < before_turn or position > snapshot.seq:
            raise InvalidParamsError.of("Last-Event-ID", "is not a position of the stream of this send")
        if not caller.store.supports_event_log():
            follower.start_now()
        truncated = position < snapshot.earliest_seq - 1
        if truncated or (cursor is None and not begun.first_seq):
            stream_ = self._from_snapshot(caller, snapshot, follower, resumes=truncated, history_length=history_length)
            return EventStream(stream_.entries, stream_.has_ids, stream_.resume, replayed=True)
        end = await self._end_of_turn(caller, begun) if cursor is not None else None
        if end is not None and position >= end:
            raise StreamAtEndError
        follower.start_at(position)
        resume: Resume | None = "replay" if cursor is not None else None
        entries = stream([], follower.batches(), history_length)
        if self._may_reply and position == 0:
            entries = undecided(entries)
        return EventStream(entries, True, resume, replayed=True)

    async def _end_of_turn(self, caller: Caller, begun: Begun) -> int | None:
        """The position that ended a turn, `None` while it has not ended."""
        position = begun.first_seq
        while entries := await caller.store.read_events(begun.task_id, position, MAX_EVENTS_PAGE):
            for entry in entries:
                if entry.state in TURN_ENDING:
                    return entry.seq
            position = entries[-1].seq
        return None

    def _from_snapshot(
        self,
        caller: Caller,
        snapshot: Snapshot,
        follower: Follower,
        *,
        resumes: bool = False,
        history_length: int | None = None,
    ) -> EventStream:
        """The Task now, then what follows; nothing does if the Task shows that the follower is at its end."""
        keeps_log = caller.store.supports_event_log()
        first = [task_entry(snapshot.seq, snapshot.task)]
        resume: Resume | None = "snapshot" if resumes else None
        if snapshot.task.status.state in follower.ends_on:
            return EventStream(stream(first, _nothing(), history_length), keeps_log, resume)
        if keeps_log:
            follower.start_at(snapshot.seq, current=True)
        return EventStream(stream(first, follower.batches(), history_length), keeps_log, resume)

    async def _resume(self, caller: Caller, snapshot: Snapshot, follower: Follower, cursor: int) -> EventStream:
        """The entries after the cursor. Coverage is checked after the read, so that no truncation slips between."""
        task_id = snapshot.task.id
        entries = await caller.store.read_events(task_id, cursor, MAX_EVENTS_PAGE) if cursor < snapshot.seq else []
        if cursor < snapshot.seq and (not entries or entries[0].seq != cursor + 1):
            return self._from_snapshot(caller, await self._snapshot(caller, task_id), follower, resumes=True)
        follower.start_at(cursor, current=not entries)
        if not entries:
            return EventStream(follower.batches(), resume="replay")
        for index, entry in enumerate(entries):
            if entry.state in TERMINAL:
                return EventStream(stream(entries[: index + 1], _nothing()), resume="replay")
        follower.start_at(entries[-1].seq)
        return EventStream(stream(entries, follower.batches()), resume="replay")

    # -- reading

    async def _get(self, caller: Caller, task_id: str) -> Task:
        task = await caller.store.get(task_id)
        if task is None:
            raise TaskNotFoundError
        return task

    async def _snapshot(self, caller: Caller, task_id: str, *, hidden_too: bool = False) -> Snapshot:
        snapshot = await caller.store.snapshot(task_id)
        if snapshot is None or (snapshot.hidden and not hidden_too):
            raise TaskNotFoundError
        return snapshot


def _reply(entry: LogEntry) -> Message | None:
    """The bare Message that an entry is, if it is one."""
    event = entry.event if entry.is_reply else None
    return event if isinstance(event, Message) else None


async def _nothing() -> AsyncIterator[Sequence[LogEntry]]:
    return
    yield  # pragma: no cover - makes this an async generator


def _cursor(text: str) -> int:
    """Read a `Last-Event-ID`: a position, in ASCII digits."""
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_CURSOR_DIGITS):
        raise InvalidParamsError.of("Last-Event-ID", "must be the id of an event of this task: a whole number")
    return int(text)
