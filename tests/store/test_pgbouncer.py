"""The store behind PgBouncer in transaction mode, with the setting for it and without."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.bootstrap import build_app
from app.settings import Settings
from app.store import scripts
from app.store.base import Claimed, Replay
from app.store.migrations import differences, downgrade
from app.store.scripts import Statement, fetch
from app.store.sql import SqlTaskStore
from app.store.tables import Base
from app.store.wakeups_postgresql import PostgresqlWakeups
from tests.agents import Script
from tests.asgi import TIMEOUT, serving
from tests.conftest import Api
from tests.pgbouncer import LINES, pgbouncer
from tests.postgres import database, in_database
from tests.store import (
    test_contract_keys,
    test_contract_later_turns,
    test_contract_log,
    test_contract_pages,
    test_contract_tasks,
    test_contract_turns,
)
from tests.store.conftest import Clock
from tests.store.values import a_task, begin, chunk, new_task

ASKED = pytest.mark.parametrize("setting", ["", "?statement_cache_size=0"], ids=["found out", "by the setting"])
CONTRACT = [
    test_contract_keys,
    test_contract_later_turns,
    test_contract_log,
    test_contract_pages,
    test_contract_tasks,
    test_contract_turns,
]


@pytest.fixture(scope="module")
def bouncer_url(postgres_server_url: str) -> Iterator[str]:
    with pgbouncer(postgres_server_url) as url:
        yield url


async def by_way_of(bouncer_url: str, direct_url: str) -> str:
    """The URL of the same database by way of PgBouncer, all of whose lines to it are open and taken in turn."""
    url = in_database(bouncer_url, urlsplit(direct_url).path.lstrip("/"))
    clients = [await asyncpg.connect(url, statement_cache_size=0) for _ in range(LINES)]
    for statement in ("BEGIN", "COMMIT"):
        for client in clients:
            await client.execute(statement)
    for client in clients:
        await client.close()
    return url


@pytest.fixture
async def bounced_url(bouncer_url: str, postgres_url: str) -> str:
    """A database of the test's own, by way of PgBouncer."""
    return await by_way_of(bouncer_url, postgres_url)


def promises(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The tests of the contract that want nothing but a store."""
    for name, test in inspect.getmembers(module, inspect.iscoroutinefunction):
        if name.startswith("test_") and set(inspect.signature(test).parameters) <= {"store", "clock"}:
            yield name, test


@pytest.mark.parametrize("module", CONTRACT, ids=[module.__name__.rpartition(".")[2] for module in CONTRACT])
async def test_the_contract_holds_behind_pgbouncer(
    module: ModuleType, bounced_url: str, postgres_url: str, clock: Clock
) -> None:
    tables = ", ".join(Base.metadata.tables)
    line = await asyncpg.connect(postgres_url)
    kept = []
    async with SqlTaskStore(bounced_url, clock=clock) as store:
        for name, test in promises(module):
            given = {"store": store, "clock": clock}
            await test(**{parameter: given[parameter] for parameter in inspect.signature(test).parameters})
            kept.append(name)
            await line.execute(f"TRUNCATE {tables}")
    await line.close()
    assert kept


@ASKED
async def test_replicas_share_the_few_lines_of_pgbouncer(bounced_url: str, setting: str) -> None:
    async with (
        SqlTaskStore(bounced_url + setting, pool_size=6) as one,
        SqlTaskStore(bounced_url + setting, pool_size=6) as other,
    ):

        async def run(store: SqlTaskStore) -> None:
            turn = await begin(store)
            for _ in range(5):
                await turn.commit(chunk(turn.task, "x"))
                assert await store.get(turn.task.id) == turn.task

        async with asyncio.timeout(20):
            await asyncio.gather(*(run(store) for store in (one, other) for _ in range(20)))
        message = a_task().history[0]
        outcomes = await asyncio.gather(
            *(
                store.create_task(new_task(a_task(history=[message]), key="k" * 16))
                for store in (one, other)
                for _ in range(16)
            )
        )
        (claimed,) = [outcome for outcome in outcomes if isinstance(outcome, Claimed)]
        assert outcomes.count(Replay(claimed.task.id, 1)) == 31
        assert await one.count() == await other.count() == 41


@ASKED
async def test_replicas_that_start_together_migrate_once_behind_pgbouncer(
    bouncer_url: str, postgres_server_url: str, setting: str
) -> None:
    async with database(postgres_server_url, None) as direct:
        url = await by_way_of(bouncer_url, direct) + setting

        async def start() -> None:
            async with SqlTaskStore(url, pool_size=2) as store:
                await store.ping()

        async with asyncio.timeout(20):
            await asyncio.gather(*(start() for _ in range(3)))
        async with SqlTaskStore(url, auto_migrate=False) as store:
            schema = store._core.database
            assert await schema.with_connection(differences) == []
            await schema.with_connection(downgrade)
        await start()


async def test_the_server_streams_from_behind_pgbouncer(script: Script, settings: Settings, bounced_url: str) -> None:
    behind = settings.model_copy(update={"store_url": bounced_url})
    async with serving(build_app(behind, agent=script.agent())) as http:
        api = Api(http, script)
        streams = await asyncio.gather(*(api.stream_of("chunks 20") for _ in range(10)))
        for events in streams:
            assert [event.id for event in events] == [str(seq) for seq in range(1, 24)]
        task_id = streams[0][0].data["task"]["id"]
        assert await api.stream(f"/tasks/{task_id}:subscribe", headers={"Last-Event-ID": "20"}) == streams[0][20:]


async def test_hints_are_not_trusted_to_pgbouncer(bounced_url: str, caplog: pytest.LogCaptureFixture) -> None:
    wakeups = PostgresqlWakeups(bounced_url)
    running = asyncio.create_task(wakeups.run())
    async with asyncio.timeout(TIMEOUT):
        while "LISTEN does not work through a pooler" not in caplog.text:
            assert not wakeups.connected
            await asyncio.sleep(0.01)
    assert not wakeups.connected
    running.cancel()


@ASKED
async def test_what_a_transaction_needs_is_set_for_it_alone(bounced_url: str, setting: str) -> None:
    def show() -> scripts.Script[str]:
        ((value,),) = yield from fetch(
            Statement("SELECT current_setting('idle_in_transaction_session_timeout')", (), ())
        )
        return str(value)

    async with SqlTaskStore(bounced_url + setting) as store:
        database = store._core.database
        assert await database.write(show()) == "3s"
        assert {await database.read(show()) for _ in range(LINES)} == {"0"}
