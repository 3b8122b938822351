"""SIGKILL under load: what was acknowledged is there, the log has no hole, every task is settled."""

import asyncio
import random
import signal
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import read_events
from tests.server import Server, running_server

TERMINAL = {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"}
CLIENTS = 8
SETTLE_LIMIT = 15.0
"""Seconds in which a restarted server has every task settled; several lease times."""

Acknowledged = dict[str, dict[int, Any]]


async def keep_streaming(server: Server, acknowledged: Acknowledged) -> None:
    """Stream tasks one after another until the server is gone, noting every event that was shown."""
    async with server.client() as client:
        with suppress(httpx.TransportError):
            while True:
                body = {
                    "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "one two three four five"}]}
                }
                async with client.stream("POST", "/message:stream", json=body) as response:
                    task_id = ""
                    async for event in read_events(response):
                        task_id = event.data["task"]["id"] if event.kind == "task" else task_id
                        acknowledged[task_id][int(event.id or 0)] = event.data


async def keep_sending(server: Server, acknowledged: Acknowledged) -> None:
    """Send and wait, noting every task that was answered as completed."""
    async with server.client() as client:
        with suppress(httpx.TransportError):
            while True:
                body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "one"}]}}
                task = (await client.post("/message:send", json=body)).json()["task"]
                assert task["status"]["state"] == "TASK_STATE_COMPLETED"
                acknowledged[task["id"]].setdefault(0, task)


async def all_tasks(client: httpx.AsyncClient) -> AsyncIterator[dict[str, Any]]:
    token = ""
    while True:
        page = (await client.get("/tasks", params={"pageSize": 100, "pageToken": token})).json()
        for task in page["tasks"]:
            yield task
        token = page["nextPageToken"]
        if not token:
            return


async def settled(server: Server) -> None:
    """Return when no task is left SUBMITTED or WORKING."""
    async with server.client() as client, asyncio.timeout(SETTLE_LIMIT):
        while [task async for task in all_tasks(client) if task["status"]["state"] not in TERMINAL]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def check(server: Server, acknowledged: Acknowledged) -> None:
    """Every promise about the log, for every task there is."""
    async with server.client() as client:
        seen = set()
        async for task in all_tasks(client):
            seen.add(task["id"])
            page = (await client.get(f"/tasks/{task['id']}/events", params={"limit": 10_000})).json()
            log = {entry["seq"]: entry["event"] for entry in page["events"]}
            assert list(log) == list(range(1, len(log) + 1)), "the log has no hole"
            assert page["lastSeq"] == len(log)
            states = [
                (seq, event["statusUpdate"]["status"]["state"]) for seq, event in log.items() if "statusUpdate" in event
            ]
            ends = [seq for seq, state in states if state in TERMINAL]
            assert ends == [len(log)], "exactly one terminal entry, and it is the last"
            assert states[-1][1] == task["status"]["state"]
            for seq, data in acknowledged.get(task["id"], {}).items():
                assert seq == 0 or log[seq] == data, "what was shown is what is kept"
                if seq == 0:
                    assert task["status"] == data["status"]
        assert set(acknowledged) <= seen, "what was acknowledged is there"


async def some_more(acknowledged: Acknowledged) -> None:
    """Return when a few more tasks were shown than before: a round that shows nothing proves nothing."""
    enough = len(acknowledged) + CLIENTS
    async with asyncio.timeout(SETTLE_LIMIT):
        while len(acknowledged) < enough:  # noqa: ASYNC110 - what another process does cannot be waited for
            await asyncio.sleep(0.01)


async def kill_rounds(folder: Path, rounds: int, seed: int, **settings: str) -> None:
    """Kill the server so many times under load, and look at what is left after each."""
    chance = random.Random(seed)
    acknowledged: Acknowledged = defaultdict(dict)
    settings = {"agent": "tests.sdk_agent", "lease_ttl": "1s", **settings}
    for _ in range(rounds):
        async with running_server(folder, **settings) as server:
            await settled(server)
            await check(server, acknowledged)
            async with asyncio.TaskGroup() as clients:
                for client in range(CLIENTS):
                    work = keep_streaming if client % 2 else keep_sending
                    clients.create_task(work(server, acknowledged))
                await some_more(acknowledged)
                await asyncio.sleep(chance.uniform(0.0, 0.4))
                await server.stop(signal.SIGKILL)
    async with running_server(folder, **settings) as server:
        await settled(server)
        await check(server, acknowledged)
        assert await server.stop() == 0


@pytest.mark.timeout(240)
async def test_sqlite_survives_kills(tmp_path: Path) -> None:
    await kill_rounds(tmp_path, 5, seed=1, store_url="sqlite:///./a2a.db")


@pytest.mark.timeout(240)
async def test_postgresql_survives_kills(tmp_path: Path, postgres_url: str) -> None:
    await kill_rounds(tmp_path, 5, seed=2, store_url=postgres_url)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_sqlite_survives_a_hundred_kills(tmp_path: Path) -> None:
    await kill_rounds(tmp_path, 100, seed=3, store_url="sqlite:///./a2a.db")


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_postgresql_survives_a_hundred_kills(tmp_path: Path, postgres_url: str) -> None:
    await kill_rounds(tmp_path, 100, seed=4, store_url=postgres_url)
