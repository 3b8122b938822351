"""How a message becomes a turn: validated, claimed in the store, handed to the runner."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.protocol.errors import (
    FieldViolation,
    InvalidParamsError,
    TaskNotFoundError,
    UnavailableError,
    UnsupportedOperationError,
)
from app.protocol.events import Clock, utc_now
from app.protocol.idempotency import IDEMPOTENCY_KEY_METADATA, IdempotencyKeyError, key_of, validate_key
from app.protocol.lifecycle import copy_task
from app.protocol.push import TaskPushNotificationConfig
from app.protocol.requests import SendMessageRequest
from app.protocol.types import Message, Role, Task, TaskState, TaskStatus
from app.service.event_log import EventLog
from app.service.push_configs import INLINE, PushConfigService, too_many
from app.service.turns import BegunTurn, Caller, TurnRunner
from app.store.base import (
    Busy,
    Claimed,
    Conflict,
    ContextMismatch,
    Ended,
    IdempotencyKey,
    LogEntry,
    NewTask,
    NewTurn,
    NotFound,
    Replay,
    refuse_turn,
)
from app.store.push_configs import TooManyPushConfigsError

BUSY_RETRY: Final = 0.1
"""Seconds between tries while a turn runs elsewhere."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The turn a send stands for: its own, or the one an earlier send of the same key began."""

    task_id: str
    first_seq: int
    """Position of the entry that began the turn; 0 where the store keeps no log."""
    entry: LogEntry | None
    """That entry; `None` for a replay."""
    task: Task | None
    """The task as of that entry, if it was asked for and this is no replay."""

    @property
    def replayed(self) -> bool:
        """Whether an earlier send began it."""
        return self.entry is None


