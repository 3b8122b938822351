"""What `MemoryTaskStore` keeps of push configurations."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.protocol.push import TaskPushNotificationConfig
from app.store.push_configs import MAX_PUSH_CONFIGS, ConfigKey, TooManyPushConfigsError, config_key


@dataclass(slots=True)
class KeptConfig:
    """A configuration, how far it was delivered, and who delivers."""

    config: TaskPushNotificationConfig
    position: int
    revision: int = 1
    failures: int = 0
    due: float = 0.0
    claimed_by: str | None = None
    claimed_until: float = 0.0


class KeptConfigs:
    """All configurations of a space, by task."""

    def __init__(self) -> None:
        self.limit = MAX_PUSH_CONFIGS
        """Configurations of a task at most."""
        self.active: dict[ConfigKey, KeptConfig] = {}
        """Those that have or will have something to be told."""
        self._by_task: dict[str, dict[str, KeptConfig]] = {}

    def of_task(self, task_id: str) -> Mapping[str, KeptConfig]:
        """Those of a task, by id."""
        return self._by_task.get(task_id, {})

    def find(self, key: ConfigKey) -> KeptConfig | None:
        """One of them."""
        return self.of_task(key[0]).get(key[1])

    def check(self, config: TaskPushNotificationConfig | None) -> None:
        """Raise `TooManyPushConfigsError` if `put` would."""
        if config is not None and self.find(config_key(config)) is None:
            task_id, _ = config_key(config)
            if len(self.of_task(task_id)) >= self.limit:
                raise TooManyPushConfigsError(self.limit)

    def put(self, config: TaskPushNotificationConfig | None, after: int, *, ended: bool = False) -> None:
        """Create or replace one of a task that is there; `after` is where a new one begins."""
        if config is None:
            return
        self.check(config)
        task_id, config_id = key = config_key(config)
        found = self.find(key)
        if found is None:
            found = self._by_task.setdefault(task_id, {})[config_id] = KeptConfig(config, after)
        elif key not in self.active:
            found.position = after
        found.config = config.model_copy(deep=True)
        found.revision, found.failures, found.due = found.revision + 1, 0, 0.0
        if not ended:
            self.active[key] = found

    def delete(self, key: ConfigKey) -> None:
        """Forget one; absent is no error."""
        self.active.pop(key, None)
        of_task = self._by_task.get(key[0], {})
        of_task.pop(key[1], None)
        if not of_task:
            self._by_task.pop(key[0], None)

    def forget(self, task_id: str) -> None:
        """Forget all of a task."""
        for config_id in list(self.of_task(task_id)):
            self.delete((task_id, config_id))
