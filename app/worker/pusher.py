"""Push notifications: every entry of a log, in order, to each webhook that is configured for its task.

A configuration is behind when its cursor is before the head of the log. This process claims those that are, delivers
to each apart from all others, and lets go of what has caught up or has failed. What it knows beyond that is only what
makes it look earlier; whatever it misses, the next look finds.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from app.protocol.errors import UnavailableError
from app.store.base import Lease
from app.store.push_configs import ConfigKey, DeliveryReport, PushConfigStore
from app.store.wakeups import Wakeups
from app.telemetry import get_logger
from app.worker.delivery import Delivery, DeliveryEnv
from app.worker.supervisor import Supervisor

log = get_logger(__name__)

LOOK_INTERVAL: Final = 1.0
"""Seconds between looks at all configurations."""
MAX_FRESH: Final = 500
MAX_FAILED: Final = 50
"""Deliveries at a time; those that failed before never take the room of the others."""
MAX_WATCHED: Final = 10_000
RECORD_PAUSE: Final = 0.05
"""Seconds between reports at least: what a crash may make this server deliver twice."""
DOUBT_INTERVAL: Final = 0.5
"""Seconds between looks whether what is being delivered to has been changed by another process."""
RENEWALS_PER_TTL: Final = 3
FENCE_FRACTION: Final = 2 / 3
"""Of the lease's time: without a report for so long, this process no longer trusts its claims."""


