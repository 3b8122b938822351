"""Owns every background task of the process: nothing runs that it did not start, nothing outlives it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self

from app.telemetry import get_logger

log = get_logger(__name__)

RESTART_DELAY: Final = 1.0
"""Seconds before a background loop that failed begins again."""


class Supervisor:
    """An asynchronous context: entered before the first background task, left after the last has ended."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._loops: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._loops:
            task.cancel()
        await self._group.__aexit__(kind, error, traceback)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run something once. What it raises is logged and ends nothing else."""
        return self._group.create_task(_guarded(work, name), name=name)

    def forever(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Run a loop until the end of the process; after a fault it is logged and begun again."""
        self._loops.append(self._group.create_task(_restarted(work, name), name=name))


async def _guarded(work: Coroutine[Any, Any, None], name: str) -> None:
    try:
        await work
    except Exception:
        log.exception("a background task failed", task=name)


async def _restarted(work: Callable[[], Awaitable[None]], name: str) -> None:
    while True:
        try:
            await work()
        except Exception:
            log.exception("a background loop failed and begins again", task=name)
        await asyncio.sleep(RESTART_DELAY)
