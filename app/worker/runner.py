"""Runs turns in this process, keeps their leases, stops them when asked or when a lease is lost."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final

from app.handler import Agent
from app.protocol.errors import A2AError, UnavailableError
from app.protocol.limits import TURN_LIMITS, TurnLimits
from app.protocol.types import Message
from app.service.event_log import EventLog
from app.service.turns import BegunTurn
from app.store.base import Lease
from app.store.turns import Renewal, TurnStore
from app.store.wakeups import Wakeups
from app.telemetry import get_logger
from app.worker.running_turn import RunningTurn
from app.worker.supervisor import Supervisor

log = get_logger(__name__)

RENEWALS_PER_TTL: Final = 6
OUTAGE_FRACTION: Final = 2 / 3
"""Of the lease's time: an outage of the store that is shorter is waited out."""
FENCE_FRACTION: Final = OUTAGE_FRACTION + 1 / RENEWALS_PER_TTL
"""Of the lease's time: without a renewal for so long, this process no longer trusts its leases. The outage may have
begun just before a renewal was due, and the lease must last for as long as its turn may run."""
RETRIES_PER_RENEWAL: Final = 4
"""Tries, while the store is out of reach, in the time between two renewals."""


class Runner:
    """The turns of one process."""

    def __init__(
        self,
        agent: Agent,
        events: EventLog,
        supervisor: Supervisor,
        *,
        lease: Lease,
        cancel_grace: float,
        turn_timeout: float,
        turn_store: TurnStore | None,
        wakeups: Wakeups,
        resources: Any = None,
        limits: TurnLimits = TURN_LIMITS,
    ) -> None:
        self.lease = lease
        self._agent = agent
        self._events = events
        self._supervisor = supervisor
        self._cancel_grace = cancel_grace
        self._turn_timeout = agent.turn_timeout or turn_timeout
        self._turn_store = turn_store
        self._resources = resources
        self._limits = limits
        self._running: dict[str, RunningTurn] = {}
        self._named: set[str] = set()
        self._hinted = asyncio.Event()
        wakeups.listen(self._hear, remote_only=True)

    def start(self, begun: BegunTurn) -> None:
        """Run a turn; returns at once."""
        running = RunningTurn(
            begun,
            self._agent,
            self._events,
            self._supervisor,
            resources=self._resources,
            limits=self._limits,
            cancel_grace=self._cancel_grace,
            timeout=self._turn_timeout,
            outage_limit=self.lease.ttl * OUTAGE_FRACTION,
            on_end=self._ended,
        )
        self._running[begun.task.id] = running
        self._supervisor.spawn(running.run(), "turn")

    def cancel(self, task_id: str) -> bool:
        """Ask the turn of a task to stop, if it runs here and has not ended; says whether it was asked."""
        running = self._running.get(task_id)
        return running is not None and running.cancel()

    def runs(self, task_id: str) -> bool:
        """Whether a turn of the task runs here."""
        return task_id in self._running

    def answers(self, task_id: str) -> Message | None:
        """The message that a turn which runs here answers."""
        running = self._running.get(task_id)
        return None if running is None else running.begun.message

    async def finished(self, task_id: str, timeout: float) -> None:
        """Return when no turn of the task runs here, or after `timeout` seconds."""
        running = self._running.get(task_id)
        if running is None:
            await asyncio.sleep(timeout)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await running.ended.wait()

    async def keep_leases(self) -> None:
        """Renew the leases of all turns, for ever; stop turns that lost theirs or are to be cancelled."""
        assert self._turn_store is not None  # noqa: S101 - wired only with a store that has leases
        loop = asyncio.get_running_loop()
        period = wait = self.lease.ttl / RENEWALS_PER_TTL
        renewed = loop.time()
        while True:
            await asyncio.sleep(wait)
            wait, now = period, loop.time()
            epochs = {task_id: running.begun.epoch for task_id, running in self._running.items()}
            if not epochs:
                renewed = now
                continue
            fence = renewed + self.lease.ttl * FENCE_FRACTION
            try:
                async with asyncio.timeout_at(max(fence, now + period / RETRIES_PER_RENEWAL)):
                    renewal = await self._turn_store.renew_leases(epochs, self.lease)
            except (A2AError, TimeoutError):
                wait = period / RETRIES_PER_RENEWAL
                if loop.time() + wait > fence:
                    log.warning("no lease could be renewed in time; its turns are given up", turns=len(epochs))
                    for task_id, epoch in epochs.items():
                        self._lose(task_id, epoch)
                    renewed = loop.time()
                continue
            renewed = now
            self._obey(renewal, epochs)

    async def heed_hints(self) -> None:
        """Look at turns of this process that another has changed, for ever: to be cancelled, or no longer its own."""
        assert self._turn_store is not None  # noqa: S101 - wired only with a store that has leases
        while True:
            await self._hinted.wait()
            self._hinted.clear()
            names, self._named = self._named, set()
            epochs = {name: self._running[name].begun.epoch for name in names if name in self._running}
            if epochs:
                with contextlib.suppress(UnavailableError):
                    self._obey(await self._turn_store.renew_leases(epochs, self.lease), epochs)

    def _hear(self, task_id: str | None) -> None:
        names = self._running.keys() if task_id is None else self._running.keys() & {task_id}
        if names:
            self._named |= names
            self._hinted.set()

    def _obey(self, renewal: Renewal, epochs: Mapping[str, int]) -> None:
        for task_id in renewal.lost:
            self._lose(task_id, epochs[task_id])
        for task_id in renewal.cancelled:
            self.cancel(task_id)

    async def drain(self, grace: float) -> None:
        """Give the running turns `grace` seconds to end, then hand over what is left."""
        turns = list(self._running.values())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                for running in turns:
                    await running.ended.wait()
        for running in list(self._running.values()):
            running.hand_over()
            if self._turn_store is not None:
                with contextlib.suppress(UnavailableError):
                    await self._turn_store.release_lease(running.begun.task.id, running.begun.epoch)

    def _lose(self, task_id: str, epoch: int) -> None:
        running = self._running.get(task_id)
        if running is not None and running.begun.epoch == epoch:
            running.lose()

    def _ended(self, running: RunningTurn) -> None:
        if self._running.get(running.begun.task.id) is running:
            del self._running[running.begun.task.id]
