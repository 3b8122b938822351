"""One push configuration while it is being delivered to: what it has not been told yet, in order, each entry once."""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Final
from weakref import WeakValueDictionary

from app.protocol.errors import LogTruncatedError, TaskNotFoundError, UnavailableError
from app.protocol.identity import Owner
from app.protocol.lifecycle import TERMINAL
from app.protocol.push import TaskPushNotificationConfig
from app.service.event_log import EventLog, Follower, StreamPausedError
from app.service.streams import task_entry, undecided
from app.store.base import LogEntry, TaskStore
from app.store.push_configs import ConfigKey, DeliveryReport, DeliveryState, PushDelivery, config_key
from app.telemetry import get_logger
from app.worker.webhooks import Answer, WebhookFailedError, Webhooks

log = get_logger(__name__)

CONTENT_TYPE: Final = "application/a2a+json"
GONE: Final = 410

LINGER: Final = 10.0
"""Seconds that a delivery that has caught up waits for more before it lets go."""
SLOT_WAIT: Final = 1.0
"""Seconds that a delivery waits for its turn with a receiver before it lets others go first."""
FRESH_SLOTS: Final = 16
FAILED_SLOTS: Final = 4
"""Requests to one receiver at a time; those that failed before wait among themselves."""
OUTAGE_DELAY: Final = 1.0
"""Seconds before a delivery goes on that the store was out of reach for."""
MAX_DELAY: Final = 3_600.0
"""Seconds before a delivery that failed is tried again, at most."""


class Receiver:
    """What answers at an origin, with room for so many requests at a time."""

    def __init__(self) -> None:
        self.fresh = asyncio.Semaphore(FRESH_SLOTS)
        self.failed = asyncio.Semaphore(FAILED_SLOTS)


class Receivers:
    """The receivers of the deliveries that run."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[str, Receiver] = WeakValueDictionary()

    def at(self, origin: str) -> Receiver:
        """The receiver at an origin."""
        found = self._known.get(origin)
        if found is None:
            found = self._known[origin] = Receiver()
        return found


class DeliveryEnv:
    """What all deliveries of a process share."""

    def __init__(
        self,
        events: EventLog,
        webhooks: Webhooks,
        store_of: Callable[[Owner], TaskStore],
        *,
        retry: float,
        may_reply: bool = False,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`retry`: seconds before a failed delivery is tried again for the first time.

        `may_reply`: whether a new task may turn out to be none, so that it is not told of before it is known to be one.
        """
        self.events = events
        self.webhooks = webhooks
        self.store_of = store_of
        self.receivers = Receivers()
        self.may_reply = may_reply
        self._retry = retry
        self._jitter = jitter

    def delay(self, failures: int, asked: float | None) -> float:
        """Seconds before the next try: doubled with each failure, with jitter, and as long as the receiver asked."""
        longest = min(MAX_DELAY, self._retry * 2.0 ** min(failures - 1, 30))
        return max(longest * (0.5 + self._jitter() / 2), min(asked or 0.0, MAX_DELAY))

    def soon(self) -> float:
        """Seconds before one that gave way to others is looked at again."""
        return SLOT_WAIT * (0.5 + self._jitter() / 2)


