"""What the service needs of whoever runs turns; the worker room implements it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.protocol.identity import Owner
from app.protocol.types import Message, Task
from app.store.base import Lease, TaskStore


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the owner, the store bound to them, and the extensions that the request activated."""

    owner: Owner
    store: TaskStore
    extensions: frozenset[str] = frozenset()
    """URIs; all of them are on the card."""


@dataclass(frozen=True, slots=True)
class BegunTurn:
    """A turn that has been claimed and is to be run."""

    caller: Caller
    task: Task
    """The runner's own copy."""
    message: Message
    epoch: int
    head: int
    """The newest position of the log; 0 where the store keeps none."""
    attempt: int = 1
    log_bytes: int = 0
    """Bytes of all entries of the log there ever were; 0 where the store does not count them."""
    accepted_output_modes: Sequence[str] = ()


class TurnRunner(Protocol):
    """Runs turns apart from the requests that began them."""

    @property
    def lease(self) -> Lease:
        """What this process claims turns with."""

    def start(self, turn: BegunTurn) -> None:
        """Run a turn; returns at once."""

    def cancel(self, task_id: str) -> bool:
        """Ask the turn of a task to stop, if it runs here and has not ended; says whether it was asked."""

    def runs(self, task_id: str) -> bool:
        """Whether a turn of the task runs here."""

    def answers(self, task_id: str) -> Message | None:
        """The message that a turn which runs here answers."""

    async def finished(self, task_id: str, timeout: float) -> None:
        """Return when no turn of the task runs here, or after `timeout` seconds."""
