"""What a store offers beyond one owner's view: leases over turns, batched reads, retention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from app.protocol.identity import Owner
from app.store.base import Claimed, Lease, LogEntry, Purged, RetentionPolicy


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a renewal found."""

    lost: frozenset[str] = frozenset()
    """Tasks whose lease is no longer held under that epoch."""
    cancelled: frozenset[str] = frozenset()
    """Tasks held, whose cancellation has been asked for."""


@dataclass(frozen=True, slots=True)
class StrandedTurn:
    """A turn that nobody runs: SUBMITTED or WORKING, its lease past or never taken."""

    owner: Owner
    task_id: str
    epoch: int
    attempt: int
    """How many runs were lost or are still to begin: 1 for a turn lost in its first run."""


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of a log, as a batched read finds it."""

    entries: Sequence[LogEntry]
    earliest_seq: int
    last_seq: int
    cancelled: bool = field(default=False)
    """Whether cancellation of the running turn has been asked for."""


@runtime_checkable
class TurnStore(Protocol):
    """Implemented by the bundled stores, on the store itself; sees every owner."""

    async def renew_leases(self, turns: Mapping[str, int], lease: Lease) -> Renewal:
        """Prolong the leases of a worker's turns (task id → epoch), all in one statement."""

    async def stranded_turns(self, limit: int) -> Sequence[StrandedTurn]:
        """At most `limit` turns that nobody runs, oldest lease first."""

    async def take_over(self, turn: StrandedTurn, lease: Lease) -> Claimed | None:
        """Take a stranded turn: epoch + 1, attempt + 1. `None` if somebody else did, or it is no longer stranded.

        `Claimed.first_seq` is that of the turn, `.attempt` the number of the run that begins now.
        """

    async def release_lease(self, task_id: str, epoch: int) -> None:
        """End the lease now. A stale epoch is no error."""

    async def read_tails(self, cursors: Mapping[str, int], limit: int) -> Mapping[str, LogTail]:
        """The tail of each task (id → position, exclusive), at most `limit` entries; unknown tasks are left out."""

    async def purge(self, policy: RetentionPolicy) -> Purged:
        """Remove what the policy lets go, in batches."""
