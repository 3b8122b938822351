"""Any sequence of operations has the same visible result on every store."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.protocol import Owner, TaskState, fold, to_dict
from app.protocol.events import update_of
from app.protocol.requests import ListTasksRequest
from app.store.base import Claimed, Commit, EventLogGapError, FencedError, IdempotencyKey, Lease, NewTask, NewTurn
from app.store.memory import MemoryTaskStore
from app.store.sql import SqlTaskStore
from tests.store.values import T0, Turn, a_message, a_task, chunk, status

_examples = itertools.count(1)
DEAD = Lease("worker-1", 0.0)
LIVE = Lease("worker-1", 3_600.0)
TASKS = st.sampled_from("ab")
KEYS = st.sampled_from(["none", "key-one", "key-two"])
MESSAGES = st.sampled_from(["m-1", "m-2"])
LEASES = st.sampled_from([DEAD, LIVE])
STATES = st.sampled_from(
    [TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED]
)
STEPS = st.one_of(
    st.tuples(st.just("create"), TASKS, KEYS, MESSAGES, LEASES),
    st.tuples(st.just("begin"), TASKS, KEYS, MESSAGES, LEASES),
    st.tuples(st.just("write"), TASKS, st.integers(1, 3), st.booleans()),
    st.tuples(st.just("status"), TASKS, STATES, st.sampled_from([None, "said"])),
    st.tuples(st.just("append"), TASKS, st.integers(1, 6)),
    st.tuples(st.just("save"), TASKS, STATES),
    st.tuples(st.just("insert"), TASKS),
    st.tuples(st.just("delete"), TASKS),
    st.tuples(st.just("cancel"), TASKS),
    st.tuples(st.just("release"), TASKS),
    st.tuples(st.just("claim"), KEYS, MESSAGES, TASKS),
    st.tuples(st.just("free"), KEYS),
    st.tuples(st.just("stranger"), TASKS),
)


class World:
    """One store under a sequence of steps; what it shows, with the ids of this example taken out."""

    def __init__(self, root: Any, example: int) -> None:
        self.root = root
        self.prefix = f"example-{example}-"
        self.store = root.for_owner(Owner(f"tenant-{example}", "s"))
        self.stranger = root.for_owner(Owner(f"tenant-{example}", "other"))
        self.turns: dict[str, Turn] = {}

    def id(self, name: str) -> str:
        return self.prefix + name

    async def step(self, step: tuple[Any, ...]) -> str:
        try:
            result = await getattr(self, f"do_{step[0]}")(*step[1:])
        except (FencedError, EventLogGapError) as error:
            result = type(error).__name__
        return str(result).replace(self.prefix, "")

    async def view(self) -> str:
        """Everything a caller can see."""
        seen: list[Any] = [await self.store.count()]
        for name in "ab":
            task = await self.store.get(self.id(name))
            snapshot = await self.store.snapshot(self.id(name))
            seen.append(None if task is None else to_dict(task))
            seen.append(None if snapshot is None else (to_dict(snapshot.task), snapshot.seq, snapshot.running))
            seen.append([(entry.seq, entry.data) for entry in await self.store.read_events(self.id(name), 0, 100)])
            seen.append(await self.store.earliest_event_seq(self.id(name)))
        seen.append(to_dict(await self.store.list(ListTasksRequest(include_artifacts=True))))
        return str(seen).replace(self.prefix, "")

    def message(self, message_id: str) -> Any:
        return a_message(message_id).model_copy(update={"message_id": message_id})

    def key(self, key: str, message_id: str) -> IdempotencyKey | None:
        return None if key == "none" else IdempotencyKey(key, message_id)

    def note(self, name: str, outcome: Any) -> Any:
        if not isinstance(outcome, Claimed):
            return outcome
        self.turns[name] = Turn(self.store, outcome)
        return (outcome.epoch, outcome.first_seq, outcome.head, outcome.attempt, to_dict(outcome.task))

    async def do_create(self, name: str, key: str, message_id: str, lease: Lease) -> Any:
        task = a_task(id=self.id(name), history=[self.message(message_id)])
        return self.note(name, await self.store.create_task(NewTask(task, self.key(key, message_id), lease)))

    async def do_begin(self, name: str, key: str, message_id: str, lease: Lease) -> Any:
        turn = NewTurn(self.id(name), self.message(message_id), key=self.key(key, message_id), lease=lease)
        return self.note(name, await self.store.begin_turn(turn))

    async def do_write(self, name: str, count: int, append: bool) -> Any:
        if name not in self.turns:
            return "no turn"
        turn = self.turns[name]
        events = [chunk(turn.task, f"piece {number}", append=append) for number in range(count)]
        return await self.commit(turn, events)

    async def do_status(self, name: str, state: TaskState, text: str | None) -> Any:
        return (
            "no turn"
            if name not in self.turns
            else await self.commit(self.turns[name], [status(self.turns[name].task, state, text)])
        )

    async def commit(self, turn: Turn, events: list[Any]) -> int:
        """A commit as the runner makes it; one that was refused leaves the turn as it was."""
        task = turn.task.model_copy(deep=True)
        for event in events:
            task = fold(task, event)
        head: int = await self.store.commit(Commit(task.id, turn.epoch, [update_of(event) for event in events], task))
        turn.task, turn.head = task, head
        return head

    async def do_append(self, name: str, seq: int) -> Any:
        return await self.store.append_event(self.id(name), seq, chunk(a_task(id=self.id(name)), f"at {seq}"))

    async def do_save(self, name: str, state: TaskState) -> Any:
        return await self.store.save(a_task(state, T0, id=self.id(name), history=[self.message("saved")]))

    async def do_insert(self, name: str) -> Any:
        return await self.store.insert_if_absent(a_task(id=self.id(name), history=[self.message("inserted")]))

    async def do_delete(self, name: str) -> Any:
        return await self.store.delete(self.id(name))

    async def do_cancel(self, name: str) -> Any:
        outcome = await self.store.begin_cancel(self.id(name), DEAD)
        return (outcome.epoch, outcome.head) if isinstance(outcome, Claimed) else outcome

    async def do_release(self, name: str) -> Any:
        return await self.root.release_lease(self.id(name), self.turns[name].epoch) if name in self.turns else None

    async def do_claim(self, key: str, message_id: str, name: str) -> Any:
        return None if key == "none" else await self.store.claim_idempotency_key(key, message_id, self.id(name))

    async def do_free(self, key: str) -> Any:
        return None if key == "none" else await self.store.release_idempotency_key(key)

    async def do_stranger(self, name: str) -> Any:
        seen = (await self.stranger.get(self.id(name)), await self.stranger.count())
        await self.stranger.delete(self.id(name))
        return seen


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


def test_any_sequence_shows_the_same_on_memory_sqlite_and_postgresql(postgres_url: str, runner: asyncio.Runner) -> None:
    stores: list[Any] = [
        MemoryTaskStore(clock=lambda: T0),
        SqlTaskStore("sqlite://", clock=lambda: T0),
        SqlTaskStore(postgres_url, pool_size=2, clock=lambda: T0),
    ]

    async def play(steps: list[tuple[Any, ...]]) -> None:
        example = next(_examples)
        worlds = [World(store, example) for store in stores]
        for number, step in enumerate(steps):
            results = [await world.step(step) for world in worlds]
            assert results[1:] == results[:1] * 2, (number, step)
            views = [await world.view() for world in worlds]
            assert views[1:] == views[:1] * 2, (number, step)

    async def opened() -> None:
        for store in stores:
            await store.__aenter__()

    async def closed() -> None:
        for store in stores:
            await store.__aexit__()

    @settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(STEPS, min_size=3, max_size=14))
    def check(steps: list[tuple[Any, ...]]) -> None:
        runner.run(play(steps))

    runner.run(opened())
    try:
        check()
    finally:
        runner.run(closed())
