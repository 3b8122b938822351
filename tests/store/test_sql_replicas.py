"""Several processes on one PostgreSQL, and what a group of operations costs."""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.protocol import ANONYMOUS, TaskState
from app.protocol.errors import UnavailableError
from app.store import appender, engine_postgresql
from app.store.base import (
    CancelFlagged,
    Claimed,
    FencedError,
    IdempotencyKey,
    Lease,
    NewTask,
    Replay,
    RetentionPolicy,
)
from app.store.snapshots import SNAPSHOT_BYTES
from app.store.sql import SqlTaskStore
from app.store.tables import owner_digest
from tests.store.values import OTHER, WORKER, a_task, begin, chunk, ended, new_task, new_turn, status

KEY = "k" * 16
ODD_ZONE = "Pacific/Kiritimati"


@pytest.fixture
async def replicas(postgres_url: str) -> AsyncIterator[list[SqlTaskStore]]:
    async with SqlTaskStore(postgres_url, pool_size=4) as one, SqlTaskStore(postgres_url, pool_size=4) as other:
        yield [one, other]


async def test_of_racing_sends_to_two_replicas_one_creates_a_task(replicas: list[SqlTaskStore]) -> None:
    message = a_task().history[0]
    key = IdempotencyKey(KEY, message.message_id)
    async with asyncio.timeout(5):
        outcomes = await asyncio.gather(
            *(replicas[number % 2].create_task(NewTask(a_task(history=[message]), key)) for number in range(32))
        )
    winners = [outcome for outcome in outcomes if isinstance(outcome, Claimed)]
    assert len(winners) == 1
    assert [outcome for outcome in outcomes if outcome is not winners[0]] == [Replay(winners[0].task.id, 1)] * 31
    assert await replicas[0].count() == 1


async def test_of_racing_messages_to_two_replicas_one_begins_the_turn(replicas: list[SqlTaskStore]) -> None:
    turn = await ended(replicas[0], TaskState.INPUT_REQUIRED)
    await replicas[0].release_lease(turn.task.id, turn.epoch)
    async with asyncio.timeout(5):
        outcomes = await asyncio.gather(
            *(replicas[number % 2].begin_turn(new_turn(turn.task.id)) for number in range(16))
        )
    assert sum(isinstance(outcome, Claimed) for outcome in outcomes) == 1
    assert await replicas[1].last_event_seq(turn.task.id) == turn.head + 1


async def test_commits_renewals_and_cancels_never_wait_in_a_circle(replicas: list[SqlTaskStore]) -> None:
    mine, other = replicas
    turns = await asyncio.gather(*(begin(mine) for _ in range(40)))
    epochs = {turn.task.id: turn.epoch for turn in turns}
    backwards = dict(sorted(epochs.items(), reverse=True))

    async def renew() -> None:
        for _ in range(10):
            assert not (await mine.renew_leases(backwards, WORKER)).lost

    async def cancel() -> None:
        outcomes = await asyncio.gather(*(other.begin_cancel(task_id, OTHER) for task_id in backwards))
        assert outcomes == [CancelFlagged()] * len(turns)

    async def commit() -> None:
        for _ in range(10):
            await asyncio.gather(*(turn.commit(chunk(turn.task, "x")) for turn in turns))

    async with asyncio.timeout(20):
        await asyncio.gather(commit(), renew(), cancel())
    assert (await mine.renew_leases(epochs, WORKER)).cancelled == epochs.keys()
    for turn in turns:
        assert turn.head == 11


async def test_a_turn_that_another_replica_took_over_is_fenced(replicas: list[SqlTaskStore]) -> None:
    mine, other = replicas
    turn = await begin(mine, lease=Lease("slow", 0.02))
    await turn.commit(chunk(turn.task, "kept"))
    async with asyncio.timeout(5):
        while not (stranded := await other.stranded_turns(10)):  # noqa: ASYNC110 - the lease ends by itself
            await asyncio.sleep(0)
    claimed = await other.take_over(stranded[0], OTHER)
    assert isinstance(claimed, Claimed)
    assert claimed.task == turn.task
    with pytest.raises(FencedError):
        await turn.commit(chunk(turn.task, "late"))
    assert (await mine.renew_leases({turn.task.id: turn.epoch}, Lease("slow", 15.0))).lost == {turn.task.id}
    assert await mine.last_event_seq(turn.task.id) == 2


async def test_replicas_that_sweep_together_remove_each_task_once(replicas: list[SqlTaskStore]) -> None:
    old = [await begin(replicas[0], key=f"{number:016}") for number in range(30)]
    for turn in old:
        await turn.say(TaskState.COMPLETED)
    running = await begin(replicas[0])
    policy = RetentionPolicy(terminal_age=0.0, key_age=0.0, batch=4)
    async with asyncio.timeout(10):
        swept = await asyncio.gather(*(store.purge(policy) for store in replicas))
    assert sum(purged.tasks for purged in swept) == len(old)
    rest = await replicas[0].purge(policy)
    assert rest.tasks == 0
    assert sum(purged.keys for purged in swept) + rest.keys == len(old)
    assert await replicas[1].count() == 1
    assert await replicas[1].get(running.task.id) == running.task


async def test_no_statement_keeps_a_plan_made_for_empty_tables(postgres_url: str) -> None:
    async with SqlTaskStore(postgres_url) as store:
        for _ in range(8):
            turns = await asyncio.gather(*(begin(store) for _ in range(50)))
            await asyncio.gather(*(turn.commit(chunk(turn.task, "x")) for turn in turns))
        writes = store._core.writes
        async with store._core.database._connection() as raw:  # type: ignore[attr-defined]
            for statement in (writes.lock_heads, writes.advance_heads, writes.update_heads):
                arrays: list[list[str]] = [[] for _ in range(len(set(re.findall(r"\$\d+", statement.sql))))]
                plan = await raw.fetch(f"EXPLAIN (GENERIC_PLAN) {statement.sql}", *arrays)
                assert "Seq Scan on tasks" not in "\n".join(row[0] for row in plan)


