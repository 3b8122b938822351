"""A keyed send that fails at any step: its key is free, or it stands for a task whose turn runs (DESIGN 6)."""

import itertools
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.bootstrap import build_app
from app.protocol.idempotency import IDEMPOTENCY_KEY_METADATA, new_key
from app.settings import Settings
from app.store.appender import Appender
from app.store.base import TaskStore
from app.store.memory import MemoryTaskStore
from tests.agents import Script
from tests.asgi import serving
from tests.conftest import Api
from tests.faults import Drops, Fault
from tests.operations.conftest import on_every_store

WAYS = ["send", "send at once", "stream", "rpc", "follow-up"]


@pytest.fixture
def drops() -> Drops:
    return Drops()


@pytest.fixture
def store() -> TaskStore | None:
    """A store other than the one the settings name."""
    return None


@pytest.fixture
async def api(script: Script, settings: Settings, store: TaskStore | None, drops: Drops) -> AsyncIterator[Api]:
    async with serving(build_app(settings, agent=script.agent(), store=store), drops.around) as http:
        yield Api(http, script)


def keyed(api: Api, **members: Any) -> dict[str, Any]:
    return {"message": api.message("hello", metadata={IDEMPOTENCY_KEY_METADATA: new_key()}, **members)}


async def body_for(api: Api, way: str) -> dict[str, Any]:
    return keyed(api, taskId=(await api.send("ask"))["id"]) if way == "follow-up" else keyed(api)


async def post(api: Api, way: str, body: dict[str, Any]) -> httpx.Response:
    if way == "rpc":
        return await api.post("/rpc", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": body})
    if way == "send at once":
        body = {**body, "configuration": {"returnImmediately": True}}
    return await api.post("/message:stream" if way == "stream" else "/message:send", body)


async def check_retry(api: Api, body: dict[str, Any]) -> httpx.Response:
    """The retry of a send that failed is answered with a task of its own that has run to its end, once."""
    retry = await api.post("/message:send", body)
    assert retry.status_code == 200, retry.text
    task = retry.json()["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert body["message"]["messageId"] in {message["messageId"] for message in task["history"]}
    ran = [turn for turn in api.script.turns if turn.message.message_id == body["message"]["messageId"]]
    assert len(ran) == 1
    listed = (await api.get("/tasks", pageSize=100)).json()["tasks"]
    messages = [message["messageId"] for task in listed for message in task["history"]]
    assert messages.count(body["message"]["messageId"]) == 1
    return retry


@on_every_store
@pytest.mark.parametrize("way", WAYS)
async def test_a_request_dropped_at_any_await_leaves_no_key_without_a_turn(api: Api, drops: Drops, way: str) -> None:
    for suspension in itertools.count(1):
        body = await body_for(api, way)
        drops.drop_at(suspension)
        try:
            await post(api, way, body)
        except httpx.ReadError:
            assert not drops.disarm()
        finished = drops.disarm()
        await check_retry(api, body)
        if finished:
            assert suspension > 1
            return


@pytest.mark.parametrize("store_kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("way", ["send", "follow-up"])
async def test_a_database_that_fails_at_any_statement_leaves_the_key_free(
    api: Api, monkeypatch: pytest.MonkeyPatch, store_kind: str, way: str
) -> None:
    fault = Fault()
    # What claims keys; a transaction that ends a lease may be under way beside it.
    script = Appender._script
    monkeypatch.setattr(Appender, "_script", lambda *of, **how: fault.script(script(*of, **how)))
    for statement in itertools.count(1):
        body = await body_for(api, way)
        fault.strike(statement)
        failed = await post(api, way, body)
        struck = fault.struck
        retry = await check_retry(api, body)
        assert "idempotency-replayed" not in retry.headers or not struck
        if not struck:
            assert failed.status_code == 200
            assert statement > 3
            return
        assert failed.status_code == 503
        assert int(failed.headers["retry-after"]) >= 1


async def test_a_refused_webhook_leaves_the_key_free(api: Api) -> None:
    body = keyed(api)
    webhook = {"taskPushNotificationConfig": {"url": "http://127.0.0.1/"}}
    assert (await api.post("/message:send", {**body, "configuration": webhook})).status_code == 400
    assert api.script.runs == 0
    retry = await check_retry(api, body)
    assert "idempotency-replayed" not in retry.headers


class TestCaps:
    """A store that is full."""

    @pytest.fixture
    def store(self) -> TaskStore:
        return MemoryTaskStore(max_tasks=2, max_keys=2)

    @pytest.mark.parametrize("way", ["send", "send at once", "stream", "rpc"])
    async def test_a_full_store_says_so_and_leaves_the_key_free(self, api: Api, way: str) -> None:
        held = await api.held("g"), await api.held("h")
        body = keyed(api)
        refused = await post(api, way, body)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert api.script.runs == len(held)
        api.script.gates["g"].set()
        await api.wait_for(held[0], "TASK_STATE_COMPLETED")
        retry = await check_retry(api, body)
        assert "idempotency-replayed" not in retry.headers
        api.script.gates["h"].set()

    @pytest.mark.parametrize("way", WAYS)
    async def test_a_full_index_says_so_and_nothing_runs(self, api: Api, way: str) -> None:
        held = [keyed(api), keyed(api)]
        for body in held:
            await post(api, "send", body)
        body = await body_for(api, way)
        before = api.script.runs
        refused = await post(api, way, body)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert api.script.runs == before
        assert (await api.post("/message:send", {"message": api.message("without a key")})).status_code == 200
