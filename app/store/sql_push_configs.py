"""The `PushConfigStore` of the SQL store."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeVar

from app.protocol.identity import Owner
from app.protocol.push import TaskPushNotificationConfig
from app.store.push_configs import ConfigKey, DeliveryReport, PushDelivery, config_key
from app.store.scripts import Script, fetch
from app.store.sql_push import PushStatements, claim_configs, delete_config, put_config, record_reports
from app.store.tables import config_digest, owner_digest
from app.store.values import Lease, nameable
from app.store.wakeups import Wakeups

T = TypeVar("T")


class _Core(Protocol):
    """What it needs of the store."""

    push: PushStatements
    max_push_configs: int
    wakeups: Wakeups

    async def read(self, script: Callable[[], Script[T]]) -> T:
        """Run a script that only reads."""

    async def repeatable(self, script: Callable[[], Script[T]]) -> T:
        """Run a transaction that may run twice without harm."""


class SqlPushConfigs:
    """Push configurations, each a row; every method is one transaction."""

    _configs: _Core

    async def put_push_config(self, owner: Owner, config: TaskPushNotificationConfig, after: int | None = None) -> bool:
        """Create or replace a configuration; durable on return."""
        core = self._configs
        if not nameable(config_key(config)[0]):
            return False
        digest, limit = owner_digest(owner), core.max_push_configs
        stored = await core.repeatable(lambda: put_config(core.push, digest, config, after, limit))
        return self._publish(config_key(config)[0], stored)

    async def get_push_config(self, owner: Owner, task_id: str, config_id: str) -> TaskPushNotificationConfig | None:
        """The configuration."""
        core = self._configs
        if not nameable(task_id):
            return None
        rows = await core.read(lambda: fetch(core.push.get, task_id, owner_digest(owner), config_digest(config_id)))
        return _read(rows[0][0]) if rows else None

    async def list_push_configs(self, owner: Owner, task_id: str) -> Sequence[TaskPushNotificationConfig] | None:
        """All configurations of the task, by id."""
        core, digest = self._configs, owner_digest(owner)
        if not nameable(task_id):
            return None

        def script() -> Script[list[TaskPushNotificationConfig] | None]:
            if not (yield from fetch(core.push.seen, task_id, digest)):
                return None
            rows = yield from fetch(core.push.listed, task_id, digest)
            return sorted((_read(data) for (data,) in rows), key=config_key)

        return await core.read(script)

    async def delete_push_config(self, owner: Owner, task_id: str, config_id: str) -> bool:
        """Remove a configuration; durable on return."""
        core = self._configs
        if not nameable(task_id):
            return False
        key = task_id, config_id
        found = await core.repeatable(lambda: delete_config(core.push, owner_digest(owner), key))
        return self._publish(task_id, found)

    async def claim_deliveries(
        self, lease: Lease, *, fresh: int, failed: int, task_ids: Collection[str] | None = None
    ) -> Sequence[PushDelivery]:
        """Claim what is behind and due; by the database's clock.

        What a claim got whose answer was lost is free again when the lease is over.
        """
        core = self._configs
        return await core.repeatable(lambda: claim_configs(core.push, lease, fresh, failed, task_ids))

    async def record_deliveries(self, lease: Lease, reports: Sequence[DeliveryReport]) -> frozenset[ConfigKey]:
        """Store how far claimed configurations have come, in one statement."""
        core = self._configs
        return await core.repeatable(lambda: record_reports(core.push, lease, reports))

    def _publish(self, task_id: str, changed: bool) -> bool:
        # Other processes may be delivering to what has just been changed.
        if changed:
            self._configs.wakeups.publish(task_id)
        return changed


def _read(data: bytes) -> TaskPushNotificationConfig:
    return TaskPushNotificationConfig.model_validate_json(bytes(data))