class Sender:
    """Begins turns."""

    def __init__(
        self,
        events: EventLog,
        runner: TurnRunner,
        push_configs: PushConfigService,
        *,
        has_leases: bool,
        busy_wait: float,
        may_reply: bool = False,
        clock: Clock = utc_now,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._events = events
        self._runner = runner
        self._push_configs = push_configs
        self._has_leases = has_leases
        self._busy_wait = busy_wait
        self._may_reply = may_reply
        self._clock = clock
        self._new_id = new_id

    def check(self, caller: Caller, request: SendMessageRequest, header_key: str | None) -> IdempotencyKey | None:
        """Refuse what no state of the store could make right; return the idempotency key, if there is one.

        Raises:
            InvalidParamsError: a field is wrong, or the two spellings of the key differ.
            PushNotificationNotSupportedError: the send brings a webhook, and this server calls none.
            UnsupportedOperationError: a key, and a store that cannot honour it.
            UnavailableError: the process is about to end.
        """
        self.refuse_if_draining()
        message = request.message
        if message.role is not Role.USER:
            raise InvalidParamsError.of("message.role", "must be ROLE_USER: a client speaks for its user")
        self._push_config(request, message.task_id)
        key = _key(message, header_key)
        if key is None:
            return None
        if not caller.store.supports_idempotency():
            raise UnsupportedOperationError("The task store of this server cannot honour idempotency keys.")
        return IdempotencyKey(key, message.message_id)

    def refuse_if_draining(self) -> None:
        """Begin nothing in a process that is about to end. Raises `UnavailableError`."""
        if self._events.draining:
            raise UnavailableError("The server is shutting down.", retry_after=1)

    async def begin(
        self, caller: Caller, request: SendMessageRequest, key: IdempotencyKey | None, *, with_task: bool = False
    ) -> Begun:
        """Begin the turn and hand it to the runner; nothing before this call has had an effect.

        `with_task` asks for a copy of the task as the turn's first entry left it.

        Raises:
            InvalidParamsError: the key belongs to another message, the context is not the task's, or the task has as
                many webhooks as it may.
            TaskNotFoundError: the caller has no such task.
            UnsupportedOperationError: the task has ended, or its turn is still running after a short wait.
            UnavailableError: the store is full or out of reach; nothing was done.
        """
        message = request.message
        if message.task_id is None:
            task = Task(
                id=self._new_id(),
                context_id=message.context_id or self._new_id(),
                status=TaskStatus(state=TaskState.SUBMITTED, timestamp=self._clock()),
                history=[message],
            )
            push_config = self._push_config(request, None, task.id)
            new = NewTask(task, key, self._runner.lease, hidden=self._may_reply, push_config=push_config)
            outcome = await caller.store.create_task(new)
        else:
            push_config = self._push_config(request, message.task_id)
            outcome = await self._continue(caller, message, message.task_id, key, push_config)
        if isinstance(outcome, Conflict):
            raise InvalidParamsError.of(
                f"message.metadata.{IDEMPOTENCY_KEY_METADATA}",
                "this key was used for another message; a retry must repeat the messageId, a new send needs a new key",
            )
        if isinstance(outcome, Replay):
            return Begun(outcome.task_id, outcome.first_seq, None, None)
        as_begun = copy_task(outcome.task) if with_task else None
        self._events.publish(outcome.task.id, outcome.entry)
        self._runner.start(BegunTurn(caller, outcome.task, message, outcome.epoch, outcome.first_seq))
        if push_config is not None:
            await self._push_configs.changed(push_config)
        return Begun(outcome.task.id, outcome.first_seq, outcome.entry, as_begun)

    def _push_config(
        self, request: SendMessageRequest, task_id: str | None, new_id: str | None = None
    ) -> TaskPushNotificationConfig | None:
        configuration = request.configuration
        if configuration is None or (config := configuration.task_push_notification_config) is None:
            return None
        config = self._push_configs.inline(config, task_id)
        return config if new_id is None else config.model_copy(update={"task_id": new_id})

    async def _continue(
        self,
        caller: Caller,
        message: Message,
        task_id: str,
        key: IdempotencyKey | None,
        push_config: TaskPushNotificationConfig | None,
    ) -> Claimed | Replay | Conflict:
        turn = NewTurn(task_id, message, message.context_id, key, self._runner.lease, push_config)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._busy_wait
        while True:
            match outcome := await self._try(caller, turn):
                case Busy():
                    if loop.time() >= deadline:
                        raise UnsupportedOperationError("The task is still answering an earlier message; wait for it.")
                    await self._runner.finished(task_id, BUSY_RETRY)
                case NotFound():
                    raise TaskNotFoundError
                case Ended(state):
                    raise UnsupportedOperationError(f"The task has ended ({state}) and takes no further messages.")
                case ContextMismatch():
                    raise InvalidParamsError.of("message.contextId", "is not the context of the task")
                case _:
                    return outcome

    async def _try(
        self, caller: Caller, turn: NewTurn
    ) -> Claimed | Replay | Conflict | Busy | Ended | ContextMismatch | NotFound:
        # A store without leases cannot know that the turn runs, but then it runs here.
        if not self._has_leases and self._runner.runs(turn.task_id):
            task = await caller.store.get(turn.task_id)
            return refuse_turn(task, turn) or Busy()
        try:
            return await caller.store.begin_turn(turn)
        except TooManyPushConfigsError as error:
            raise too_many(error, INLINE) from None


def _key(message: Message, header: str | None) -> str | None:
    field = f"message.metadata.{IDEMPOTENCY_KEY_METADATA}"
    try:
        key = key_of(message)
    except IdempotencyKeyError as error:
        raise InvalidParamsError.of(field, str(error)) from None
    if header is None:
        return key
    try:
        header = validate_key(header)
    except IdempotencyKeyError as error:
        raise InvalidParamsError.of("Idempotency-Key", str(error)) from None
    if key is not None and key != header:
        raise InvalidParamsError(
            violations=[FieldViolation("Idempotency-Key", "differs from the key in the message's metadata")]
        )
    return header
