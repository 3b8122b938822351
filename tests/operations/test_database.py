"""What the server does about its database: a small pool, an outage, a sweep."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.bootstrap import build_app
from app.settings import Settings
from tests.agents import Script
from tests.asgi import TIMEOUT, serving
from tests.conftest import Api, read_events
from tests.postgres import postgres_server
from tests.requirements import requirement
from tests.server import run_console, running_server


async def test_thirty_streams_and_fifty_sends_share_five_connections(
    script: Script, settings: Settings, postgres_url: str
) -> None:
    small = settings.model_copy(update={"store_url": postgres_url, "pool_size": 5})
    async with serving(build_app(small, agent=script.agent())) as http:
        api = Api(http, script)
        task_id = await api.held("g")

        async def follow() -> list[str | None]:
            return [event.id async for event in api.events(f"/tasks/{task_id}:subscribe")]

        following = [asyncio.create_task(follow()) for _ in range(30)]
        tasks = await asyncio.gather(*(api.send(f"hello {number}") for number in range(50)))
        assert {task["status"]["state"] for task in tasks} == {"TASK_STATE_COMPLETED"}
        script.gates["g"].set()
        async with asyncio.timeout(TIMEOUT):
            streams = await asyncio.gather(*following)
        assert {stream[-1] for stream in streams} == {"5"}


@requirement("errors.temporary")
async def test_a_short_outage_is_waited_out_by_the_turn_and_told_to_requests(
    script: Script, settings: Settings
) -> None:
    with postgres_server() as server:
        own = settings.model_copy(update={"store_url": server.url})
        async with serving(build_app(own, agent=script.agent())) as http:
            api = Api(http, script)
            task_id = await api.held("g")
            stream = api.events(f"/tasks/{task_id}:subscribe")
            await anext(stream)
            await asyncio.to_thread(server.stop)
            for response in (
                await api.get(f"/tasks/{task_id}"),
                await api.get("/readyz"),
                await api.post("/message:send", {"message": api.message("x")}),
            ):
                assert response.status_code == 503, response.text
                assert int(response.headers["retry-after"]) >= 1
                assert response.json()["error"]["details"][0]["reason"] == "UNAVAILABLE"
            assert (await api.get("/healthz")).status_code == 200
            script.gates["g"].set()
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(3 * TIMEOUT):
                events = [event async for event in stream]
            assert [event.id for event in events] == ["4", "5"]
            assert (await api.task(task_id))["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.fixture
async def swept(script: Script, settings: Settings, tmp_path: Path) -> AsyncIterator[Api]:
    url = f"sqlite:///{tmp_path}/tasks.db"
    keeping = settings.model_copy(update={"store_url": url, "retention": 0.2, "key_retention": 3_600.0})
    async with serving(build_app(keeping, agent=script.agent())) as http:
        yield Api(http, script)


@pytest.mark.setting("retention")
@requirement("keys.outlive", "security.retention")
async def test_with_a_retention_ended_tasks_go_and_a_retried_key_never_runs_again(swept: Api) -> None:
    waiting = await swept.send("ask")
    body = {"message": swept.message("hello")}
    headers = {"Idempotency-Key": "k" * 16}
    task = (await swept.post("/message:send", body, headers=headers)).json()["task"]
    async with asyncio.timeout(TIMEOUT):
        while (await swept.get(f"/tasks/{task['id']}")).status_code != 404:  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.05)
    assert (await swept.task(waiting["id"]))["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    runs = swept.script.runs
    for path in ("/message:send", "/message:stream"):
        retry = await swept.post(path, body, headers=headers)
        assert retry.status_code == 404
        assert retry.json()["error"]["details"][0]["reason"] == "TASK_NOT_FOUND"
    assert swept.script.runs == runs


async def test_purging_by_hand_removes_what_is_old(tmp_path: Path) -> None:
    settings = {"agent": "tests.sdk_agent", "store_url": "sqlite:///./a2a.db"}
    async with running_server(tmp_path, **settings) as server:
        async with server.client() as client:
            body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
            task_id = (await client.post("/message:send", json=body)).json()["task"]["id"]
        code, output = await run_console(tmp_path, "purge", "--older-than", "1ms", settings=settings)
        assert code == 2
        assert "in use by another process" in output
        assert await server.stop() == 0
    assert await run_console(tmp_path, "purge", settings=settings) == (
        2,
        "a2a: Say what is old: --older-than 30d, or A2A_RETENTION.\n",
    )
    code, output = await run_console(tmp_path, "purge", "--older-than", "1ms", settings=settings)
    assert (code, output.strip()) == (0, "Removed 1 tasks and 0 idempotency keys.")
    async with running_server(tmp_path, **settings) as server, server.client() as client:
        assert (await client.get(f"/tasks/{task_id}")).status_code == 404


async def test_a_stream_cut_by_a_restart_goes_on_after_it(tmp_path: Path) -> None:
    settings = {"agent": "tests.sdk_agent", "store_url": "sqlite:///./a2a.db"}
    async with running_server(tmp_path, **settings) as server, server.client() as client:
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "one two three"}]}}
        async with client.stream("POST", "/message:stream", json=body) as response:
            whole = [event async for event in read_events(response)]
        assert await server.stop() == 0
    async with running_server(tmp_path, **settings) as server, server.client() as client:
        path = f"/tasks/{whole[0].data['task']['id']}:subscribe"
        async with client.stream("GET", path, headers={"Last-Event-ID": "3"}) as response:
            assert [event async for event in read_events(response)] == whole[3:]
