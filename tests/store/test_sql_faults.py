"""The database goes away, or the line to it: nothing is doubled, nothing lost, nobody waits for ever."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.protocol import TaskState
from app.protocol.errors import UnavailableError
from app.protocol.events import update_of
from app.store.base import Claimed, Commit, FencedError, Replay
from app.store.sql import SqlTaskStore
from tests.postgres import PostgresServer, postgres_server
from tests.store.values import a_task, begin, chunk, new_task
from tests.tcp_proxy import StatementProxy, statement_proxy


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncIterator[StatementProxy]:
    parts = urlsplit(postgres_url)
    async with statement_proxy(parts.hostname or "", parts.port or 0) as made:
        yield made


@pytest.fixture
async def store(postgres_url: str, proxy: StatementProxy) -> AsyncIterator[SqlTaskStore]:
    parts = urlsplit(postgres_url)
    url = postgres_url.replace(f":{parts.port}/", f":{proxy.port}/")
    async with SqlTaskStore(url, pool_size=3) as opened:
        yield opened


async def rows(url: str, table: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval(f"SELECT count(*) FROM {table}"))
    finally:
        await connection.close()


@pytest.mark.parametrize("arrives", [True, False], ids=["committed", "not committed"])
async def test_a_commit_whose_answer_is_lost_is_written_once(
    store: SqlTaskStore, proxy: StatementProxy, postgres_url: str, arrives: bool
) -> None:
    turn = await begin(store)
    await turn.commit(chunk(turn.task, "a"))
    proxy.cut_at_commit(forward=arrives)
    assert await turn.commit(chunk(turn.task, "b"), chunk(turn.task, "c")) == 4
    assert proxy.cuts == 1
    assert await store.get(turn.task.id) == turn.task
    assert [entry.seq for entry in await store.read_events(turn.task.id, 0, 10)] == [1, 2, 3, 4]
    proxy.cut_at_commit(forward=arrives)
    assert await turn.say(TaskState.COMPLETED) == 5
    assert await store.get(turn.task.id) == turn.task
    assert await rows(postgres_url, "task_events") == 5


@pytest.mark.parametrize("arrives", [True, False], ids=["committed", "not committed"])
async def test_a_task_whose_creation_is_not_answered_is_created_once(
    store: SqlTaskStore, proxy: StatementProxy, postgres_url: str, arrives: bool
) -> None:
    proxy.cut_at_commit(forward=arrives)
    new = new_task(key="k" * 16)
    claimed = await store.create_task(new)
    assert isinstance(claimed, Claimed)
    assert claimed.task.id == new.task.id
    assert proxy.cuts == 1
    assert await rows(postgres_url, "tasks") == 1
    assert await store.create_task(new_task(a_task(history=new.task.history), key="k" * 16)) == Replay(new.task.id, 1)


async def test_a_group_whose_answer_is_lost_is_written_once(
    store: SqlTaskStore, proxy: StatementProxy, postgres_url: str
) -> None:
    turns = [await begin(store) for _ in range(20)]
    proxy.cut_at_commit(forward=True)
    heads = await asyncio.gather(*(turn.commit(chunk(turn.task, "x")) for turn in turns))
    assert set(heads) == {2}
    assert await rows(postgres_url, "task_events") == 40


async def test_one_bad_item_of_a_group_fails_alone(store: SqlTaskStore) -> None:
    turns = [await begin(store) for _ in range(50)]
    bad = turns[17]
    work = [
        store.commit(Commit(bad.task.id, bad.epoch + 1, [update_of(chunk(bad.task, "x"))], bad.task))
        if turn is bad
        else turn.commit(chunk(turn.task, "x"))
        for turn in turns
    ]
    results = await asyncio.gather(*work, return_exceptions=True)
    assert [number for number, result in enumerate(results) if isinstance(result, BaseException)] == [17]
    assert isinstance(results[17], FencedError)
    assert await store.last_event_seq(bad.task.id) == 1


async def test_a_broken_connection_does_not_break_the_next_request(store: SqlTaskStore, proxy: StatementProxy) -> None:
    turn = await begin(store)
    for _ in range(3):
        proxy.cut_all()
        assert await store.get(turn.task.id) == turn.task
        proxy.cut_all()
        await turn.commit(chunk(turn.task, "x"))
    assert await store.last_event_seq(turn.task.id) == 4


@pytest.fixture
async def own_server() -> AsyncIterator[PostgresServer]:
    with postgres_server() as server:
        yield server


async def test_a_database_that_stops_is_unavailable_and_back_when_it_is_back(own_server: PostgresServer) -> None:
    async with SqlTaskStore(own_server.url, pool_size=2) as store:
        turn = await begin(store)
        await asyncio.to_thread(own_server.stop)
        started = asyncio.get_running_loop().time()
        for refused in (store.get(turn.task.id), store.create_task(new_task()), turn.commit(chunk(turn.task, "lost"))):
            with pytest.raises(UnavailableError):
                await refused
        assert asyncio.get_running_loop().time() - started < 5
        await asyncio.to_thread(own_server.start)
        assert await store.last_event_seq(turn.task.id) == 1
        assert (await store.snapshot(turn.task.id)) is not None
        found = await store.get(turn.task.id)
        assert found is not None
        assert found.status.state is TaskState.SUBMITTED
        await store.create_task(new_task())
