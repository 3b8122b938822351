"""Finds turns that nobody runs and does with them what the agent's policy says."""

import asyncio
from collections.abc import Callable
from typing import Final

from app.handler import Recovery
from app.protocol.errors import UnavailableError
from app.protocol.events import Clock, update_of, utc_now
from app.protocol.identity import Owner
from app.protocol.lifecycle import fold
from app.protocol.types import Message, Part, Role, Task, TaskState, TaskStatus, TaskStatusUpdateEvent
from app.service.event_log import EventLog
from app.service.turns import BegunTurn, Caller, TurnRunner
from app.store.base import Claimed, Commit, FencedError, TaskStore
from app.store.turns import StrandedTurn, TurnStore
from app.telemetry import get_logger

log = get_logger(__name__)

MAX_ATTEMPTS: Final = 3
"""Runs of one turn under `restart`, the first included."""
BATCH: Final = 100
LOST_TEXT: Final = "The server running this task stopped before it was done."


class TurnRecovery:
    """Settles stranded turns: FAILED, said once in the log, or run again."""

    def __init__(
        self,
        turn_store: TurnStore,
        store_of: Callable[[Owner], TaskStore],
        events: EventLog,
        runner: TurnRunner,
        *,
        policy: Recovery,
        extensions: frozenset[str],
        interval: float,
        clock: Clock = utc_now,
    ) -> None:
        self._turn_store = turn_store
        self._store_of = store_of
        self._events = events
        self._runner = runner
        self._policy = policy
        self._extensions = extensions
        self._interval = interval
        self._clock = clock

    async def watch(self) -> None:
        """Look for stranded turns now and then, for ever."""
        while True:
            try:
                await self.settle()
            except UnavailableError as error:
                log.warning("stranded turns could not be looked for", error=str(error))
            await asyncio.sleep(self._interval)

    async def settle(self) -> int:
        """Settle what is stranded now; returns how many turns this process took."""
        taken = 0
        while stranded := await self._turn_store.stranded_turns(BATCH):
            before = taken
            for turn in stranded:
                taken += await self._take(turn)
            if taken == before:
                break
        return taken

    async def _take(self, turn: StrandedTurn) -> bool:
        claimed = await self._turn_store.take_over(turn, self._runner.lease)
        if claimed is None:
            return False
        message = _message_of(claimed.task)
        # The request that activated extensions is gone; what the message itself names is kept with it.
        named = self._extensions.intersection(message.extensions if message is not None else ())
        caller = Caller(turn.owner, self._store_of(turn.owner), named)
        if self._policy == "restart" and claimed.attempt <= MAX_ATTEMPTS and message is not None:
            log.warning("a lost turn runs again", task_id=turn.task_id, attempt=claimed.attempt)
            self._runner.start(
                BegunTurn(
                    caller,
                    claimed.task,
                    message,
                    claimed.epoch,
                    claimed.head,
                    claimed.attempt,
                    log_bytes=claimed.log_bytes,
                )
            )
        else:
            log.warning("a lost turn failed its task", task_id=turn.task_id, attempt=turn.attempt)
            await self._fail(caller, claimed)
        return True

    async def _fail(self, caller: Caller, claimed: Claimed) -> None:
        task = claimed.task
        message = Message(
            message_id=f"{task.id}-lost-{claimed.epoch}",
            context_id=task.context_id,
            task_id=task.id,
            role=Role.AGENT,
            parts=[Part(text=LOST_TEXT)],
        )
        status = TaskStatus(state=TaskState.FAILED, message=message, timestamp=self._clock())
        event = TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=status)
        update = update_of(event)
        task = fold(task, event)
        try:
            await self._events.append(caller.store, Commit(task.id, claimed.epoch, [update], task))
        except FencedError:
            log.info("a lost turn was settled by somebody else", task_id=task.id)


def _message_of(task: Task) -> Message | None:
    """The message that a turn answers: the newest of its user's."""
    return next((message for message in reversed(task.history) if message.role is Role.USER), None)
