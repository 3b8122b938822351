"""A replica that stood still while its lease ended, and another took its turns, writes nothing when it wakes."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server import Server, running_server

AGENT = "tests.processes.fencing_agent"
WAIT = 60.0


def body(text: str, **configuration: Any) -> dict[str, Any]:
    message = {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"message": message, "configuration": configuration}


async def entries(client: httpx.AsyncClient, task_id: str) -> list[dict[str, Any]]:
    response = await client.get(f"/tasks/{task_id}/events", params={"limit": 10_000})
    found: list[dict[str, Any]] = response.json()["events"]
    return found


def writers(log: list[dict[str, Any]]) -> list[str]:
    updates = [entry["event"]["artifactUpdate"] for entry in log if "artifactUpdate" in entry["event"]]
    return [update["artifact"]["parts"][0]["text"] for update in updates]


async def one_round(sleeper: Server, taker: Server) -> None:
    async with sleeper.client() as client, taker.client() as other, asyncio.timeout(WAIT):
        sent = await client.post("/message:send", json=body("endless", returnImmediately=True))
        task_id = sent.json()["task"]["id"]
        while len(writers(await entries(client, task_id))) < 3:  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.01)
        sleeper.process.send_signal(signal.SIGSTOP)
        try:
            async with other.stream("GET", f"/tasks/{task_id}:subscribe") as response:
                async for _ in response.aiter_bytes():
                    pass
        finally:
            sleeper.process.send_signal(signal.SIGCONT)
        ended = await entries(other, task_id)
        # By the time that this is answered, the sleeper has tried to go on.
        assert (await client.post("/message:send", json=body("quick"))).status_code == 200
        log = await entries(other, task_id)
    assert log == ended
    assert [entry["seq"] for entry in log] == list(range(1, len(log) + 1))
    assert log[-1]["event"]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    *before, last = writers(log)
    assert set(before) == {str(sleeper.process.pid)}
    assert last == str(taker.process.pid)


async def run_rounds(folder: Path, store_url: str, rounds: int) -> None:
    settings = {"agent": AGENT, "store_url": store_url, "lease_ttl": "1s", "keep_alive": "2s"}
    async with running_server(folder, **settings) as one, running_server(folder, **settings) as other:
        for number in range(rounds):
            sleeper, taker = (one, other) if number % 2 else (other, one)
            await one_round(sleeper, taker)


@pytest.mark.timeout(240)
async def test_a_replica_that_was_stopped_writes_nothing_when_it_wakes(tmp_path: Path, postgres_url: str) -> None:
    await run_rounds(tmp_path, postgres_url, 5)


@pytest.mark.long
async def test_a_replica_that_was_stopped_writes_nothing_a_hundred_times(tmp_path: Path, postgres_url: str) -> None:
    await run_rounds(tmp_path, postgres_url, 100)
