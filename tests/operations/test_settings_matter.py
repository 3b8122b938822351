"""Each setting, away from its default, makes a difference that is seen from outside.

`tests/test_settings.py` sees to it that every setting is named by such a test, here or elsewhere.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from app.bootstrap import StartError, build_store
from app.handler import Agent, Turn
from app.settings import Settings
from app.store.base import Claimed, Conflict, Lease, NewTask, Replay
from app.store.memory import MemoryTaskStore
from app.store.sql import SqlTaskStore
from app.store.wakeups import LocalWakeups
from tests.agents import CARD
from tests.asgi import TIMEOUT
from tests.five_methods import FiveMethodStore
from tests.operations.bindings import served


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that is only seen from outside."""
    async with asyncio.timeout(TIMEOUT):
        while not await holds():  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.01)


@pytest.mark.setting("docs")
async def test_documents_are_served_or_not(settings: Settings) -> None:
    for docs, status in ((True, 200), (False, 404)):
        async with served(settings, docs=docs) as api:
            for path in ("/docs", "/redoc", "/openapi.json"):
                assert (await api.get(path)).status_code == status


@pytest.mark.setting("store_url")
async def test_tasks_are_kept_where_the_url_says(settings: Settings, tmp_path: Path) -> None:
    for url, survives in ((f"sqlite:///{tmp_path}/here.db", True), ("memory://", False)):
        async with served(settings, store_url=url) as api:
            task = await api.send("hello")
        async with served(settings, store_url=url) as api:
            assert ((await api.get(f"/tasks/{task['id']}")).status_code == 200) is survives
    assert (tmp_path / "here.db").exists()


