"""Hints that a task's log has grown. A hint carries a task id, never data; losing all of them costs latency only."""

from collections.abc import Callable
from typing import Protocol

Listener = Callable[[str | None], None]
"""Called with a task id, or with `None` when any task may have changed. Must not block or raise."""


class Wakeups(Protocol):
    """Carries hints from those who commit to those who follow."""

    def publish(self, task_id: str) -> None:
        """Say that a task has changed; called after the commit, never before."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Hear of every change from now on; returns the way to stop."""


class LocalWakeups:
    """Within one process."""

    def __init__(self) -> None:
        self._listeners: dict[int, Listener] = {}
        self._next = 0

    def publish(self, task_id: str) -> None:
        """Call every listener, at once."""
        for listener in list(self._listeners.values()):
            listener(task_id)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Hear of every change from now on; returns the way to stop."""
        number = self._next
        self._next += 1
        self._listeners[number] = listener

        def stop() -> None:
            self._listeners.pop(number, None)

        return stop
