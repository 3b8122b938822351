"""`python -m benchmarks.appends`: what the stores do without a server around them. Prints one Markdown table.

Appends of 50 tasks at once, sends of 16 clients, one task that grows, pages of a listing that grows.
"""

import argparse
import asyncio
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from app.protocol import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    fold,
)
from app.protocol.events import Update, update_of, utc_now
from app.protocol.requests import ListTasksRequest
from app.store.base import Claimed, Commit, Lease, NewTask, TaskStore
from app.store.memory import MemoryTaskStore
from app.store.sql import SqlTaskStore
from benchmarks.databases import STORES, OpenStore, store_source
from benchmarks.report import STORE_NAMES, machine

LEASE = Lease("benchmark", 60.0)
TASKS = 50
CLIENTS = 16
TEXT = "hello hello hello"
PAGE = 100


@dataclass(frozen=True)
class Scale:
    """How much to do."""

    seconds: float = 3.0
    warm_up: float = 0.5
    short: int = 200
    long: int = 20_000
    few: int = 1_000
    many: int = 100_000
    pages: int = 10
    rounds: int = 5


QUICK = Scale(seconds=1.0, warm_up=0.3, long=4_000, many=10_000, rounds=3)


class Row(NamedTuple):
    """One line of the table."""

    store: str
    work: str
    figures: str


class Writer:
    """A turn as the runner has it."""

    def __init__(self, store: TaskStore, claimed: Claimed) -> None:
        self.store = store
        self.task = claimed.task
        self.epoch = claimed.epoch
        self.head = claimed.head
        self._chunk: Update | None = None

    @classmethod
    async def begin(cls, store: TaskStore) -> "Writer":
        claimed = await store.create_task(NewTask(new_task(), lease=LEASE))
        assert isinstance(claimed, Claimed)
        return cls(store, claimed)

    def chunk(self) -> Update:
        """One more piece of the answer. Its event is made once: what making it costs is not the store's."""
        if self._chunk is None:
            artifact = Artifact(artifact_id="answer", parts=[Part(text=TEXT)])
            event = TaskArtifactUpdateEvent(
                task_id=self.task.id, context_id=self.task.context_id, artifact=artifact, append=True
            )
            self._chunk = update_of(event)
        fold(self.task, self._chunk.event)
        return self._chunk

    def status(self, state: TaskState) -> Update:
        status = TaskStatus(state=state, timestamp=utc_now())
        event = TaskStatusUpdateEvent(task_id=self.task.id, context_id=self.task.context_id, status=status)
        fold(self.task, event)
        return update_of(event)

    async def commit(self, *updates: Update) -> None:
        self.head = await self.store.commit(Commit(self.task.id, self.epoch, updates, self.task, self.head))


def new_task() -> Task:
    message = Message(message_id=str(uuid.uuid4()), role=Role.USER, parts=[Part(text="hello")])
    return Task(
        id=str(uuid.uuid4()),
        context_id=str(uuid.uuid4()),
        status=TaskStatus(state=TaskState.SUBMITTED, timestamp=utc_now()),
        history=[message],
    )


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[TaskStore]:
    store = MemoryTaskStore(max_tasks=1_000_000) if url.startswith("memory:") else SqlTaskStore(url)
    async with store:
        yield store


async def at_once(count: int, work: Callable[[], Awaitable[None]], scale: Scale) -> tuple[float, list[float]]:
    """Repeat work in `count` coroutines; works a second, and the time each took after the warm-up."""
    times: list[float] = []
    begin = time.perf_counter() + scale.warm_up
    end = begin + scale.seconds

    async def repeat() -> None:
        while (started := time.perf_counter()) < end:
            await work()
            if started >= begin:
                times.append(time.perf_counter() - started)

    await asyncio.gather(*(repeat() for _ in range(count)))
    return len(times) / scale.seconds, times


async def appends(store: TaskStore, scale: Scale, each: int) -> str:
    writers = [await Writer.begin(store) for _ in range(TASKS)]
    free = iter(range(TASKS))
    mine: dict[asyncio.Task[object], Writer] = {}

    async def work() -> None:
        current = asyncio.current_task()
        assert current is not None
        writer = mine.get(current)
        if writer is None:
            writer = mine[current] = writers[next(free)]
        await writer.commit(*[writer.chunk() for _ in range(each)])

    rate, times = await at_once(TASKS, work, scale)
    return f"{rate * each:,.0f} events/s; a commit {spread(times)}"


