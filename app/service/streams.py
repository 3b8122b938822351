"""A stream as a binding gets it: entries in order, and how it began."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal

from app.protocol.events import encode_event
from app.protocol.lifecycle import trim_history
from app.protocol.types import Task
from app.store.base import LogEntry

Resume = Literal["replay", "snapshot"]


@dataclass(frozen=True, slots=True)
class EventStream:
    """Events of one task. Whatever refuses a stream was raised before there was one."""

    entries: AsyncIterator[Sequence[LogEntry]]
    """Batches in log order; as many at once as there are."""
    has_ids: bool = True
    """Whether positions are those of the log, and so may be resumed from."""
    resume: Resume | None = None
    """How a stream that was asked to resume does so."""
    replayed: bool = False
    """Whether it attaches to a turn that an earlier send of the same key began."""


def task_entry(seq: int, task: Task, history_length: int | None = None) -> LogEntry:
    """A frame that shows the whole task as of a position."""
    task = trim_history(task, history_length)
    return LogEntry(seq, encode_event(task), task)


async def stream(
    first: Sequence[LogEntry], rest: AsyncIterator[Sequence[LogEntry]], history_length: int | None = None
) -> AsyncIterator[Sequence[LogEntry]]:
    """Put entries before a follower's, and trim the history of every Task among them."""
    if first:
        yield [_trimmed(entry, history_length) for entry in first] if history_length is not None else first
    async for batch in rest:
        yield [_trimmed(entry, history_length) for entry in batch] if history_length is not None else batch


async def undecided(entries: AsyncIterator[Sequence[LogEntry]]) -> AsyncGenerator[Sequence[LogEntry]]:
    """Hold back the Task that begins a stream until the next entry tells what it is: a bare Message comes alone."""
    held: list[LogEntry] | None = []
    async for batch in entries:
        if held is None:
            yield batch
            continue
        held += batch
        if len(held) > 1:
            yield held[1:] if held[1].is_reply else held
            held = None


def _trimmed(entry: LogEntry, history_length: int | None) -> LogEntry:
    if entry.state is None or not isinstance(entry.event, Task):
        return entry
    return task_entry(entry.seq, entry.event, history_length)
