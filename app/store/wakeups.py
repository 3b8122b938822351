"""Hints that a task's log has grown. A hint carries a task id, never data; losing all of them costs latency only."""

import asyncio
from collections.abc import Callable
from typing import Protocol

Listener = Callable[[str | None], None]
"""Called with a task id, or with `None` when any task may have changed. Must not block or raise."""


class Wakeups(Protocol):
    """Carries hints from those who commit to those who follow."""

    connected: bool
    """Whether every process that shares the store is reached now."""

    def publish(self, task_id: str) -> None:
        """Say that a task has changed; called after the commit, never before."""

    def listen(self, listener: Listener, *, remote_only: bool = False) -> Callable[[], None]:
        """Hear of every change from now on, or of those made by other processes only; returns the way to stop."""

    async def run(self) -> None:
        """Do what carrying hints to other processes takes, until cancelled."""


class LocalWakeups:
    """Within one process."""

    connected = True

    def __init__(self) -> None:
        self._listeners: dict[int, Listener] = {}
        self._next = 0

    def publish(self, task_id: str | None) -> None:
        """Call every listener, at once."""
        for listener in list(self._listeners.values()):
            listener(task_id)

    def listen(self, listener: Listener, *, remote_only: bool = False) -> Callable[[], None]:
        """Hear of every change from now on; there are none from elsewhere."""
        if remote_only:
            return lambda: None
        number = self._next
        self._next += 1
        self._listeners[number] = listener

        def stop() -> None:
            self._listeners.pop(number, None)

        return stop

    async def run(self) -> None:
        """Nothing is to be done."""
        await asyncio.Future()
