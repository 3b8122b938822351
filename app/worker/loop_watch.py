"""Notices an event loop that somebody blocks."""

import asyncio
from typing import Final

from app.telemetry import get_logger

log = get_logger(__name__)

INTERVAL: Final = 0.25
"""Seconds between looks."""
BLOCKED: Final = 0.5
"""Seconds of delay that are worth a line in the log."""


class LoopWatch:
    """Measures how late the event loop wakes who asked to be woken."""

    async def run(self) -> None:
        """Look for ever."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + INTERVAL
            await asyncio.sleep(INTERVAL)
            lag = loop.time() - due
            if lag > BLOCKED:
                log.warning(
                    "the event loop was blocked: a handler must await, and do long work in asyncio.to_thread",
                    seconds=round(lag, 2),
                )
