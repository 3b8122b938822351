"""One turn while it runs: the handler in front, the queue of what it said behind."""

import asyncio
from collections.abc import Callable
from typing import Final

from app.handler import Agent, Turn, TurnEndedError, play
from app.protocol.errors import UnavailableError
from app.protocol.events import Update
from app.protocol.lifecycle import INTERRUPTED
from app.protocol.limits import TurnLimits
from app.protocol.types import TaskState
from app.service.event_log import EventLog
from app.service.turns import BegunTurn
from app.store.base import Commit, FencedError
from app.telemetry import get_logger
from app.worker.supervisor import Supervisor

log = get_logger(__name__)

MAX_PENDING_UPDATES: Final = 256
MAX_PENDING_BYTES: Final = 1 << 20
"""A handler that is ahead of the store by this much waits in its next write."""
OUTAGE_RETRY: Final = 0.2
"""Seconds between tries while the store is out of reach."""


class RunningTurn:
    """Runs a handler and stores what it says, in order, each piece once, under the epoch of the turn.

    Pieces are offered without waiting. While one commit is under way the next gathers, so that a fast handler is stored
    in few transactions and a slow one at once.
    """

    def __init__(
        self,
        begun: BegunTurn,
        agent: Agent,
        events: EventLog,
        supervisor: Supervisor,
        *,
        resources: object,
        limits: TurnLimits,
        cancel_grace: float,
        timeout: float,
        outage_limit: float,
        on_end: Callable[["RunningTurn"], None],
    ) -> None:
        self.begun = begun
        self.turn = Turn(
            task=begun.task,
            message=begun.message,
            sink=self,
            owner=begun.caller.owner,
            attempt=begun.attempt,
            resources=resources,
            may_reply=agent.may_reply,
            extensions=begun.caller.extensions,
            accepted_output_modes=begun.accepted_output_modes,
            limits=limits,
            head=begun.head,
            log_bytes=begun.log_bytes,
        )
        self.ended = asyncio.Event()
        self._handle = agent.handle
        self._events = events
        self._supervisor = supervisor
        self._cancel_grace = cancel_grace
        self._timeout = timeout
        self._timer: asyncio.TimerHandle | None = None
        self._outage_limit = outage_limit
        self._on_end = on_end
        self._head = begun.head
        self._loop = asyncio.get_running_loop()
        self._pending: list[Update] = []
        self._pending_bytes = 0
        self._armed = False
        self._flushing = False
        self._waiters: list[asyncio.Future[None]] = []
        self._lost = False
        self._released = False
        self._handler_done = False
        self._task: asyncio.Task[None] | None = None

    # -- the handler's side (TurnSink)

    def offer(self, update: Update) -> None:
        """Queue an update; it is stored soon, whether or not anybody waits for it."""
        if self._lost:
            raise TurnEndedError("the task was taken from this turn")
        self._pending.append(update)
        self._pending_bytes += len(update.data)
        if not self._armed and not self._handler_done:
            self._armed = True
            self._loop.call_soon(self._store_soon)

    async def room(self) -> None:
        """Wait while the queue is full."""
        while len(self._pending) >= MAX_PENDING_UPDATES or self._pending_bytes >= MAX_PENDING_BYTES:
            await self._stored()

    async def durable(self) -> None:
        """Wait until the queue is stored."""
        while self._pending or self._flushing:
            await self._stored()
        if self._lost:
            raise TurnEndedError("the task was taken from this turn")

    # -- the runner's side

    async def run(self) -> None:
        """Play the turn to its end and store that end."""
        self._task = asyncio.current_task()
        self._timer = self._loop.call_later(self._timeout, self._time_out)
        try:
            await self._play()
            # Nothing cancels this part: the handler is done, and what it said is to be stored.
            self._handler_done = True
            while self._flushing:
                await self._stored()
            await self._flush()
            if not self._lost and not self.turn.ended and self.turn.task.status.state in INTERRUPTED:
                await self._events.release(self.begun.task.id, self.begun.epoch)
        finally:
            self._end()

    async def _play(self) -> None:
        try:
            await play(self._handle, self.turn)
        except asyncio.CancelledError:
            if self._lost:
                return
            if self.turn.stopping is None:
                raise
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - a coroutine being cancelled is a task
            task.uncancel()
            if not self.turn.ended:
                self.turn.emit_status(*self.turn.stopping)
        except TurnEndedError:
            return

    def cancel(self) -> bool:
        """Cancel the handler; it has a grace period to clean up, then the task is CANCELED without it.

        Says whether the handler was there to be cancelled.
        """
        return self._stop(TaskState.CANCELED, None, "CancelTask")

    def _time_out(self) -> None:
        if self._stop(TaskState.FAILED, f"The agent did not finish within {self._timeout:g} seconds.", "turn timeout"):
            log.warning("a turn took too long", task_id=self.begun.task.id, seconds=self._timeout)

    def _stop(self, state: TaskState, text: str | None, reason: str) -> bool:
        if self._handler_done or self.turn.ended or self._lost:
            return False
        if self.turn.stopping is None:
            self.turn.stopping = (state, text)
            if self._task is not None:
                self._task.cancel(reason)
            self._loop.call_later(self._cancel_grace, self._abandon)
        return True

    def lose(self) -> None:
        """The lease is gone: stop the handler, store nothing more.

        The turn has ended here at once, even if the handler takes its time: nobody must go on prolonging the lease.
        """
        self._lost = True
        self._pending.clear()
        self._pending_bytes = 0
        self._wake()
        if self._task is not None and not self._handler_done:
            self._task.cancel("lease lost")
        self._end()

    def hand_over(self) -> None:
        """Stop the handler because the process ends; the turn stays for whoever recovers it."""
        if self._task is not None:
            self._task.cancel("shutdown")

    def _abandon(self) -> None:
        if self._handler_done or self.turn.ended or self._lost or self.turn.stopping is None:
            return
        log.warning("the handler ignored its cancellation and was abandoned", task_id=self.begun.task.id)
        self.turn.emit_status(*self.turn.stopping)
        self._supervisor.spawn(self._abandoned(), "abandoned turn")

    async def _abandoned(self) -> None:
        await self.durable()
        self._end()

    def _end(self) -> None:
        if not self.ended.is_set():
            self.ended.set()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            # Neither holds the other any longer, so that both go at once and not by the garbage collector.
            self.turn.close()
            self._on_end(self)

    # -- storing

    def _store_soon(self) -> None:
        self._armed = False
        if self._pending and not self._flushing and not self._handler_done:
            self._flushing = True
            self._supervisor.spawn(self._write(), "store turn")

    async def _write(self) -> None:
        try:
            await self._flush()
        finally:
            self._flushing = False
            self._wake()

    async def _flush(self) -> None:
        """Store what is queued, until nothing is.

        Outages are waited out, for as long as a lease may be trusted without renewal. What is said meanwhile joins the
        commit that is tried again, since the task it carries already shows it.
        """
        batch: list[Update] = []
        give_up_at = 0.0
        while (batch or self._pending) and not self._lost:
            batch += self._pending
            self._pending = []
            self._pending_bytes = 0
            commit = Commit(self.begun.task.id, self.begun.epoch, batch, self.turn.task, self._head)
            try:
                self._head = await self._events.append(self.begun.caller.store, commit)
            except FencedError:
                log.warning("a turn was fenced off: its task ended or was taken over", task_id=self.begun.task.id)
                self.lose()
            except UnavailableError:
                give_up_at = give_up_at or self._loop.time() + self._outage_limit
                if self._loop.time() >= give_up_at:
                    log.exception("a turn was given up: the store stayed out of reach", task_id=self.begun.task.id)
                    self.lose()
                else:
                    await asyncio.sleep(OUTAGE_RETRY)
                continue
            except Exception:
                # What was said is not in the log; nothing that follows may be.
                log.exception("a turn was given up: it could not be stored", task_id=self.begun.task.id)
                self.lose()
            batch, give_up_at = [], 0.0
            self._wake()

    async def _stored(self) -> None:
        """Wait for the commit under way, or the one about to be."""
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        if not self._armed and not self._flushing:
            self._armed = True
            self._loop.call_soon(self._store_soon)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