@pytest.fixture
def odd_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", ODD_ZONE)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def _check_times(store: Any) -> None:
    turn = await begin(store)
    await turn.say(TaskState.WORKING)
    assert await store.get(turn.task.id) == turn.task
    assert await store.stranded_turns(10) == []
    assert isinstance(await store.begin_cancel(turn.task.id, OTHER), CancelFlagged)


async def test_time_zones_change_nothing(odd_zone: None, tmp_path: Path, postgres_url: str) -> None:
    assert os.environ["TZ"] == ODD_ZONE
    async with SqlTaskStore(f"sqlite:///{tmp_path}/tasks.db") as store:
        await _check_times(store)
    connection = await asyncpg.connect(postgres_url)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE {name} SET timezone = 'America/St_Johns'")
    await connection.close()
    async with SqlTaskStore(postgres_url) as store:
        await _check_times(store)


async def test_a_group_takes_few_statements_however_many_it_is_of(tmp_path: Path) -> None:
    async with SqlTaskStore(f"sqlite:///{tmp_path}/tasks.db") as store:
        turns = await asyncio.gather(*(begin(store) for _ in range(64)))
        statements: list[str] = []
        store._core.database._writing.set_trace_callback(statements.append)  # type: ignore[attr-defined]
        await asyncio.gather(*(turn.commit(chunk(turn.task, "x"), chunk(turn.task, "y")) for turn in turns))
        assert statements[0].startswith("BEGIN IMMEDIATE")
        assert statements[-1].startswith("COMMIT")
        # Read the heads, move them, add the entries.
        assert len(statements) == 5, statements


async def test_an_event_costs_the_same_whatever_came_before_it(tmp_path: Path) -> None:
    async with SqlTaskStore(f"sqlite:///{tmp_path}/tasks.db") as store:
        turn = await begin(store)
        text = "x" * 4_096
        written = []
        for _ in range(160):
            statements: list[str] = []
            store._core.database._writing.set_trace_callback(statements.append)  # type: ignore[attr-defined]
            await turn.commit(chunk(turn.task, text))
            written.append(sum(len(statement) for statement in statements))
        snapshots = [size for size in written if size > 2 * min(written)]
        # 160 × 4 KB: one snapshot when the tail has passed the bound, one when it has passed the bound again.
        assert 160 * 4_096 // SNAPSHOT_BYTES == len(snapshots) == 2
        assert await store.get(turn.task.id) == turn.task


async def test_dropped_entries_are_covered_by_the_snapshot(tmp_path: Path) -> None:
    async with SqlTaskStore(f"sqlite:///{tmp_path}/tasks.db", max_events_per_task=20) as store:
        turn = await begin(store)
        for number in range(200):
            await turn.commit(chunk(turn.task, str(number)))
            snapshot = await store.snapshot(turn.task.id)
            assert snapshot is not None
            assert snapshot.task == turn.task
            kept = await store.read_events(turn.task.id, 0, 1_000)
            assert [entry.seq for entry in kept] == list(range(snapshot.earliest_seq, snapshot.seq + 1))
        await turn.commit(status(turn.task, TaskState.COMPLETED))
        earliest = await store.earliest_event_seq(turn.task.id)
        assert earliest is not None
        assert 20 <= turn.head - earliest + 1 <= 25
        assert await store.get(turn.task.id) == turn.task


async def test_a_task_whose_creation_finds_its_id_taken_disturbs_no_other(tmp_path: Path) -> None:
    async with SqlTaskStore(f"sqlite:///{tmp_path}/tasks.db") as store:
        taken = await begin(store)
        news = [new_task() for _ in range(10)] + [new_task(a_task(id=taken.task.id))]
        outcomes = await asyncio.gather(*(store.create_task(new) for new in news), return_exceptions=True)
        assert all(isinstance(outcome, Claimed) for outcome in outcomes[:-1])
        assert isinstance(outcomes[-1], FencedError)
        assert await store.count() == 11


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK", "nothing"])
async def test_a_send_waits_for_one_of_the_same_key_that_is_being_committed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    if ending == "nothing":
        monkeypatch.setattr(engine_postgresql, "COMMAND_TIMEOUT", 0.3)
        monkeypatch.setattr(appender, "GIVE_UP_AFTER", 0.5)
    task = a_task()
    key = IdempotencyKey(KEY, task.history[0].message_id)
    row = (KEY, owner_digest(ANONYMOUS), key.message_id, "winner", 1, 0)
    winner = await asyncpg.connect(postgres_url)
    try:
        async with SqlTaskStore(postgres_url, pool_size=2) as store, asyncio.timeout(5):
            await winner.execute("BEGIN")
            await winner.execute(
                "INSERT INTO idempotency_keys (key, owner, message_id, task_id, first_seq, created_ms)"
                " VALUES ($1, $2, $3, $4, $5, $6)",
                *row,
            )
            losing = asyncio.create_task(store.create_task(NewTask(task, key, WORKER)))
            waiting = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            while not await winner.fetchval(waiting) and not losing.done():  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0.01)
            assert not losing.done()
            if ending == "nothing":
                with pytest.raises(UnavailableError):
                    await losing
                await winner.execute("ROLLBACK")
                assert await store.count() == 0
                return
            await winner.execute(ending)
            outcome = await losing
            assert outcome == Replay("winner", 1) if ending == "COMMIT" else isinstance(outcome, Claimed)
    finally:
        await winner.close()
