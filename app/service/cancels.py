"""How a task is cancelled, wherever its turn runs."""

import asyncio
from contextlib import suppress
from typing import Final

from app.protocol.errors import TaskNotCancelableError, TaskNotFoundError
from app.protocol.events import Clock, update_of, utc_now
from app.protocol.lifecycle import TERMINAL, TURN_ENDING, fold
from app.protocol.types import Task, TaskState, TaskStatus, TaskStatusUpdateEvent
from app.service.event_log import EventLog, StreamPausedError
from app.service.turns import Caller, TurnRunner
from app.store.base import CancelFlagged, Claimed, Commit, Ended, FencedError, NotFound

CANCEL_RETRY: Final = 0.1
"""Seconds between looks at a task whose turn is over but not yet let go."""


class Canceller:
    """Stops turns of this process and asks others to stop theirs."""

    def __init__(self, events: EventLog, runner: TurnRunner, *, wait: float, clock: Clock = utc_now) -> None:
        """`wait`: seconds that a turn asked to stop is waited for."""
        self._events = events
        self._runner = runner
        self._wait = wait
        self._clock = clock

    async def cancel(self, caller: Caller, task_id: str) -> Task:
        """Stop the task and return it as it then is; raises as `TaskService.cancel_task` does."""
        match await caller.store.begin_cancel(task_id, self._runner.lease):
            case NotFound():
                raise TaskNotFoundError
            case Ended(state):
                raise TaskNotCancelableError(f"The task has already ended ({state}).")
            case Claimed() as claimed if not self._runner.runs(task_id):
                await self._commit_canceled(caller, claimed)
            case CancelFlagged() | Claimed():
                self._runner.cancel(task_id)
                await self._stopped(caller, task_id)
        task = await caller.store.get(task_id)
        if task is None:
            raise TaskNotFoundError
        if task.status.state in TERMINAL and task.status.state is not TaskState.CANCELED:
            raise TaskNotCancelableError(f"The task ended ({task.status.state}) before it could be cancelled.")
        return task

    async def _commit_canceled(self, caller: Caller, claimed: Claimed) -> None:
        task = claimed.task
        event = TaskStatusUpdateEvent(
            task_id=task.id,
            context_id=task.context_id,
            status=TaskStatus(state=TaskState.CANCELED, timestamp=self._clock()),
        )
        update = update_of(event)
        task = fold(task, event)
        try:
            await self._events.append(caller.store, Commit(task.id, claimed.epoch, [update], task))
        except FencedError:
            # Somebody else ended it, or went on with it; the task says which.
            return

    async def _stopped(self, caller: Caller, task_id: str) -> None:
        """Wait a few seconds for the end of a task that was asked to stop.

        A turn that has just asked its caller for something keeps its lease for a moment, and stops for nobody. Without
        the lease the task only waits, and is cancelled from here.
        """
        keeps_log = caller.store.supports_event_log()
        with suppress(TimeoutError, StreamPausedError):
            async with asyncio.timeout(self._wait):
                while True:
                    follower = self._events.follow(caller.store, task_id, TURN_ENDING)
                    if not keeps_log:
                        follower.start_now()
                    snapshot = await caller.store.snapshot(task_id)
                    if snapshot is None or snapshot.task.status.state in TERMINAL:
                        return
                    if snapshot.task.status.state not in TURN_ENDING:
                        if keeps_log:
                            follower.start_at(snapshot.seq, current=True)
                        await follower.finish()
                        continue
                    await self._runner.finished(task_id, CANCEL_RETRY)
                    outcome = await caller.store.begin_cancel(task_id, self._runner.lease)
                    if isinstance(outcome, Claimed) and not self._runner.runs(task_id):
                        await self._commit_canceled(caller, outcome)
                        return
                    self._runner.cancel(task_id)
