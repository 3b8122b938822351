"""Two replicas on one PostgreSQL: what happens on one is seen and steered from the other (DESIGN 7)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import asyncpg
import pytest

from app import bootstrap
from app.bootstrap import StartError, build_app
from app.service import event_log
from app.settings import Settings
from app.store.wakeups import LocalWakeups
from tests.agents import Script
from tests.asgi import TIMEOUT, serving
from tests.conftest import Api


@dataclass
class Replicas:
    """Two servers with an agent each."""

    one: Api
    other: Api


@pytest.fixture
async def replicas(settings: Settings, postgres_url: str) -> AsyncIterator[Replicas]:
    shared = settings.model_copy(update={"store_url": postgres_url, "pool_size": 4})
    async with AsyncExitStack() as stack:
        apis = []
        for _ in range(2):
            script = Script()
            http = await stack.enter_async_context(serving(build_app(shared, agent=script.agent())))
            apis.append(Api(http, script))
        yield Replicas(*apis)
        for api in apis:
            for gate in list(api.script.gates.values()):
                gate.set()


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """What arrives, arrives by a hint."""
    monkeypatch.setattr(event_log, "POLL_INTERVAL", 3_600.0)
    monkeypatch.setattr(event_log, "POLL_INTERVAL_UNHEARD", 3_600.0)


@pytest.mark.usefixtures("no_polls")
async def test_a_stream_on_one_replica_shows_a_turn_on_the_other(replicas: Replicas) -> None:
    task_id = await replicas.one.held("g")
    async with asyncio.timeout(TIMEOUT):
        events = replicas.other.events(f"/tasks/{task_id}:subscribe")
        first = await anext(events)
        replicas.one.script.gates["g"].set()
        rest = [event async for event in events]
    assert first.kind == "task"
    positions = [int(event.id or 0) for event in (first, *rest)]
    assert positions == list(range(positions[0], positions[-1] + 1))
    assert rest[-1].state == "TASK_STATE_COMPLETED"


@pytest.mark.usefixtures("no_polls")
async def test_a_task_is_cancelled_from_another_replica(replicas: Replicas) -> None:
    task_id = await replicas.one.held("g")
    async with asyncio.timeout(TIMEOUT):
        response = await replicas.other.post(f"/tasks/{task_id}:cancel")
    assert response.json()["status"]["state"] == "TASK_STATE_CANCELED"
    assert replicas.one.script.cancelled == 1
    events = (await replicas.other.get(f"/tasks/{task_id}/events")).json()["events"]
    ends = [entry for entry in events if entry["event"].get("statusUpdate", {}).get("status", {}).get("state")]
    assert [entry["event"]["statusUpdate"]["status"]["state"] for entry in ends] == [
        "TASK_STATE_WORKING",
        "TASK_STATE_CANCELED",
    ]
    assert ends[-1] == events[-1]


@pytest.mark.usefixtures("no_polls")
async def test_a_listener_whose_connection_breaks_comes_back_and_misses_nothing(
    replicas: Replicas, postgres_url: str
) -> None:
    task_id = await replicas.one.held("g")
    async with asyncio.timeout(TIMEOUT):
        events = replicas.other.events(f"/tasks/{task_id}:subscribe")
        first = await anext(events)
        connection = await asyncpg.connect(postgres_url)
        try:
            cut = await connection.fetch(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND query LIKE '%pg_notify%' AND pid <> pg_backend_pid()"
            )
        finally:
            await connection.close()
        replicas.one.script.gates["g"].set()
        rest = [event async for event in events]
    assert len(cut) == 2
    assert first.kind == "task"
    assert rest[-1].state == "TASK_STATE_COMPLETED"


async def test_without_any_hint_events_arrive_by_polls(
    settings: Settings, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "build_wakeups", lambda _settings: LocalWakeups())
    shared = settings.model_copy(update={"store_url": postgres_url})
    one, other = Script(), Script()
    async with (
        serving(build_app(shared, agent=one.agent())) as http,
        serving(build_app(shared, agent=other.agent())) as other_http,
        asyncio.timeout(TIMEOUT),
    ):
        task_id = await Api(http, one).held("g")
        events = Api(other_http, other).events(f"/tasks/{task_id}:subscribe")
        await anext(events)
        one.gates["g"].set()
        assert [event async for event in events][-1].state == "TASK_STATE_COMPLETED"


@pytest.mark.setting("wakeup_url")
def test_hints_go_by_their_own_url_where_there_is_one(settings: Settings) -> None:
    pooled = settings.model_copy(update={"store_url": "postgresql://pooler/db", "wakeup_url": "sqlite:///tasks.db"})
    with pytest.raises(StartError, match=r"^A2A_WAKEUP_URL: .* is no PostgreSQL"):
        build_app(pooled, agent=Script().agent())