class Pusher:
    """The deliveries of one process."""

    def __init__(
        self,
        configs: PushConfigStore,
        supervisor: Supervisor,
        env: DeliveryEnv,
        wakeups: Wakeups,
        *,
        lease: Lease,
    ) -> None:
        self._configs = configs
        self._supervisor = supervisor
        self._env = env
        self._lease = lease
        self._deliveries: dict[ConfigKey, Delivery] = {}
        self._told: Counter[str] = Counter()
        """Tasks that are being told of, with how many deliveries they have."""
        self._doubted: set[str] = set()
        """Those of which another process may have changed a configuration."""
        self._doubts_at = 0.0
        self._wanted: set[str] = set()
        self._watched: dict[str, float] = {}
        """Tasks of which a change is likely to concern a configuration, with the time before which it is not."""
        self._look = asyncio.Event()
        self._look_at = 0.0
        self._changed = asyncio.Event()
        self._reporting = asyncio.Lock()
        self._recorded = 0.0
        self._closing = False
        self._stop_listening = wakeups.listen(self._hear)

    def start(self) -> None:
        """Deliver from now on, for as long as the supervisor lasts."""
        self._supervisor.forever(self.deliver, "deliver")
        self._supervisor.forever(self.record, "record deliveries")

    async def changed(self, task_id: str, config_id: str) -> None:
        """A configuration was created, replaced or removed: from the return on, this process calls it as it now is."""
        delivery = self._deliveries.get((task_id, config_id))
        if delivery is not None:
            delivery.stop()
            await delivery.ended.wait()
        self._watch(task_id)
        self._want(task_id)

    async def deliver(self) -> None:
        """Claim what is behind and deliver it, for ever."""
        loop = asyncio.get_running_loop()
        while not self._closing:
            try:
                async with asyncio.timeout_at(self._look_at):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()
            names, self._wanted = self._wanted, set()
            try:
                if loop.time() >= self._look_at:
                    self._look_at = loop.time() + LOOK_INTERVAL
                    await self._claim(None)
                elif names:
                    await self._claim(names)
            except UnavailableError as error:
                log.warning("deliveries could not be looked for", error=str(error))

    async def record(self) -> None:
        """Store how far the deliveries have come, for ever; stop those whose claim was lost."""
        loop = asyncio.get_running_loop()
        self._recorded = loop.time()
        while True:
            patience = self._lease.ttl / RENEWALS_PER_TTL
            if self._doubted:
                patience = min(patience, max(0.0, self._doubts_at - loop.time()))
            try:
                async with asyncio.timeout(patience):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            await self._report()
            await asyncio.sleep(RECORD_PAUSE)

    async def drain(self, grace: float) -> None:
        """Claim no more, give requests that are under way `grace` seconds, and let go of everything."""
        self._closing = True
        self._stop_listening()
        self._look.set()
        held = list(self._deliveries.values())
        for delivery in held:
            delivery.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                for delivery in held:
                    await delivery.ended.wait()
        for delivery in held:
            delivery.stop()
            await delivery.ended.wait()
        await self._report()

    # -- claims

    async def _claim(self, names: set[str] | None) -> None:
        failing = sum(delivery.failing for delivery in self._deliveries.values())
        fresh = max(0, MAX_FRESH - len(self._deliveries) + failing)
        claimed = await self._configs.claim_deliveries(
            self._lease, fresh=fresh, failed=max(0, MAX_FAILED - failing), task_ids=names
        )
        for found in claimed:
            delivery = Delivery(found, self._env, self._changed.set)
            if delivery.key in self._deliveries:
                # A claim of ours that was over is ours again; whoever delivers goes on.
                continue
            self._watched.pop(delivery.key[0], None)
            self._deliveries[delivery.key] = delivery
            self._told[delivery.key[0]] += 1
            self._supervisor.spawn(delivery.run(), "delivery")
        if sum(not found.failures for found in claimed) >= fresh:
            self._make_room()
        now = asyncio.get_running_loop().time()
        for name in (names or set()) & self._watched.keys():
            # Nothing to tell yet, or somebody else tells it: then not every change is a reason to look.
            self._watched[name] = now + LOOK_INTERVAL if self._watched[name] else now

    def _make_room(self) -> None:
        """Others wait: those that have had their turn come last from here on."""
        for delivery in self._deliveries.values():
            if delivery.had_its_turn:
                delivery.finish()

    def _watch(self, task_id: str) -> None:
        self._watched[task_id] = 0.0
        if len(self._watched) > MAX_WATCHED:
            del self._watched[next(iter(self._watched))]

    def _want(self, task_id: str) -> None:
        self._wanted.add(task_id)
        self._look.set()

    def _hear(self, task_id: str | None) -> None:
        now = asyncio.get_running_loop().time()
        if task_id is None:
            self._look_at = now
            self._look.set()
            self._doubted.update(self._told)
            self._changed.set()
        elif task_id in self._told:
            self._doubted.add(task_id)
            self._changed.set()
        if task_id is not None and (not_before := self._watched.get(task_id)) is not None and now >= not_before:
            self._want(task_id)

    # -- reports

    async def _report(self) -> None:
        async with self._reporting:
            await self._report_alone()

    async def _report_alone(self) -> None:
        now = asyncio.get_running_loop().time()
        renews = now - self._recorded >= self._lease.ttl / RENEWALS_PER_TTL
        if renews and not self._deliveries:
            self._recorded = now
        doubted = self._take_doubted(now)
        reported = [
            delivery for delivery in self._deliveries.values() if delivery.dirty or renews or delivery.key[0] in doubted
        ]
        if not reported:
            return
        for delivery in reported:
            delivery.dirty = False
        reports = [delivery.report() for delivery in reported]
        lost = await self._store(reports)
        if lost is None:
            for delivery in reported:
                delivery.dirty = True
            return
        if renews:
            self._recorded = now
        for delivery, report in zip(reported, reports, strict=True):
            if not report.hold:
                self._let_go(delivery)
            elif report.key in lost:
                delivery.stop()

    def _take_doubted(self, now: float) -> set[str]:
        """Tasks whose deliveries are to be looked at, if it is time for that again."""
        if not self._doubted or now < self._doubts_at:
            return set()
        doubted, self._doubted, self._doubts_at = self._doubted, set(), now + DOUBT_INTERVAL
        return doubted

    async def _store(self, reports: Sequence[DeliveryReport]) -> Collection[ConfigKey] | None:
        """What was lost; `None` if the store was out of reach, for too long perhaps for claims to hold."""
        try:
            async with asyncio.timeout(self._lease.ttl / RENEWALS_PER_TTL):
                return await self._configs.record_deliveries(self._lease, reports)
        except (UnavailableError, TimeoutError) as error:
            log.warning("deliveries could not be recorded", error=str(error))
        if asyncio.get_running_loop().time() - self._recorded > self._lease.ttl * FENCE_FRACTION:
            for delivery in self._deliveries.values():
                delivery.stop()
        return None

    def _let_go(self, delivery: Delivery) -> None:
        del self._deliveries[delivery.key]
        self._told[delivery.key[0]] -= 1
        if not self._told[delivery.key[0]]:
            del self._told[delivery.key[0]]
        if self._closing:
            return
        if delivery.ends_early:
            self._watch(delivery.key[0])
        if delivery.due_in is not None:
            # The database counts whole milliseconds.
            self._look_at = min(self._look_at, asyncio.get_running_loop().time() + delivery.due_in + 0.002)
            self._look.set()
