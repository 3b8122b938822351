"""How a message becomes a turn: validated, claimed in the store, handed to the runner."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic_core import to_json as dump_json

from app.protocol.errors import (
    ContentTypeNotSupportedError,
    FieldViolation,
    InvalidParamsError,
    TaskNotFoundError,
    UnavailableError,
    UnsupportedOperationError,
)
from app.protocol.events import Clock, utc_now
from app.protocol.idempotency import IDEMPOTENCY_KEY_METADATA, IdempotencyKeyError, key_of, validate_key
from app.protocol.lifecycle import copy_task
from app.protocol.limits import MESSAGE_LIMITS, MessageLimits
from app.protocol.media_types import MediaTypes, media_type_of
from app.protocol.push import TaskPushNotificationConfig
from app.protocol.requests import SendMessageRequest
from app.protocol.types import Message, Part, Role, Task, TaskState, TaskStatus
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

Outcome = TypeVar("Outcome")


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
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        has_leases: bool,
        busy_wait: float,
        may_reply: bool = False,
        input_modes: MediaTypes,
        limits: MessageLimits = MESSAGE_LIMITS,
        clock: Clock = utc_now,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._events = events
        self._runner = runner
        self._spawn = spawn
        self._push_configs = push_configs
        self._has_leases = has_leases
        self._busy_wait = busy_wait
        self._may_reply = may_reply
        self._input_modes = input_modes
        self._limits = limits
        self._takes_text = "text/plain" in input_modes
        self._clock = clock
        self._new_id = new_id

    def check(self, caller: Caller, request: SendMessageRequest, header_key: str | None) -> IdempotencyKey | None:
        """Refuse what no state of the store could make right; return the idempotency key, if there is one.

        Raises:
            InvalidParamsError: a field is wrong or over a limit, or the two spellings of the key differ.
            ContentTypeNotSupportedError: a part is of a media type that no input mode of the card is.
            PushNotificationNotSupportedError: the send brings a webhook, and this server calls none.
            UnsupportedOperationError: a key, and a store that cannot honour it.
            UnavailableError: the process is about to end.
        """
        self.refuse_if_draining()
        message = request.message
        if message.role is not Role.USER:
            raise InvalidParamsError.of("message.role", "must be ROLE_USER: a client speaks for its user")
        self._push_config(request, message.task_id)
        self._check_limits(request)
        for index, part in enumerate(message.parts):
            # Nearly every part is plain text without a name for it.
            if part.media_type or part.text is None or not self._takes_text:
                self._check_media_type(index, part)
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

    def _check_limits(self, request: SendMessageRequest) -> None:
        message, limits = request.message, self._limits
        if len(message.parts) > limits.parts:
            raise InvalidParamsError.of("message.parts", f"must be at most {limits.parts}")
        for field, metadata in (("message.metadata", message.metadata), ("metadata", request.metadata)):
            if metadata and len(dump_json(metadata)) > limits.metadata_bytes:
                raise InvalidParamsError.of(field, f"must have at most {limits.metadata_bytes} bytes")
        for field, text in (
            ("message.messageId", message.message_id),
            ("message.contextId", message.context_id),
            ("message.taskId", message.task_id),
            *((f"message.referenceTaskIds[{index}]", text) for index, text in enumerate(message.reference_task_ids)),
        ):
            if text is not None and len(text) > limits.id_length:
                raise InvalidParamsError.of(field, f"must have at most {limits.id_length} characters")

    def _check_media_type(self, index: int, part: Part) -> None:
        media_type = media_type_of(part)
        if media_type is not None and media_type not in self._input_modes:
            raise ContentTypeNotSupportedError(
                f"message.parts[{index}]: {media_type[:80]!r} is not a media type that this agent takes.",
                metadata={"supportedMediaTypes": str(self._input_modes)},
            )

    async def begin(
        self, caller: Caller, request: SendMessageRequest, key: IdempotencyKey | None, *, with_task: bool = False
    ) -> Begun:
        """Begin the turn and hand it to the runner; nothing before this call has had an effect.

        `with_task` asks for a copy of the task as the turn's first entry left it. A caller that gives up leaves either
        nothing, or a turn that runs.

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
            outcome = await self._run_claimed(caller, request, caller.store.create_task(new))
        else:
            push_config = self._push_config(request, message.task_id)
            outcome = await self._continue(caller, request, message.task_id, key, push_config)
        if isinstance(outcome, Conflict):
            raise InvalidParamsError.of(
                f"message.metadata.{IDEMPOTENCY_KEY_METADATA}",
                "this key was used for another message; a retry must repeat the messageId, a new send needs a new key",
            )
        if isinstance(outcome, Replay):
            return Begun(outcome.task_id, outcome.first_seq, None, None)
        as_begun = copy_task(outcome.task) if with_task else None
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

    async def at_rest(self, task_id: str) -> None:
        """Return when no turn of the task runs in this process."""
        while self._runner.runs(task_id):
            await self._runner.finished(task_id, BUSY_RETRY)

    async def _run_claimed(self, caller: Caller, request: SendMessageRequest, claiming: Awaitable[Outcome]) -> Outcome:
        """Await what the store says, and run what it claimed.

        Asked in a task apart: a store may commit what nobody waits for any more, and what it commits has to run.
        """
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        async def claim() -> None:
            try:
                outcome = await claiming
                if answer.done():
                    self._run(caller, request, outcome)
                else:
                    answer.set_result(outcome)
            except Exception as error:
                if answer.done():
                    raise
                answer.set_exception(error)
            finally:
                answer.cancel()

        self._spawn(claim(), "begin a turn")
        try:
            outcome = await answer
        except asyncio.CancelledError:
            # The answer may have come in the same moment.
            if not answer.cancelled() and answer.exception() is None:
                self._run(caller, request, answer.result())
            raise
        # At once, so that whoever follows from here on misses nothing.
        self._run(caller, request, outcome)
        return outcome

    def _run(self, caller: Caller, request: SendMessageRequest, outcome: object) -> None:
        if not isinstance(outcome, Claimed):
            return
        self._events.publish(outcome.task.id, outcome.entry)
        configuration = request.configuration
        self._runner.start(
            BegunTurn(
                caller,
                outcome.task,
                request.message,
                outcome.epoch,
                outcome.first_seq,
                log_bytes=outcome.log_bytes,
                accepted_output_modes=configuration.accepted_output_modes if configuration is not None else (),
            )
        )

    async def _continue(
        self,
        caller: Caller,
        request: SendMessageRequest,
        task_id: str,
        key: IdempotencyKey | None,
        push_config: TaskPushNotificationConfig | None,
    ) -> Claimed | Replay | Conflict:
        message = request.message
        turn = NewTurn(task_id, message, message.context_id, key, self._runner.lease, push_config)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._busy_wait
        while True:
            match outcome := await self._run_claimed(caller, request, self._try(caller, turn)):
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
        if not self._has_leases and (answered := self._runner.answers(turn.task_id)) is not None:
            if turn.key is not None and turn.key.message_id == answered.message_id:
                return Replay(turn.task_id, 0)
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
