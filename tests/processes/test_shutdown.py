"""SIGTERM with work under way: nothing is lost, and the process is gone when it said it would be (DESIGN 7, 11)."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from tests.conftest import Event, read_events
from tests.server import running_server

AGENT = "tests.processes.shutdown_agent"
STREAMS = 60
WAIT = 30.0
"""Seconds: the machine may be busy, and there are many connections."""


def body(text: object, **configuration: Any) -> dict[str, Any]:
    message = {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": str(text)}]}
    return {"message": message, "configuration": configuration}


async def begin(client: httpx.AsyncClient, text: object) -> str:
    response = await client.post("/message:send", json=body(text, returnImmediately=True))
    task_id: str = response.json()["task"]["id"]
    return task_id


class Watch:
    """A subscription, read to its end."""

    def __init__(self, client: httpx.AsyncClient, task_id: str, after: str | None = None) -> None:
        self.opened = asyncio.Event()
        self._client = client
        self._path = f"/tasks/{task_id}:subscribe"
        self._headers = {"Last-Event-ID": after} if after is not None else {}

    async def read(self) -> tuple[list[Event], str]:
        """The events, and the last line."""
        text = ""
        async with self._client.stream("GET", self._path, headers=self._headers) as response:
            assert response.status_code == 200, await response.aread()
            async for piece in response.aiter_text():
                text += piece
                self.opened.set()
        events = [event async for event in read_events(httpx.Response(200, text=text)) if event.id is not None]
        return events, text.rstrip("\n").rpartition("\n")[2]


async def until(seen: Callable[[], Awaitable[bool]]) -> None:
    while not await seen():  # noqa: ASYNC110 - seen from outside
        await asyncio.sleep(0.01)


async def state_of(client: httpx.AsyncClient, task_id: str) -> str:
    state: str = (await client.get(f"/tasks/{task_id}")).json()["status"]["state"]
    return state


async def tasks(client: httpx.AsyncClient) -> list[str]:
    return [task["id"] for task in (await client.get("/tasks")).json()["tasks"]]


async def is_draining(client: httpx.AsyncClient) -> bool:
    return (await client.get("/readyz")).status_code == 503


async def test_turns_end_within_the_grace_and_streams_are_told_to_come_back(tmp_path: Path) -> None:
    settings = {"agent": AGENT, "store_url": f"sqlite:///{tmp_path}/tasks.db", "shutdown_grace": "1h"}
    end = tmp_path / "end"
    async with running_server(tmp_path, **settings) as server, server.client() as client, asyncio.timeout(WAIT):
        task_id = await begin(client, end)
        async with asyncio.TaskGroup() as group:
            watches = [Watch(client, task_id) for _ in range(STREAMS)]
            streams = [group.create_task(watch.read()) for watch in watches]
            blocking = group.create_task(client.post("/message:send", json=body(end)))
            await asyncio.gather(*(watch.opened.wait() for watch in watches))

            async def both_run() -> bool:
                return len(await tasks(client)) == 2

            await until(both_run)
            server.process.send_signal(signal.SIGTERM)
            await until(lambda: is_draining(client))
            refused = await client.post("/message:send", json=body(end))
            assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
            assert (await client.get(f"/tasks/{task_id}:subscribe")).status_code == 503
            for found in await asyncio.gather(*streams):
                events, last_line = found
                assert events[0].kind == "task"
                assert last_line.startswith("retry: ")
            assert await state_of(client, task_id) == "TASK_STATE_WORKING"
            end.touch()
        assert blocking.result().json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert await server.process.wait() == 0
    async with running_server(tmp_path, **settings) as server, server.client() as client:
        assert await state_of(client, task_id) == "TASK_STATE_COMPLETED"


async def test_a_turn_that_does_not_end_goes_on_at_another_replica(tmp_path: Path, postgres_url: str) -> None:
    settings = {"agent": AGENT, "store_url": postgres_url, "shutdown_grace": "300ms", "lease_ttl": "60s"}
    async with (
        running_server(tmp_path, **settings) as one,
        running_server(tmp_path, **settings) as other,
        one.client() as client,
        other.client() as other_client,
        asyncio.timeout(WAIT),
    ):
        async with asyncio.TaskGroup() as group:
            blocking = group.create_task(client.post("/message:send", json=body(tmp_path / "never")))

            async def it_runs() -> bool:
                return bool(await tasks(client))

            await until(it_runs)
            (task_id,) = await tasks(client)
            watch = Watch(client, task_id)
            watched = group.create_task(watch.read())
            await watch.opened.wait()
            one.process.send_signal(signal.SIGTERM)
        # An answer, and no error that would make a caller without a key send again.
        assert blocking.result().status_code == 200
        assert blocking.result().json()["task"]["status"]["state"] == "TASK_STATE_WORKING"
        events, last_line = watched.result()
        assert last_line.startswith("retry: ")
        assert await one.process.wait() == 0
        rest, _ = await Watch(other_client, task_id, events[-1].id).read()
        positions = [int(event.id or 0) for event in (*events, *rest)]
        assert positions == list(range(positions[0], positions[-1] + 1))
        assert rest[-1].state == "TASK_STATE_COMPLETED"
        task = (await other_client.get(f"/tasks/{task_id}")).json()
        assert [artifact["parts"] for artifact in task["artifacts"]] == [[{"text": "attempt 2"}]] * 2


async def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    settings = {"agent": AGENT, "store_url": "memory://", "shutdown_grace": "1h"}
    async with running_server(tmp_path, **settings) as server, server.client() as client, asyncio.timeout(WAIT):
        await begin(client, tmp_path / "never")
        server.process.send_signal(signal.SIGTERM)
        await until(lambda: is_draining(client))
        assert await server.stop() == 128 + signal.SIGTERM