class Delivery:
    """A claimed configuration. Runs until there is nothing to tell, or until its receiver cannot be told."""

    def __init__(self, claimed: PushDelivery, env: DeliveryEnv, changed: Callable[[], None]) -> None:
        """`changed` is called whenever there is something new to report."""
        self.key: ConfigKey = config_key(claimed.config)
        self.dirty = False
        """Whether there is something that was not reported yet."""
        self.parked = False
        """Whether it let go because there was nothing to tell."""
        self.ended = asyncio.Event()
        """Set when it has let go."""
        self._claimed = claimed
        self._env = env
        self._changed = changed
        self._headers = headers_for(claimed.config)
        self._position = claimed.position
        self._failures = claimed.failures
        self._delay = 0.0
        self._state: DeliveryState = "active"
        self._began = asyncio.get_running_loop().time()
        self._told = False
        self._telling = False
        self._finishing = False
        self._task: asyncio.Task[None] | None = None

    @property
    def failing(self) -> bool:
        """Whether its last try failed."""
        return self._failures > 0

    @property
    def had_its_turn(self) -> bool:
        """Whether it has told something and has nothing more now, or has been telling for long."""
        return self._told and (not self._telling or asyncio.get_running_loop().time() - self._began > LINGER)

    @property
    def ends_early(self) -> bool:
        """Whether there will or may be more to tell when it has let go."""
        return self._state == "active"

    @property
    def due_in(self) -> float | None:
        """Seconds after which it is to be claimed again; `None` if it is not."""
        return self._delay if self._state == "active" and not self.parked else None

    def report(self) -> DeliveryReport:
        """How far it has come."""
        return DeliveryReport(
            self.key,
            self._claimed.revision,
            self._position,
            self._failures,
            hold=not self.ended.is_set(),
            delay=self._delay,
            state=self._state,
        )

    async def run(self) -> None:
        """Deliver."""
        self._task = asyncio.current_task()
        try:
            if not self._finishing:
                await self._deliver(self._env.store_of(self._claimed.owner))
        except TaskNotFoundError:
            log.debug("a task to be told of is gone", task_id=self.key[0])
        except StreamPausedError:
            log.debug("a delivery ends with the process", task_id=self.key[0])
        except UnavailableError as error:
            log.warning("a delivery could not read its task", task_id=self.key[0], error=str(error))
            self._delay = OUTAGE_DELAY
        except Exception:
            log.exception("a delivery broke", task_id=self.key[0], config_id=self.key[1])
            self._failures += 1
            self._delay = self._env.delay(self._failures, None)
        finally:
            self.ended.set()
            self._note()

    def finish(self) -> None:
        """Let go after the request that is under way, or at once."""
        self._finishing = True
        if not self._telling:
            self.stop()

    def stop(self) -> None:
        """Let go at once. A request that is under way may arrive, and be made again by whoever comes next."""
        self._finishing = True
        if self._task is not None and not self.ended.is_set():
            self._task.cancel("delivery stopped")

    async def _deliver(self, store: TaskStore) -> None:
        goes_on = True
        while goes_on:
            follower = self._env.events.follow(store, self.key[0], TERMINAL)
            follower.start_at(self._position)
            try:
                goes_on = await self._follow(follower)
            except LogTruncatedError:
                goes_on = await self._catch_up(store)

    async def _follow(self, follower: Follower) -> bool:
        """Deliver what follows, until the task ends or nothing comes for a while. Never goes on."""
        holds_back = self._env.may_reply and self._position == 0
        async with (
            aclosing(follower.batches()) as entries,
            aclosing(undecided(entries)) as decided,
        ):
            batches = decided if holds_back else entries
            while not self._finishing:
                try:
                    async with asyncio.timeout(LINGER):
                        batch = await anext(batches)
                except TimeoutError:
                    self.parked = True
                    return False
                except StopAsyncIteration:
                    self._state = "finished"
                    return False
                for entry in batch:
                    if self._finishing or not await self._tell(entry):
                        return False
        return False

    async def _catch_up(self, store: TaskStore) -> bool:
        """What comes next was dropped from the log: deliver the task as it is instead; says whether to go on."""
        snapshot = await store.snapshot(self.key[0])
        if snapshot is None:
            return False
        if self._position >= snapshot.earliest_seq - 1:
            # Another reader of the same tail was overtaken, not this one.
            self._delay = self._env.soon()
            return False
        if not await self._tell(task_entry(snapshot.seq, snapshot.task)):
            return False
        if snapshot.task.status.state in TERMINAL:
            self._state = "finished"
            return False
        return True

    async def _tell(self, entry: LogEntry) -> bool:
        """Deliver an entry; says whether it was."""
        self._telling = True
        try:
            answer = await self._call(entry)
        except WebhookFailedError as error:
            return self._failed(entry, str(error), None)
        finally:
            self._telling = False
        return answer is not None and self._answered(entry, answer)

    async def _call(self, entry: LogEntry) -> Answer | None:
        """What the receiver says to an entry; `None` if others were first for too long."""
        url, webhooks = self._claimed.config.url, self._env.webhooks
        receiver = self._env.receivers.at(webhooks.origin(url))
        slots = receiver.failed if self._failures else receiver.fresh
        try:
            async with asyncio.timeout(SLOT_WAIT):
                await slots.acquire()
        except TimeoutError:
            self._delay = self._env.soon()
            return None
        try:
            return await webhooks.post(url, self._headers, entry.data)
        finally:
            slots.release()

    def _answered(self, entry: LogEntry, answer: Answer) -> bool:
        if 200 <= answer.status < 300:  # noqa: PLR2004 - A2A 4.3.3: any 2xx
            self._position, self._failures, self._told = entry.seq, 0, True
            self._note()
            return True
        if answer.status == GONE:
            log.info("a receiver is gone", task_id=self.key[0], config_id=self.key[1])
            self._state = "disabled"
            return False
        return self._failed(entry, f"it answered {answer.status}", answer.retry_after)

    def _failed(self, entry: LogEntry, reason: str, asked: float | None) -> bool:
        self._failures += 1
        self._delay = self._env.delay(self._failures, asked)
        log.info(
            "a delivery failed",
            task_id=self.key[0],
            config_id=self.key[1],
            seq=entry.seq,
            failures=self._failures,
            again_in=round(self._delay, 1),
            reason=reason,
        )
        return False

    def _note(self) -> None:
        self.dirty = True
        self._changed()


def headers_for(config: TaskPushNotificationConfig) -> Mapping[str, str]:
    """What every request to a webhook carries (A2A 4.3.3)."""
    headers = {"Content-Type": CONTENT_TYPE}
    authentication = config.authentication
    if authentication is not None and authentication.credentials:
        headers["Authorization"] = f"{authentication.scheme} {authentication.credentials}"
    if config.token:
        headers["X-A2A-Notification-Token"] = config.token
    return headers
