"""Push configurations of `MemoryTaskStore`."""

from collections.abc import Collection, Sequence

from app.protocol.identity import Owner
from app.protocol.push import TaskPushNotificationConfig
from app.store.memory_space import Space
from app.store.push_configs import ConfigKey, DeliveryReport, PushDelivery
from app.store.values import Lease


class MemoryPushConfigs:
    """The `PushConfigStore` of a space; no method suspends, so each is atomic."""

    _space: Space

    async def put_push_config(self, owner: Owner, config: TaskPushNotificationConfig, after: int | None = None) -> bool:
        """Create or replace a configuration."""
        record = self._space.owned(owner, config.task_id or "")
        if record is None:
            return False
        self._space.push.put(config, record.head if after is None else after, ended=record.ended)
        return True

    async def get_push_config(self, owner: Owner, task_id: str, config_id: str) -> TaskPushNotificationConfig | None:
        """The configuration; a copy."""
        found = self._space.push.of_task(task_id).get(config_id)
        if found is None or self._space.owned(owner, task_id) is None:
            return None
        return found.config.model_copy(deep=True)

    async def list_push_configs(self, owner: Owner, task_id: str) -> Sequence[TaskPushNotificationConfig] | None:
        """All configurations of the task, by id; copies."""
        if self._space.owned(owner, task_id) is None:
            return None
        found = sorted(self._space.push.of_task(task_id).items())
        return [kept.config.model_copy(deep=True) for _, kept in found]

    async def delete_push_config(self, owner: Owner, task_id: str, config_id: str) -> bool:
        """Remove a configuration."""
        if self._space.owned(owner, task_id) is None:
            return False
        self._space.push.delete((task_id, config_id))
        return True

    async def claim_deliveries(
        self, lease: Lease, *, fresh: int, failed: int, task_ids: Collection[str] | None = None
    ) -> Sequence[PushDelivery]:
        """Claim what is behind and due."""
        space, now = self._space, self._space.monotonic()
        room = {False: fresh, True: failed}
        claimed = []
        due = [
            kept
            for (task_id, _), kept in space.push.active.items()
            if kept.due <= now and kept.claimed_until <= now and (task_ids is None or task_id in task_ids)
        ]
        for kept in sorted(due, key=lambda kept: kept.due):
            record = space.find(kept.config.task_id or "")
            if record is None or kept.position >= record.head or not room[kept.failures > 0]:
                continue
            room[kept.failures > 0] -= 1
            kept.claimed_by, kept.claimed_until = lease.worker, now + lease.ttl
            config = kept.config.model_copy(deep=True)
            claimed.append(PushDelivery(record.owner, config, kept.position, kept.failures, kept.revision))
        return claimed

    async def record_deliveries(self, lease: Lease, reports: Sequence[DeliveryReport]) -> frozenset[ConfigKey]:
        """Store how far claimed configurations have come."""
        now, lost = self._space.monotonic(), set()
        for report in reports:
            kept = self._space.push.find(report.key)
            if kept is None or kept.claimed_by != lease.worker:
                lost.add(report.key)
                continue
            if not report.hold:
                kept.claimed_until = 0.0
            if kept.revision != report.revision:
                lost.add(report.key)
                continue
            kept.position, kept.failures = report.position, report.failures
            if report.hold:
                kept.claimed_until = now + lease.ttl
            else:
                kept.due = now + report.delay
            if report.state != "active":
                self._space.push.active.pop(report.key, None)
        return frozenset(lost)
