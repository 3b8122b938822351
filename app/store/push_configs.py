"""What a store offers for push notifications: configurations, how far each was delivered, and who delivers."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, runtime_checkable

from app.protocol.identity import Owner
from app.protocol.push import TaskPushNotificationConfig
from app.store.values import Lease

MAX_PUSH_CONFIGS: Final = 20
"""Configurations of a task, where a store is not told otherwise."""

DeliveryState = Literal["active", "finished", "disabled"]
"""`finished`: the task's last entry was delivered. `disabled`: the receiver said that it is gone."""

ConfigKey = tuple[str, str]
"""Task id and configuration id."""


class TooManyPushConfigsError(Exception):
    """The task has as many configurations as it may; nothing was stored."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a task may have at most {limit} push notification configurations")
        self.limit = limit


def config_key(config: TaskPushNotificationConfig) -> ConfigKey:
    """What a configuration is found by; both ids are there once a server has taken it."""
    return config.task_id or "", config.id or ""


@dataclass(frozen=True, slots=True)
class PushDelivery:
    """A configuration that is behind its task's log, claimed for one worker."""

    owner: Owner
    config: TaskPushNotificationConfig
    """With its credentials."""
    position: int
    """The newest entry that was delivered."""
    failures: int
    """Deliveries that failed since the last that did not."""
    revision: int
    """Raised whenever the configuration is replaced."""


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """How far the holder of a claim has come, and whether it keeps the claim."""

    key: ConfigKey
    revision: int
    position: int
    failures: int
    hold: bool
    """Whether the claim is kept, for the whole time of the lease from now on; else it ends now."""
    delay: float = 0.0
    """Seconds before anybody may claim it again."""
    state: DeliveryState = "active"


@runtime_checkable
class PushConfigStore(Protocol):
    """Implemented by the bundled stores, on the store itself; sees every owner.

    Configurations go with their task. Each has a cursor into the task's log. What `NewTask` and `NewTurn` bring is
    stored with them, in the same transaction, its cursor before the turn's first entry.
    """

    async def put_push_config(self, owner: Owner, config: TaskPushNotificationConfig, after: int | None = None) -> bool:
        """Create or replace a configuration, which has both ids; `False` if the owner has no such task.

        A new one begins after the position `after`, or else at the head of the log. One that is replaced goes on where
        it was; if it had been disabled or was finished it begins as a new one does. Durable on return.

        Raises:
            TooManyPushConfigsError: it is new, and the task has as many as it may.
        """

    async def get_push_config(self, owner: Owner, task_id: str, config_id: str) -> TaskPushNotificationConfig | None:
        """The configuration with its credentials; `None` if this owner has none of these ids."""

    async def list_push_configs(self, owner: Owner, task_id: str) -> Sequence[TaskPushNotificationConfig] | None:
        """All configurations of the task, by id; `None` if the owner has no such task."""

    async def delete_push_config(self, owner: Owner, task_id: str, config_id: str) -> bool:
        """Remove a configuration; absent is no error. `False` if the owner has no such task."""

    async def claim_deliveries(
        self, lease: Lease, *, fresh: int, failed: int, task_ids: Collection[str] | None = None
    ) -> Sequence[PushDelivery]:
        """Claim configurations that are behind, due, and claimed by nobody, those due longest first.

        At most `fresh` that did not fail last time and `failed` that did. `task_ids` looks at these tasks only. Of
        concurrent calls exactly one gets a configuration; it has it until the lease is over, unless it prolongs it.
        """

    async def record_deliveries(self, lease: Lease, reports: Sequence[DeliveryReport]) -> frozenset[ConfigKey]:
        """Store how far claimed configurations have come; prolong claims or end them. All in one statement.

        Returns those that the worker no longer holds, or that were replaced: of these nothing was stored. The claim on
        one that was replaced ends when it is reported without `hold`.
        """
