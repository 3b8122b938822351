"""Any sequence of operations does what the rules of DESIGN 4, 6 and 7 say, written down once more as a small model.

`test_same_on_every_store` compares stores with each other; here each is compared with the rules.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.protocol import INTERRUPTED, TERMINAL, Message, Owner, Part, Role, Task, TaskState, fold
from app.protocol.events import update_of
from app.protocol.requests import ListTasksRequest
from app.store.base import (
    Busy,
    CancelFlagged,
    Claimed,
    Commit,
    Conflict,
    Ended,
    FencedError,
    IdempotencyKey,
    Lease,
    NewTask,
    NewTurn,
    NotFound,
    Replay,
)
from app.store.turns import StrandedTurn
from tests.store.values import a_task, chunk, status

_examples = itertools.count(1)
LIVE, DEAD = Lease("worker-1", 3_600.0), Lease("worker-1", 0.0)
IDS = st.sampled_from(["t-1", "t-2"])
KEYS = st.sampled_from([None, "key-one", "key-two"])
MESSAGES = st.sampled_from(["m-1", "m-2"])
LEASES = st.sampled_from([LIVE, LIVE, DEAD])
LATER = st.sampled_from(
    [TaskState.WORKING, TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.COMPLETED, TaskState.REJECTED]
)
EPOCHS = st.sampled_from([0, 0, 0, 0, -1, 1])
"""How far the epoch of a commit is from the right one."""
STEPS = st.one_of(
    st.tuples(st.just("create"), IDS, KEYS, MESSAGES, LEASES),
    st.tuples(st.just("begin"), IDS, KEYS, MESSAGES, LEASES),
    st.tuples(st.just("write"), IDS, st.integers(1, 3), EPOCHS),
    st.tuples(st.just("status"), IDS, LATER, EPOCHS),
    st.tuples(st.just("release"), IDS, EPOCHS),
    st.tuples(st.just("cancel"), IDS),
    st.tuples(st.just("take"), IDS),
    st.tuples(st.just("delete"), IDS),
)


@dataclass
class Modelled:
    """A task as the rules have it."""

    task: Task
    epoch: int
    live: bool
    head: int = 1
    first_seq: int = 1
    attempt: int = 1

    @property
    def state(self) -> TaskState:
        return self.task.status.state

    @property
    def running(self) -> bool:
        return self.live and self.state not in TERMINAL

    @property
    def stranded(self) -> bool:
        return not self.live and self.state not in TERMINAL | INTERRUPTED


@dataclass
class Model:
    """The rules; each method answers what the store has to."""

    tasks: dict[str, Modelled] = field(default_factory=dict)
    keys: dict[str, tuple[str, str, int]] = field(default_factory=dict)

    def held(self, key: IdempotencyKey | None) -> Replay | Conflict | None:
        if key is None or key.key not in self.keys:
            return None
        message_id, task_id, first_seq = self.keys[key.key]
        return Replay(task_id, first_seq) if message_id == key.message_id else Conflict()

    def hold(self, key: IdempotencyKey | None, task_id: str, first_seq: int) -> None:
        if key is not None:
            self.keys[key.key] = (key.message_id, task_id, first_seq)

    def create(self, new: NewTask) -> Any:
        answer = self.held(new.key)
        if answer is not None:
            return answer
        if new.task.id in self.tasks:
            return FencedError
        self.hold(new.key, new.task.id, 1)
        self.tasks[new.task.id] = Modelled(new.task.model_copy(deep=True), 1, new.lease is LIVE)
        return Claimed

    def begin(self, new: NewTurn) -> Any:
        answer = self.held(new.key)
        if answer is not None:
            return answer
        found = self.tasks.get(new.task_id)
        if found is None:
            return NotFound()
        if found.state in TERMINAL:
            return Ended(found.state)
        if found.running:
            return Busy()
        found.epoch, found.head, found.live = found.epoch + 1, found.head + 1, new.lease is LIVE
        found.first_seq, found.attempt = found.head, 1
        self.hold(new.key, new.task_id, found.head)
        return Claimed

    def commit(self, task_id: str, epoch: int, events: list[Any]) -> Any:
        found = self.tasks.get(task_id)
        if found is None or found.epoch != epoch or found.state in TERMINAL:
            return FencedError
        for event in events:
            found.task = fold(found.task, event)
        found.head += len(events)
        found.live = found.running
        return found.head

    def release(self, task_id: str, epoch: int) -> None:
        found = self.tasks.get(task_id)
        if found is not None and found.epoch == epoch:
            found.live = False

    def cancel(self, task_id: str) -> Any:
        found = self.tasks.get(task_id)
        if found is None:
            return NotFound()
        if found.state in TERMINAL:
            return Ended(found.state)
        if found.running:
            return CancelFlagged()
        found.epoch += 1
        return Claimed

    def take(self, task_id: str) -> Any:
        found = self.tasks.get(task_id)
        if found is None or not found.stranded:
            return None
        found.epoch, found.attempt, found.live = found.epoch + 1, found.attempt + 1, True
        return Claimed


class Run:
    """One store and the model, step by step."""

    def __init__(self, root: Any, example: int) -> None:
        self.root = root
        self.example = example
        self.store = root.for_owner(Owner(f"tenant-{example}", "s"))
        self.model = Model()

    def id(self, name: str) -> str:
        return f"{self.example}-{name}"

    def key(self, key: str | None, message_id: str) -> IdempotencyKey | None:
        return None if key is None else IdempotencyKey(key, message_id)

    def message(self, message_id: str) -> Message:
        return Message(message_id=message_id, role=Role.USER, parts=[Part(text=message_id)])

    def agree(self, found: Any, expected: Any) -> None:
        if expected is not Claimed:
            assert found == expected
            return
        assert isinstance(found, Claimed)
        modelled = self.model.tasks[found.task.id]
        assert (found.epoch, found.head) == (modelled.epoch, modelled.head)

    async def create(self, name: str, key: str | None, message_id: str, lease: Lease) -> None:
        task = a_task(id=self.id(name), history=[self.message(message_id)])
        new = NewTask(task, self.key(key, message_id), lease)
        expected = self.model.create(new)
        if expected is FencedError:
            with pytest.raises(FencedError):
                await self.store.create_task(new)
        else:
            self.agree(await self.store.create_task(new), expected)

    async def begin(self, name: str, key: str | None, message_id: str, lease: Lease) -> None:
        new = NewTurn(self.id(name), self.message(message_id), key=self.key(key, message_id), lease=lease)
        expected = self.model.begin(new)
        found = await self.store.begin_turn(new)
        self.agree(found, expected)
        if isinstance(found, Claimed):
            modelled = self.model.tasks[new.task_id]
            modelled.task = fold(modelled.task, found.entry.event)
            assert found.first_seq == modelled.first_seq
            assert found.task.history[-1] == new.message

    async def write(self, name: str, count: int, off: int) -> None:
        # In one commit, so that it is all of it or nothing.
        pieces = [chunk(a_task(id=self.id(name)), f"piece {number}") for number in range(count)]
        await self.commit(name, off, pieces)

    async def status(self, name: str, state: TaskState, off: int) -> None:
        await self.commit(name, off, [status(a_task(id=self.id(name)), state, "said")])

    async def commit(self, name: str, off: int, events: list[Any]) -> None:
        modelled = self.model.tasks.get(self.id(name))
        epoch = off + (modelled.epoch if modelled is not None else 1)
        task = (modelled.task if modelled is not None else a_task(id=self.id(name))).model_copy(deep=True)
        for event in events:
            task = fold(task, event)
        commit = Commit(self.id(name), epoch, [update_of(event) for event in events], task)
        expected = self.model.commit(self.id(name), epoch, [event.model_copy(deep=True) for event in events])
        if expected is FencedError:
            with pytest.raises(FencedError):
                await self.store.commit(commit)
        else:
            assert await self.store.commit(commit) == expected

    async def release(self, name: str, off: int) -> None:
        modelled = self.model.tasks.get(self.id(name))
        epoch = off + (modelled.epoch if modelled is not None else 1)
        self.model.release(self.id(name), epoch)
        await self.root.release_lease(self.id(name), epoch)

    async def cancel(self, name: str) -> None:
        expected = self.model.cancel(self.id(name))
        self.agree(await self.store.begin_cancel(self.id(name), DEAD), expected)

    async def take(self, name: str) -> None:
        stranded = await self.stranded()
        outcome = self.model.take(self.id(name))
        if outcome is not None:
            found = await self.root.take_over(stranded[self.id(name)], LIVE)
            self.agree(found, outcome)
            modelled = self.model.tasks[self.id(name)]
            assert (found.first_seq, found.attempt) == (modelled.first_seq, modelled.attempt)

    async def delete(self, name: str) -> None:
        self.model.tasks.pop(self.id(name), None)
        await self.store.delete(self.id(name))

    async def stranded(self) -> dict[str, StrandedTurn]:
        found = await self.root.stranded_turns(10_000)
        return {turn.task_id: turn for turn in found if turn.task_id.startswith(f"{self.example}-")}

    async def check(self) -> None:
        assert {task_id: (turn.epoch, turn.attempt) for task_id, turn in (await self.stranded()).items()} == {
            task_id: (modelled.epoch, modelled.attempt)
            for task_id, modelled in self.model.tasks.items()
            if modelled.stranded
        }
        assert await self.store.count() == len(self.model.tasks)
        page = await self.store.list(ListTasksRequest(include_artifacts=True))
        assert {task.id: task for task in page.tasks} == {
            task_id: modelled.task for task_id, modelled in self.model.tasks.items()
        }
        for name in ("t-1", "t-2"):
            modelled = self.model.tasks.get(self.id(name))
            snapshot = await self.store.snapshot(self.id(name))
            entries = await self.store.read_events(self.id(name), 0, 1_000)
            if modelled is None:
                assert (snapshot, list(entries)) == (None, [])
                continue
            assert (snapshot.task, snapshot.seq, snapshot.epoch) == (modelled.task, modelled.head, modelled.epoch)
            assert snapshot.running == modelled.running
            assert [entry.seq for entry in entries] == list(range(1, modelled.head + 1))
            folded = None
            for entry in entries:
                folded = entry.event.model_copy(deep=True) if folded is None else fold(folded, entry.event)
            assert folded == await self.store.get(self.id(name)) == modelled.task


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


def test_any_sequence_obeys_the_rules_and_the_task_is_the_fold_of_its_log(
    make_store: Callable[..., Any], runner: asyncio.Runner
) -> None:
    opening = make_store()
    root = runner.run(opening.__aenter__())

    async def play(steps: list[tuple[Any, ...]]) -> None:
        run = Run(root, next(_examples))
        for operation, *arguments in steps:
            await getattr(run, operation)(*arguments)
            await run.check()

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(STEPS, min_size=4, max_size=16))
    def check(steps: list[tuple[Any, ...]]) -> None:
        runner.run(play(steps))

    try:
        check()
    finally:
        runner.run(opening.__aexit__(None, None, None))
