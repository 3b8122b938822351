"""Lets tasks go that have ended long ago, where the settings ask for it."""

import asyncio

from app.protocol.errors import UnavailableError
from app.store.base import RetentionPolicy
from app.store.turns import TurnStore
from app.telemetry import get_logger

log = get_logger(__name__)


class Sweeper:
    """Purges by a policy, now and then."""

    def __init__(self, store: TurnStore, policy: RetentionPolicy, *, interval: float) -> None:
        self._store = store
        self._policy = policy
        self._interval = interval

    async def sweep(self) -> None:
        """Purge every `interval` seconds, for ever."""
        while True:
            try:
                purged = await self._store.purge(self._policy)
            except UnavailableError as error:
                log.warning("old tasks could not be purged", error=str(error))
            else:
                if purged.tasks or purged.keys:
                    log.info("purged", tasks=purged.tasks, keys=purged.keys)
            await asyncio.sleep(self._interval)
