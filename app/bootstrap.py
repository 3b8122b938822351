"""The only place that wires concrete parts: agent, store, services, workers, application."""

import importlib
import inspect
import os
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import ModuleType
from typing import Any, Final, get_args

from fastapi import FastAPI

from app.api.app import create_app
from app.api.card_document import CardDocument
from app.api.deps import Services
from app.api.extensions import ExtensionPolicy
from app.api.sse import StreamPolicy
from app.handler import Agent, Recovery
from app.protocol.agent_card import AgentCard
from app.protocol.limits import MessageLimits, TurnLimits
from app.protocol.media_types import input_modes
from app.service.agent_card import derive_card
from app.service.cancels import Canceller
from app.service.event_log import EventLog
from app.service.push_configs import PushConfigService
from app.service.sends import Sender
from app.service.tasks import TaskService
from app.settings import Settings
from app.store.base import Lease, Purged, RetentionPolicy, StoreStartError, TaskStore
from app.store.memory import MemoryTaskStore
from app.store.push_configs import PushConfigStore
from app.store.turns import TurnStore
from app.store.wakeups import LocalWakeups, Wakeups
from app.telemetry import get_logger
from app.worker.delivery import DeliveryEnv
from app.worker.egress import EgressRules
from app.worker.loop_watch import LoopWatch
from app.worker.pusher import Pusher
from app.worker.recovery import TurnRecovery
from app.worker.runner import Runner
from app.worker.supervisor import Supervisor
from app.worker.sweeper import Sweeper
from app.worker.webhooks import http_webhooks

log = get_logger(__name__)

RECOVERY_INTERVAL: Final = 1.0
"""Seconds between looks for turns that nobody runs: a turn that was handed over shall not wait."""
SWEEP_INTERVAL: Final = 600.0
"""Seconds between sweeps at most."""
PUSH_GRACE: Final = 2.0
"""Seconds that webhooks which are being called may take at the end."""


class StartError(Exception):
    """The server cannot start; the message is one sentence that says what to change."""


def load_agent(name: str) -> Agent:
    """Import an agent file and check what it declares.

    Raises:
        StartError: there is no such module, it fails to import, or it lacks `card` or an async `handle`.
    """
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise StartError(f"A2A_AGENT names the module {name!r}, which does not exist.") from None
        raise StartError(f"The agent module {name!r} imports {error.name!r}, which is not installed.") from None
    except Exception as error:
        raise StartError(f"The agent module {name!r} failed to import: {type(error).__name__}: {error}") from error
    return _checked_agent(module)


def _checked_agent(module: ModuleType) -> Agent:
    name = module.__name__
    card = getattr(module, "card", None)
    if not isinstance(card, AgentCard):
        raise StartError(f"The agent module {name!r} needs `card = AgentCard(…)`.")
    handle = getattr(module, "handle", None)
    if handle is None:
        raise StartError(f"The agent module {name!r} needs `async def handle(turn: Turn) -> None`.")
    if not inspect.iscoroutinefunction(handle) and not inspect.iscoroutinefunction(type(handle).__call__):
        raise StartError(f"`handle` of the agent module {name!r} must be `async def`; run blocking work in a thread.")
    recovery: Recovery = getattr(module, "recovery", "fail")
    if recovery not in get_args(Recovery):
        raise StartError(f'`recovery` of the agent module {name!r} must be "fail" or "restart", not {recovery!r}.')
    may_reply = getattr(module, "may_reply", False)
    if not isinstance(may_reply, bool):
        raise StartError(f"`may_reply` of the agent module {name!r} must be True or False, not {may_reply!r}.")
    turn_timeout = getattr(module, "turn_timeout", None)
    if turn_timeout is not None and (not isinstance(turn_timeout, int | float) or not turn_timeout > 0):
        raise StartError(f"`turn_timeout` of the agent module {name!r} must be seconds above 0, not {turn_timeout!r}.")
    return Agent(
        card=card,
        handle=handle,
        recovery=recovery,
        may_reply=may_reply,
        turn_timeout=turn_timeout,
        lifespan=getattr(module, "lifespan", None),
    )


