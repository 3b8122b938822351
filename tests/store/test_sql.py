"""What is about SQL alone: schema, URLs, files, growth."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, inspect

from app.protocol import TaskState
from app.protocol.errors import UnavailableError
from app.protocol.requests import ListTasksRequest
from app.store.base import Replay, StoreStartError
from app.store.databases import database_for
from app.store.engines import Database, parse_store_url
from app.store.migrations import current_revision, differences, downgrade, head_revision, upgrade
from app.store.sql import SqlTaskStore
from app.store.tables import Base
from tests.postgres import database as postgres_database
from tests.store.values import a_task, begin, chunk, new_task


@pytest.fixture(params=["sqlite", "postgresql"])
async def empty(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a database without a schema."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/empty.db"
    else:
        async with postgres_database(request.getfixturevalue("postgres_server_url"), None) as url:
            yield url


@pytest.fixture
async def opened(empty: str) -> AsyncIterator[Database]:
    database = database_for(empty)
    await database.open()
    yield database
    await database.close()


def tables(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names())


async def test_migrations_make_the_schema_of_the_models_and_take_it_away_again(opened: Database) -> None:
    assert await opened.with_connection(current_revision) is None
    await opened.with_connection(upgrade)
    assert await opened.with_connection(current_revision) == head_revision()
    assert await opened.with_connection(differences) == []
    made = await opened.with_connection(tables)
    assert {"tasks", "task_events", "idempotency_keys", "push_configs"} <= made
    await opened.with_connection(downgrade)
    assert await opened.with_connection(tables) == {"alembic_version"}
    await opened.with_connection(upgrade)
    assert await opened.with_connection(tables) == made


async def test_on_sqlite_migrations_write_the_very_sql_of_the_models(tmp_path: Path) -> None:
    def created(connection: Connection) -> set[tuple[str, str, str]]:
        rows = connection.exec_driver_sql("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").all()
        return {(kind, name, " ".join(sql.split())) for kind, name, sql in rows if name != "alembic_version"}

    found = []
    ways: list[Callable[[Connection], None]] = [upgrade, Base.metadata.create_all]
    for number, make in enumerate(ways):
        database = database_for(f"sqlite:///{tmp_path}/{number}.db")
        await database.open()
        await database.with_connection(make)
        found.append(await database.with_connection(created))
        await database.close()
    assert found[0] == found[1]
    assert len(found[0]) > 10


async def test_replicas_that_start_together_on_an_empty_database_all_come_up(postgres_server_url: str) -> None:
    async with postgres_database(postgres_server_url, None) as url:
        stores = [SqlTaskStore(url, pool_size=2) for _ in range(3)]
        await asyncio.gather(*(_open_and_close(store) for store in stores))


async def _open_and_close(store: SqlTaskStore) -> None:
    async with store:
        await store.ping()


async def test_an_outdated_schema_is_refused_where_it_may_not_be_changed(empty: str) -> None:
    with pytest.raises(StoreStartError, match=r"^The database schema is missing, this server needs .*`a2a migrate`\.$"):
        await _open_and_close(SqlTaskStore(empty, auto_migrate=False))
    await _open_and_close(SqlTaskStore(empty))
    await _open_and_close(SqlTaskStore(empty, auto_migrate=False))


async def test_a_second_process_on_a_sqlite_file_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with SqlTaskStore(url) as store:
        with pytest.raises(StoreStartError, match="in use by another process"):
            await _open_and_close(SqlTaskStore(url))
        await store.ping()
    await _open_and_close(SqlTaskStore(url))


async def test_a_sqlite_file_that_cannot_be_written_is_refused_with_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for place in ("nowhere/tasks.db", "folder"):
        with pytest.raises(StoreStartError, match="SQLite file") as refusal:
            await _open_and_close(SqlTaskStore(f"sqlite:///{tmp_path}/{place}"))
        assert "\n" not in str(refusal.value)
    (tmp_path / "text.db").write_text("this is no database, and long enough to be taken for one" * 100)
    with pytest.raises(StoreStartError, match="not a database"):
        await _open_and_close(SqlTaskStore(f"sqlite:///{tmp_path}/text.db"))


async def test_a_database_that_is_not_there_is_refused_with_one_sentence(postgres_server_url: str) -> None:
    for url in ("postgresql://nobody@127.0.0.1:1/x", postgres_server_url.replace("/postgres", "/nowhere")):
        with pytest.raises(StoreStartError, match=r"^PostgreSQL at .* cannot be used: ") as refusal:
            await _open_and_close(SqlTaskStore(url))
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///tasks.db", "tasks.db"),
        ("sqlite:///./tasks.db", "tasks.db"),
        ("sqlite:////var/lib/a2a/tasks.db", "/var/lib/a2a/tasks.db"),
        ("sqlite+aiosqlite:///tasks.db", "tasks.db"),
        ("sqlite:///with%20space.db", "with space.db"),
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
    ],
)
def test_sqlite_urls_are_read_as_people_write_them(url: str, path: str | None) -> None:
    read = parse_store_url(url)
    assert read.dialect == "sqlite"
    assert read.path == (None if path is None else Path(path))


async def test_what_is_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with SqlTaskStore(url) as store:
        turn = await begin(store, key="k" * 16)
        await turn.commit(chunk(turn.task, "half"))
    async with SqlTaskStore(url) as store:
        assert await store.get(turn.task.id) == turn.task
        assert [stranded.task_id for stranded in await store.stranded_turns(10)] == [turn.task.id]
        replay = await store.create_task(new_task(a_task(history=turn.task.history), key="k" * 16))
        assert isinstance(replay, Replay)
        assert replay.task_id == turn.task.id


async def test_a_long_stream_is_read_whole_and_writes_few_snapshots(make_store: Callable[..., Any]) -> None:
    async with make_store() as store:
        turn = await begin(store)
        text = "x" * 1_000
        for number in range(60):
            await turn.commit(*(chunk(turn.task, f"{number} {text}") for _ in range(10)))
        assert await store.get(turn.task.id) == turn.task
        await turn.say(TaskState.COMPLETED)
        assert await store.get(turn.task.id) == turn.task
        assert len(await store.read_events(turn.task.id, 0, 10_000)) == 602


async def test_commits_of_many_tasks_at_once_share_transactions(make_store: Callable[..., Any]) -> None:
    async with make_store() as store:
        turns = await asyncio.gather(*(begin(store) for _ in range(50)))
        for _ in range(4):
            heads = await asyncio.gather(*(turn.commit(chunk(turn.task, "x")) for turn in turns))
            assert len(set(heads)) == 1
        for turn in turns[:5]:
            assert await store.get(turn.task.id) == turn.task
        assert (await store.list(ListTasksRequest(page_size=1))).total_size == 50


async def test_a_full_disk_is_unavailable_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with SqlTaskStore(f"sqlite:///{path}") as store:
        turn = await begin(store)
        kept = turn.task.model_copy(deep=True)
        with sqlite3.connect(path) as peek:
            (pages,) = peek.execute("PRAGMA page_count").fetchone()
        peek.close()
        await store._core.database.with_connection(
            lambda connection: connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 4}")
        )
        with pytest.raises(UnavailableError, match="full"):
            await asyncio.gather(*(turn.commit(chunk(turn.task, "x" * 4_000)) for _ in range(200)))
        found = await store.get(turn.task.id)
        assert found is not None
        assert found.history == kept.history
        seqs = [entry.seq for entry in await store.read_events(turn.task.id, 0, 1_000)]
        assert seqs == list(range(1, len(seqs) + 1))
        await store._core.database.with_connection(
            lambda connection: connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
        )
        await store.create_task(new_task())
