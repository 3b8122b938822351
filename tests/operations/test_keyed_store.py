"""Keys on a store that claims them in a step of its own, keeps no log and has no leases."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.bootstrap import build_app
from app.protocol import Task
from app.protocol.errors import UnavailableError
from app.protocol.extensions import IDEMPOTENCY_EXTENSION_URI
from app.protocol.idempotency import IDEMPOTENCY_KEY_METADATA, new_key
from app.settings import Settings
from app.store import base
from tests.agents import Script
from tests.asgi import TIMEOUT, serving
from tests.conftest import Api
from tests.five_methods import KeyedStore


class SlowStore(KeyedStore):
    """Lets a test come between the claim and the insert."""

    def __init__(self) -> None:
        super().__init__()
        self.claimed = asyncio.Event()
        self.may_insert = asyncio.Event()
        self.may_insert.set()
        self.fails = 0

    async def insert_if_absent(self, task: Task) -> bool:
        self.claimed.set()
        await self.may_insert.wait()
        if self.fails:
            self.fails -= 1
            raise UnavailableError
        return await super().insert_if_absent(task)


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
async def api(script: Script, settings: Settings, store: SlowStore) -> AsyncIterator[Api]:
    async with serving(build_app(settings, agent=script.agent(), store=store)) as http:
        yield Api(http, script)
        store.may_insert.set()
        for gate in list(script.gates.values()):
            gate.set()


def keyed(api: Api, text: str, **members: Any) -> dict[str, Any]:
    return {"message": api.message(text, metadata={IDEMPOTENCY_KEY_METADATA: new_key()}, **members)}


async def test_keys_are_advertised_and_a_retry_runs_once(api: Api) -> None:
    card = (await api.get("/.well-known/agent-card.json")).json()
    assert {extension["uri"] for extension in card["capabilities"]["extensions"]} == {IDEMPOTENCY_EXTENSION_URI}
    body = keyed(api, "hello")
    first = await api.post("/message:send", body)
    second = await api.post("/message:send", body)
    assert first.json() == second.json()
    assert second.headers["idempotency-replayed"] == "true"
    (frame,) = await api.stream("/message:stream", body)
    assert (frame.id, frame.data) == (None, first.json())
    assert api.script.runs == 1


@pytest.mark.parametrize("way", ["new task", "follow-up"])
async def test_a_retry_waits_for_its_turn_and_a_stream_joins_it(api: Api, way: str) -> None:
    members = {"taskId": (await api.send("ask"))["id"]} if way == "follow-up" else {}
    runs = api.script.runs
    body = keyed(api, "hold g", **members)
    first = asyncio.create_task(api.post("/message:send", body))
    await api.script.reached["g"].wait()
    retry = asyncio.create_task(api.post("/message:send", body))
    stream = api.events("/message:stream", body)
    assert (await anext(stream)).state == "TASK_STATE_WORKING"
    assert not retry.done()
    api.script.gates["g"].set()
    assert [event.state async for event in stream][-1] == "TASK_STATE_COMPLETED"
    assert (await first).json() == (await retry).json()
    assert api.script.runs == runs + 1


async def test_a_retry_before_the_task_is_stored_waits_for_it(api: Api, store: SlowStore) -> None:
    store.may_insert.clear()
    body = keyed(api, "hello")
    first = asyncio.create_task(api.post("/message:send", body))
    await store.claimed.wait()
    retries = [asyncio.create_task(api.post("/message:send", body)) for _ in range(8)]
    await asyncio.sleep(0)
    store.may_insert.set()
    async with asyncio.timeout(TIMEOUT):
        answers = await asyncio.gather(first, *retries)
    assert len({answer.json()["task"]["id"] for answer in answers}) == 1
    assert ["idempotency-replayed" in answer.headers for answer in answers] == [False] + [True] * 8
    assert api.script.runs == 1


async def test_when_the_first_send_fails_one_of_the_waiting_retries_takes_its_place(api: Api, store: SlowStore) -> None:
    store.may_insert.clear()
    store.fails = 1
    body = keyed(api, "hello")
    first = asyncio.create_task(api.post("/message:send", body))
    await store.claimed.wait()
    retries = [asyncio.create_task(api.post("/message:send", body)) for _ in range(8)]
    await asyncio.sleep(0)
    store.may_insert.set()
    async with asyncio.timeout(TIMEOUT):
        answers = await asyncio.gather(*retries)
    assert (await first).status_code == 503
    assert len({answer.json()["task"]["id"] for answer in answers}) == 1
    assert sum("idempotency-replayed" in answer.headers for answer in answers) == 7
    assert api.script.runs == 1


async def test_a_retry_does_not_wait_for_ever(api: Api, store: SlowStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "CLAIM_WAIT", 0.05)
    store.may_insert.clear()
    body = keyed(api, "hello")
    first = asyncio.create_task(api.post("/message:send", body))
    await store.claimed.wait()
    assert (await api.post("/message:send", body)).status_code == 404
    store.may_insert.set()
    assert (await first).status_code == 200