@pytest.mark.setting("auto_migrate")
async def test_an_outdated_schema_is_brought_up_to_date_or_stops_the_start(settings: Settings, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    with pytest.raises(StartError, match="a2a migrate"):
        async with served(settings, store_url=url, auto_migrate=False):
            pass
    async with served(settings, store_url=url):
        pass
    async with served(settings, store_url=url, auto_migrate=False) as api:
        assert (await api.get("/readyz")).status_code == 200


@pytest.mark.setting("pool_size")
async def test_a_process_opens_so_many_connections_at_most(settings: Settings, postgres_url: str) -> None:
    async def connections(pool_size: int) -> int:
        async with served(settings, store_url=postgres_url, pool_size=pool_size) as api:
            await asyncio.gather(*(api.get("/tasks") for _ in range(40)))
            watcher = await asyncpg.connect(postgres_url)
            try:
                count: int = await watcher.fetchval(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )
            finally:
                await watcher.close()
            return count

    few = await connections(1)
    assert few < await connections(8) <= few + 7


@pytest.mark.setting("sqlite_synchronous")
async def test_sqlite_flushes_every_commit_or_not(settings: Settings, tmp_path: Path) -> None:
    # Whether a disk was told to flush shows in no answer; what SQLite was told does.
    for number, (mode, flag) in enumerate((("FULL", 2), ("NORMAL", 1))):
        changes = {"store_url": f"sqlite:///{tmp_path}/{number}.db", "sqlite_synchronous": mode}
        store = build_store(settings.model_copy(update=changes), LocalWakeups())
        assert isinstance(store, SqlTaskStore)
        async with store:
            told = await store._core.database.with_connection(
                lambda connection: connection.exec_driver_sql("PRAGMA synchronous").scalar_one()
            )
            assert told == flag


@pytest.mark.setting("key_retention")
async def test_a_key_whose_task_is_gone_is_free_again_after_its_time(settings: Settings, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with served(settings, store_url=url, retention=0.05, key_retention=0.05) as api:
        body, headers = {"message": api.message("hello")}, {"Idempotency-Key": "k" * 16}

        async def runs_again() -> bool:
            await api.post("/message:send", body, headers=headers)
            return api.script.runs > 1

        await until(runs_again)


@pytest.mark.setting("memory_max_tasks")
async def test_memory_keeps_so_many_tasks(settings: Settings) -> None:
    async with served(settings, memory_max_tasks=1) as api:
        await api.held("x")
        refused = await api.post("/message:send", {"message": api.message("one more")})
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0


@pytest.mark.setting("memory_task_ttl")
async def test_memory_forgets_what_ended_long_ago(settings: Settings) -> None:
    async with served(settings, memory_task_ttl=0.05) as api:
        task = await api.send("hello")

        async def is_gone() -> bool:
            await api.send("another")
            return (await api.get(f"/tasks/{task['id']}")).status_code == 404

        await until(is_gone)


@pytest.mark.setting("lease_ttl")
async def test_a_turn_is_claimed_for_as_long_as_the_setting_says(settings: Settings) -> None:
    class Noting(FiveMethodStore):
        lease: Lease | None = None

        async def create_task(self, new: NewTask) -> Claimed | Replay | Conflict:
            self.lease = new.lease
            return await super().create_task(new)

    for ttl in (15.0, 7.0):
        store = Noting()
        async with served(settings, None, store, lease_ttl=ttl) as api:
            await api.send("hello")
        assert store.lease is not None
        assert store.lease.ttl == ttl


@pytest.mark.setting("busy_wait")
async def test_a_message_waits_so_long_for_the_turn_before_it(settings: Settings) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def handle(turn: Turn) -> None:
        begun.set()
        if turn.text == "first":
            await gate.wait()
        await turn.require_input()

    for busy_wait, accepted in ((0.01, False), (TIMEOUT, True)):
        begun.clear()
        gate.clear()
        async with served(settings, Agent(card=CARD, handle=handle), busy_wait=busy_wait) as api:
            task_id = await api.start("first")
            await begun.wait()
            sending = asyncio.create_task(api.post("/message:send", {"message": api.message("second", taskId=task_id)}))
            await asyncio.wait([sending], timeout=1.0 if not accepted else 0.1)
            assert sending.done() is not accepted
            gate.set()
            assert ((await sending).status_code == 200) is accepted


@pytest.mark.setting("cancel_wait", "cancel_grace")
@pytest.mark.parametrize(
    ("wait", "grace", "state"),
    [
        (2.0, 0.05, "TASK_STATE_CANCELED"),
        (0.05, 1.0, "TASK_STATE_SUBMITTED"),
        (0.5, 60.0, "TASK_STATE_SUBMITTED"),
    ],
)
async def test_a_handler_may_clean_up_so_long_and_its_canceller_waits_so_long(
    settings: Settings, wait: float, grace: float, state: str
) -> None:
    async with served(settings, cancel_wait=wait, cancel_grace=grace) as api:
        task_id = await api.start("stubborn g")
        await api.script.reached["g"].wait()
        assert (await api.post(f"/tasks/{task_id}:cancel")).json()["status"]["state"] == state


@pytest.mark.setting("shutdown_grace")
async def test_a_turn_may_go_on_so_long_after_the_end_was_asked_for(settings: Settings) -> None:
    gate = asyncio.Event()

    async def handle(_turn: Turn) -> None:
        await gate.wait()

    for grace, state in ((0.01, "TASK_STATE_SUBMITTED"), (TIMEOUT, "TASK_STATE_COMPLETED")):
        store = MemoryTaskStore()
        gate.clear()
        async with served(settings, Agent(card=CARD, handle=handle), store, shutdown_grace=grace) as api:
            task_id = await api.start("go")
            asyncio.get_running_loop().call_later(0.2, gate.set)
        task = await store.get(task_id)
        assert task is not None
        assert task.status.state == state


@pytest.mark.setting("keep_alive")
async def test_a_quiet_stream_says_so_often_that_it_lives(settings: Settings) -> None:
    async with served(settings, keep_alive=0.02) as api:
        task_id = await api.held("x")
        async with asyncio.timeout(TIMEOUT), api.http.stream("GET", f"/tasks/{task_id}:subscribe") as response:
            seen = b""
            async for chunk in response.aiter_raw():
                seen += chunk
                if seen.count(b": keep-alive\n") > 2:
                    break


@pytest.mark.setting("send_timeout")
async def test_a_reader_may_refuse_to_read_so_long(settings: Settings) -> None:
    async def handle(turn: Turn) -> None:
        async with turn.artifact("a") as out:
            for _ in range(60):
                await out.write("x" * 70_000)

    async with served(settings, Agent(card=CARD, handle=handle), send_timeout=0.05, max_streams=1) as api:
        body = {"message": api.message("go")}
        async with api.http.stream("POST", "/message:stream", json=body) as unread:
            assert unread.status_code == 200

            async def is_cut() -> bool:
                # The place of a stream that was cut is free.
                return (await api.post("/tasks/nowhere:subscribe")).status_code == 404

            await until(is_cut)
            frames = (await unread.aread()).count(b"data: ")
        assert 0 < frames < 60