def build_store(settings: Settings, wakeups: Wakeups) -> TaskStore:
    """The task store that the settings name; not yet opened.

    Raises:
        StartError: there is no store for that URL.
    """
    scheme = settings.store_url.partition(":")[0]
    if scheme == "memory":
        return MemoryTaskStore(
            max_tasks=settings.memory_max_tasks,
            terminal_ttl=settings.memory_task_ttl,
            max_events_per_task=settings.max_events_per_task,
            max_push_configs=settings.max_push_configs_per_task,
            wakeups=wakeups,
        )
    # Drivers and ORM are imported by those only who use them.
    from app.store.sql import SqlTaskStore  # noqa: PLC0415 - see above

    try:
        return SqlTaskStore(
            settings.store_url,
            wakeups=wakeups,
            max_events_per_task=settings.max_events_per_task,
            max_push_configs=settings.max_push_configs_per_task,
            pool_size=settings.pool_size,
            sqlite_synchronous=settings.sqlite_synchronous,
            auto_migrate=settings.auto_migrate,
        )
    except StoreStartError as error:
        raise StartError(f"A2A_STORE_URL: {error}") from None


def build_wakeups(settings: Settings) -> Wakeups:
    """What carries hints between all processes on the store of the settings."""
    if not settings.store_url.startswith(("postgres:", "postgresql")):
        return LocalWakeups()
    from app.store.wakeups_postgresql import PostgresqlWakeups  # noqa: PLC0415 - a driver, for those who use it

    name = "A2A_STORE_URL" if settings.wakeup_url is None else "A2A_WAKEUP_URL"
    try:
        return PostgresqlWakeups(settings.wakeup_url or settings.store_url)
    except StoreStartError as error:
        raise StartError(f"{name}: {error}") from None


async def migrate(settings: Settings) -> None:
    """Bring the database of the settings up to date; replicas that do so at once wait for each other.

    Raises:
        StartError: there is no database, or it cannot be used.
    """
    async with opened_database(settings.model_copy(update={"auto_migrate": True})):
        pass


async def purge(settings: Settings) -> Purged:
    """Remove what the settings' retention lets go, once; raises as `migrate` does, and if there is no retention."""
    if settings.retention is None:
        raise StartError("Say what is old: --older-than 30d, or A2A_RETENTION.")
    async with opened_database(settings) as store:
        return await store.purge(retention_policy(settings.retention, settings))


def retention_policy(age: float, settings: Settings) -> RetentionPolicy:
    """What the settings let go, of tasks that ended `age` seconds ago."""
    return RetentionPolicy(terminal_age=age, key_age=settings.key_retention)


def turn_limits(settings: Settings) -> TurnLimits:
    """What an agent may say."""
    return TurnLimits(
        event_bytes=settings.max_event_bytes,
        artifacts=settings.max_artifacts_per_task,
        events=settings.fail_after_events,
        bytes=settings.fail_after_bytes,
        id_length=settings.max_id_length,
    )


def message_limits(settings: Settings) -> MessageLimits:
    """What a client may send."""
    return MessageLimits(
        metadata_bytes=settings.max_metadata_bytes,
        parts=settings.max_parts_per_message,
        id_length=settings.max_id_length,
    )


@asynccontextmanager
async def opened_database(settings: Settings) -> AsyncIterator[TurnStore]:
    """The store of the settings, if it outlives a process; opened."""
    store = build_store(settings, LocalWakeups())
    if isinstance(store, MemoryTaskStore) or not isinstance(store, TurnStore):
        raise StartError("A2A_STORE_URL names memory://, which keeps nothing between processes.")
    try:
        async with store:
            yield store
    except StoreStartError as error:
        raise StartError(str(error)) from None