async def sends(store: TaskStore, scale: Scale) -> str:
    async def work() -> None:
        writer = await Writer.begin(store)
        await writer.commit(writer.status(TaskState.WORKING), writer.chunk(), writer.status(TaskState.COMPLETED))

    rate, times = await at_once(CLIENTS, work, scale)
    return f"{rate:,.0f}/s, {1e6 / max(rate, 1e-9):,.0f} µs each; one {spread(times)}"


async def growth(store: TaskStore, scale: Scale) -> str:
    async def cost(count: int) -> float:
        """Microseconds an event, in commits of ten."""
        writer = await Writer.begin(store)
        started = time.perf_counter()
        for _ in range(count // 10):
            await writer.commit(*[writer.chunk() for _ in range(10)])
        return (time.perf_counter() - started) / count * 1e6

    await cost(scale.short)
    # The short task is repeated to take as long as the long one: what it costs is a matter of chance otherwise.
    short = median([await cost(scale.short) for _ in range(scale.rounds * 10)])
    long = await cost(scale.long)
    return f"{short:.1f} µs an event at {scale.short:,}, {long:.1f} at {scale.long:,}: {long / short:.2f} ×"


async def fill(store: TaskStore, count: int) -> None:
    """Save tasks that ended, a thousand at a time."""
    for start in range(0, count, 1_000):
        tasks = []
        for _ in range(start, min(count, start + 1_000)):
            task = new_task()
            task.status = TaskStatus(state=TaskState.COMPLETED, timestamp=utc_now())
            tasks.append(task)
        await asyncio.gather(*(store.save(task) for task in tasks))


async def page_time(store: TaskStore, scale: Scale) -> float:
    """Milliseconds a page after the first."""
    times: list[float] = []
    for _ in range(scale.rounds):
        params = ListTasksRequest(page_size=PAGE)
        token = (await store.list(params)).next_page_token
        for _ in range(min(scale.pages, scale.few // PAGE - 1)):
            started = time.perf_counter()
            page = await store.list(params.model_copy(update={"page_token": token}))
            times.append(time.perf_counter() - started)
            assert len(page.tasks) == PAGE
            token = page.next_page_token
            if not token:
                break
    return median(times) * 1e3


async def pages(store: TaskStore, scale: Scale) -> str:
    await fill(store, scale.few)
    few = await page_time(store, scale)
    await fill(store, scale.many - scale.few)
    many = await page_time(store, scale)
    return f"{few:.2f} ms at {scale.few:,} tasks, {many:.2f} at {scale.many:,}: {many / few:.2f} ×"


def spread(times: Sequence[float]) -> str:
    ordered = sorted(times)
    p50, p99 = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return f"p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms"


Measure = Callable[[TaskStore, Scale], Awaitable[str]]
WORKS: dict[str, tuple[str, Measure]] = {
    "one": (f"appends, {TASKS} tasks, 1 event a commit", lambda store, scale: appends(store, scale, 1)),
    "ten": (f"appends, {TASKS} tasks, 10 events a commit", lambda store, scale: appends(store, scale, 10)),
    "sends": (f"create and finish a task, {CLIENTS} at once", sends),
    "growth": ("one task that grows", growth),
    "pages": (f"pages of {PAGE} after the first", pages),
}


def measure(store_name: str, open_store: OpenStore, works: Iterable[str], scale: Scale) -> Iterable[Row]:
    for name in works:
        title, work = WORKS[name]

        async def run(url: str, work: Measure = work) -> str:
            async with opened(url) as store:
                return await work(store, scale)

        print(f"{store_name}: {title}", file=sys.stderr)
        with open_store() as url:
            try:
                import uvloop  # noqa: PLC0415 - not on every system
            except ImportError:
                figures = asyncio.run(run(url))
            else:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    figures = runner.run(run(url))
        yield Row(STORE_NAMES[store_name], title, figures)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.appends", description=__doc__)
    parser.add_argument("--store", choices=(*STORES, "all"), action="append", help="repeatable; sqlite and postgres")
    parser.add_argument("--only", choices=list(WORKS), action="append", help="repeatable")
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--output", type=Path, metavar="FILE.md", help="write the table there, too")
    options = parser.parse_args()
    chosen = options.store or ["sqlite", "postgres"]
    scale = QUICK if options.quick else Scale()
    lines = [machine(), "", "| store | work | |", "|---|---|---|"]
    for store_name in [name for name in STORES if name in chosen or "all" in chosen]:
        with store_source(store_name) as open_store:
            rows = measure(store_name, open_store, options.only or list(WORKS), scale)
            lines.extend(f"| {' | '.join(row)} |" for row in rows)
    text = "\n".join(lines)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
