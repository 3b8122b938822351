"""Sends with a key against real servers: of many at once one runs, and what was committed survives the server."""

import asyncio
import itertools
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from app.protocol.idempotency import IDEMPOTENCY_KEY_METADATA, new_key
from tests.asgi import TIMEOUT
from tests.conftest import read_events
from tests.server import Server, running_server

AT_ONCE = 100
KINDS = ("send", "send at once", "stream", "rpc", "rpc stream", "send by header")
WORDS = "one two three"


class Sent(NamedTuple):
    """What a send was answered."""

    task_id: str
    state: str
    replayed: bool


def a_message(text: str = WORDS) -> dict[str, Any]:
    metadata = {IDEMPOTENCY_KEY_METADATA: new_key()}
    return {"messageId": new_key(), "role": "ROLE_USER", "parts": [{"text": text}], "metadata": metadata}


async def send(client: httpx.AsyncClient, kind: str, message: dict[str, Any]) -> Sent:
    """Send the message in one of the ways there are."""
    path, headers = ("/message:stream" if kind == "stream" else "/message:send"), {}
    body: dict[str, Any] = {"message": message}
    if kind == "send at once":
        body["configuration"] = {"returnImmediately": True}
    if kind == "send by header":
        headers["Idempotency-Key"] = message["metadata"][IDEMPOTENCY_KEY_METADATA]
        body = {"message": {**message, "metadata": {}}}
    if kind.startswith("rpc"):
        path = "/rpc"
        method = "SendStreamingMessage" if kind == "rpc stream" else "SendMessage"
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": body}
    async with client.stream("POST", path, json=body, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        replayed = response.headers.get("idempotency-replayed") == "true"
        if "stream" in kind:
            frames = [event.data.get("result", event.data) async for event in read_events(response)]
            return Sent(frames[0]["task"]["id"], frames[-1]["statusUpdate"]["status"]["state"], replayed)
        answer = await response.aread()
    task = httpx.Response(200, content=answer).json()
    task = task.get("result", task)["task"]
    return Sent(task["id"], task["status"]["state"], replayed)


async def one_round(clients: Sequence[httpx.AsyncClient]) -> str:
    """Send one message many times at once; the id of the one task it became."""
    message = a_message()
    ways = itertools.islice(zip(itertools.cycle(clients), itertools.cycle(KINDS), strict=False), AT_ONCE)
    async with asyncio.timeout(6 * TIMEOUT):
        answers = await asyncio.gather(*(send(client, kind, message) for client, kind in ways))
    (task_id,) = {answer.task_id for answer in answers}
    assert sum(not answer.replayed for answer in answers) == 1
    states = {answer.state for answer, kind in zip(answers, itertools.cycle(KINDS), strict=False) if "once" not in kind}
    assert states == {"TASK_STATE_COMPLETED"}
    return task_id


async def rounds_of(folder: Path, rounds: int, processes: int, **settings: str) -> None:
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(running_server(folder, agent="tests.counting_agent", **settings))
            for _ in range(processes)
        ]
        clients = [await stack.enter_async_context(many_connections(server)) for server in servers]
        # The first round is one server's own.
        ids = {await one_round(clients if number else clients[:1]) for number in range(rounds)}
        assert len(ids) == rounds
        assert (await clients[0].get("/tasks")).json()["totalSize"] == rounds
    assert len((folder / "runs.txt").read_text().splitlines()) == rounds


def many_connections(server: Server) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=AT_ONCE)
    return httpx.AsyncClient(base_url=server.url, headers={"A2A-Version": "1.0"}, timeout=6 * TIMEOUT, limits=limits)


@pytest.mark.timeout(180)
async def test_of_a_hundred_identical_sends_one_runs_in_memory(tmp_path: Path) -> None:
    await rounds_of(tmp_path, 3, 1, store_url="memory://")


@pytest.mark.timeout(180)
async def test_of_a_hundred_identical_sends_one_runs_on_sqlite(tmp_path: Path) -> None:
    await rounds_of(tmp_path, 3, 1, store_url="sqlite:///./a2a.db")


@pytest.mark.timeout(180)
async def test_of_a_hundred_identical_sends_to_two_replicas_one_runs(tmp_path: Path, postgres_url: str) -> None:
    await rounds_of(tmp_path, 3, 2, store_url=postgres_url)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("store", ["memory", "sqlite", "postgresql", "two replicas"])
async def test_fifty_rounds(request: pytest.FixtureRequest, tmp_path: Path, store: str) -> None:
    if store in {"memory", "sqlite"}:
        url = "memory://" if store == "memory" else "sqlite:///./a2a.db"
    else:
        url = request.getfixturevalue("postgres_url")
    await rounds_of(tmp_path, 50, 2 if store == "two replicas" else 1, store_url=url)


async def killed_before_it_answers(folder: Path, **settings: str) -> None:
    """Kill a server that has committed sends and answered none; retry each, and one whose turn was cut as well."""
    settings = {"agent": "tests.counting_agent", "lease_ttl": "1s", **settings}
    waiting = a_message("wait")
    messages = {kind: a_message() for kind in ("send", "send at once", "stream", "rpc")}
    command = [sys.executable, "-m", "tests.dying_server"]
    async with running_server(folder, command=command, **settings) as server, server.client() as client:
        sends = [asyncio.create_task(send(client, "send", waiting))]
        await counted(folder, 1)
        sends += [asyncio.create_task(send(client, kind, message)) for kind, message in messages.items()]
        async with asyncio.timeout(6 * TIMEOUT):
            assert await server.process.wait() == -9
            answers = await asyncio.gather(*sends, return_exceptions=True)
        assert all(isinstance(answer, httpx.TransportError) for answer in answers), answers
    async with running_server(folder, **settings) as server, server.client() as client:
        tasks = (await client.get("/tasks")).json()["tasks"]
        ids = {task["history"][0]["messageId"]: task["id"] for task in tasks}
        assert len(tasks) == len(ids) == len(messages) + 1
        async with asyncio.timeout(6 * TIMEOUT):
            retries = {kind: await send(client, kind, message) for kind, message in messages.items()}
            cut = await send(client, "send", waiting)
        assert all(retry.replayed for retry in (*retries.values(), cut))
        assert {kind: retry.task_id for kind, retry in retries.items()} == {
            kind: ids[message["messageId"]] for kind, message in messages.items()
        }
        assert (cut.task_id, cut.state) == (ids[waiting["messageId"]], "TASK_STATE_FAILED")
        assert (await client.get("/tasks")).json()["totalSize"] == len(tasks)
    runs = Counter((folder / "runs.txt").read_text().split())
    # The answer that returns at once is due before its agent has begun; no run is lost unsaid, none is a second one.
    assert set(runs.values()) == {1}
    assert runs.keys() | {messages["send at once"]["messageId"]} == ids.keys()


async def counted(folder: Path, runs: int) -> None:
    """Return when the agent has begun so many runs."""
    async with asyncio.timeout(6 * TIMEOUT):
        while not (folder / "runs.txt").exists() or len((folder / "runs.txt").read_text().split()) < runs:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


@pytest.mark.timeout(180)
async def test_a_send_killed_before_its_answer_is_the_same_task_on_sqlite(tmp_path: Path) -> None:
    await killed_before_it_answers(tmp_path, store_url="sqlite:///./a2a.db")


@pytest.mark.timeout(180)
async def test_a_send_killed_before_its_answer_is_the_same_task_on_postgresql(
    tmp_path: Path, postgres_url: str
) -> None:
    await killed_before_it_answers(tmp_path, store_url=postgres_url)