@asynccontextmanager
async def run_services(settings: Settings, agent: Agent, store: TaskStore, wakeups: Wakeups) -> AsyncIterator[Services]:
    """Open everything in order, and close it in reverse: store, background work, the agent's own resources."""
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(store)
        except StoreStartError as error:
            raise StartError(str(error)) from None
        resources: Any = await stack.enter_async_context(agent.lifespan()) if agent.lifespan is not None else None
        events = EventLog(store, wakeups)
        stack.callback(events.close)
        supervisor = await stack.enter_async_context(Supervisor())
        turn_store = store if isinstance(store, TurnStore) else None
        lease = Lease(worker_name(), settings.lease_ttl)
        runner = Runner(
            agent,
            events,
            supervisor,
            lease=lease,
            cancel_grace=settings.cancel_grace,
            turn_timeout=settings.turn_timeout,
            turn_store=turn_store,
            wakeups=wakeups,
            resources=resources,
            limits=turn_limits(settings),
        )
        push_store = push_config_store(settings, store)
        card = derive_card(agent.card, store, settings.base_url, sends_push=push_store is not None)
        extensions = ExtensionPolicy(card)
        rules, pusher = egress_rules(settings), None
        if push_store is not None:
            webhooks = await stack.enter_async_context(http_webhooks(rules, timeout=settings.push_timeout))
            env = DeliveryEnv(events, webhooks, store.for_owner, retry=settings.push_retry, may_reply=agent.may_reply)
            pusher = Pusher(push_store, supervisor, env, wakeups, lease=lease)
            pusher.start()
        push_configs = PushConfigService(push_store, check_url=rules.check_url, deliveries=pusher)
        sender = Sender(
            events,
            runner,
            push_configs,
            spawn=supervisor.spawn,
            has_leases=turn_store is not None,
            busy_wait=settings.busy_wait,
            may_reply=agent.may_reply,
            input_modes=input_modes(card),
            limits=message_limits(settings),
        )
        canceller = Canceller(events, runner, wait=settings.cancel_wait)
        tasks = TaskService(
            events, sender, canceller, may_reply=agent.may_reply, streaming=bool(card.capabilities.streaming)
        )

        async def drain() -> None:
            services.draining = True
            events.drain()
            await runner.drain(settings.shutdown_grace)
            if pusher is not None:
                await pusher.drain(PUSH_GRACE)
            events.close()

        services = Services(
            store=store,
            tasks=tasks,
            push_configs=push_configs,
            card=CardDocument(card),
            extensions=extensions,
            streams=StreamPolicy(settings.keep_alive, settings.send_timeout, settings.max_streams),
            max_body_bytes=settings.max_body_bytes,
            body_timeout=settings.body_timeout,
            require_version=settings.require_version,
            drain=drain,
        )
        supervisor.forever(LoopWatch().run, "watch the event loop")
        if turn_store is not None:
            recovery = TurnRecovery(
                turn_store,
                store.for_owner,
                events,
                runner,
                policy=agent.recovery,
                extensions=frozenset(extensions.uris),
                interval=min(RECOVERY_INTERVAL, settings.lease_ttl / 3),
            )
            supervisor.forever(wakeups.run, "carry wake-ups")
            supervisor.forever(events.fetch_changes, "fetch changes")
            supervisor.forever(events.poll, "poll tails")
            supervisor.forever(runner.keep_leases, "keep leases")
            supervisor.forever(runner.heed_hints, "heed hints")
            supervisor.forever(recovery.watch, "recover turns")
            keep_sweeping(supervisor, turn_store, settings)
        yield services
        await drain()


def keep_sweeping(supervisor: Supervisor, turn_store: TurnStore, settings: Settings) -> None:
    """Remove what the retention lets go, now and then, if there is one."""
    if settings.retention is not None:
        policy = retention_policy(settings.retention, settings)
        sweeper = Sweeper(turn_store, policy, interval=min(SWEEP_INTERVAL, settings.retention))
        supervisor.forever(sweeper.sweep, "sweep")


def egress_rules(settings: Settings) -> EgressRules:
    """Which webhooks may be called.

    Raises:
        StartError: the setting holds what is neither a host nor a network.
    """
    try:
        return EgressRules.parse(settings.push_allow)
    except ValueError as error:
        raise StartError(f"A2A_PUSH_ALLOW: {error}.") from None


def push_config_store(settings: Settings, store: TaskStore) -> PushConfigStore | None:
    """Where push configurations are kept; `None` if no notifications are to be sent, or can be."""
    if settings.push == "off":
        return None
    if isinstance(store, PushConfigStore) and store.supports_event_log():
        return store
    log.warning("A2A_PUSH is on, but the task store keeps no push configurations; none are sent")
    return None


def worker_name() -> str:
    """Names this process among all that share the store."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def build_app(settings: Settings, *, agent: Agent | None = None, store: TaskStore | None = None) -> FastAPI:
    """The application as the settings describe it; tests may bring their own agent or store.

    Raises:
        StartError: a setting makes a start impossible.
    """
    found = agent or load_agent(settings.agent)
    egress_rules(settings)
    wakeups = build_wakeups(settings)
    kept = store or build_store(settings, wakeups)

    def start() -> AbstractAsyncContextManager[Services]:
        return run_services(settings, found, kept, wakeups)

    return create_app(start, title=found.card.name, version=found.card.version, docs=settings.docs)
