"""Deliveries: every entry, in order, at least once, to each receiver apart from the others (A2A 4.3.3; DESIGN 2)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.bootstrap import build_app
from app.settings import Settings
from tests.agents import Script
from tests.asgi import TIMEOUT, serving
from tests.conftest import Api
from tests.operations.conftest import on_every_store, store_kind, store_url  # noqa: F401 - fixtures
from tests.receiver import Received, Receiver, receiving
from tests.requirements import requirement

COMPLETED = "TASK_STATE_COMPLETED"
INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"


def push_settings(store_url: str, **members: Any) -> Settings:  # noqa: F811 - the value, not the fixture
    values: dict[str, Any] = {"push_timeout": 1.0, "push_retry": 0.05, "shutdown_grace": 0.05, **members}
    return Settings(_env_file=None, store_url=store_url, push="on", push_allow="127.0.0.1", **values)


@pytest.fixture
def settings(store_url: str) -> Settings:  # noqa: F811 - the fixture's value
    return push_settings(store_url)


@asynccontextmanager
async def server(settings: Settings, script: Script | None = None) -> AsyncIterator[Api]:
    script = script or Script()
    async with serving(build_app(settings, agent=script.agent())) as http:
        yield Api(http, script)


def inline(receiver: Receiver, **members: Any) -> dict[str, Any]:
    return {"taskPushNotificationConfig": {"url": receiver.url, **members}}


def configured(receiver: Receiver, returns_at_once: bool = True) -> dict[str, Any]:
    return {"returnImmediately": returns_at_once, **inline(receiver)}


def has_ended(request: Received) -> bool:
    return request.state == COMPLETED


def end_of(task_id: str) -> Callable[[Received], bool]:
    return lambda request: has_ended(request) and task_id in str(request.event)


async def log_of(api: Api, task_id: str) -> list[Any]:
    events = (await api.get(f"/tasks/{task_id}/events")).json()["events"]
    return [entry["event"] for entry in events]


def answers(*statuses: int, headers: Mapping[str, str] | None = None) -> Callable[[Received], tuple[int, Any]]:
    """These, and then 200."""
    rest = list(statuses)
    return lambda _: (rest.pop(0), headers or {}) if rest else (200, {})


@on_every_store
class TestDelivery:
    @requirement("push.payload")
    async def test_every_entry_of_the_turn_is_sent_in_order(self, api: Api) -> None:
        async with receiving() as receiver:
            task = await api.send("chunks 5", inline(receiver))
            requests = await receiver.until(has_ended)
            assert [request.event for request in requests] == await log_of(api, task["id"])

    @requirement("push.credentials")
    async def test_a_request_carries_what_the_configuration_says(self, api: Api) -> None:
        authentication = {"scheme": "Bearer", "credentials": "secret 1"}
        async with receiving() as receiver:
            await api.send("x", inline(receiver, token="token-1", authentication=authentication))
            for request in await receiver.until(has_ended):
                assert (request.method, request.target) == ("POST", "/hook")
                assert request.headers["content-type"] == "application/a2a+json"
                assert request.headers["content-length"] == str(len(request.body))
                assert "transfer-encoding" not in request.headers
                assert request.headers["authorization"] == "Bearer secret 1"
                assert request.headers["x-a2a-notification-token"] == "token-1"

    async def test_a_created_one_hears_what_comes_after(self, api: Api) -> None:
        task = await api.send("ask")
        before = await log_of(api, task["id"])
        async with receiving() as receiver:
            body = {"url": receiver.url}
            assert (await api.post(f"/tasks/{task['id']}/pushNotificationConfigs", body)).status_code == 200
            await api.send("chunks 2", taskId=task["id"])
            requests = await receiver.until(has_ended)
            assert [request.event for request in requests] == (await log_of(api, task["id"]))[len(before) :]

    async def test_one_in_a_later_send_hears_of_its_turn_and_of_those_that_follow(self, api: Api) -> None:
        task = await api.send("ask")
        before = await log_of(api, task["id"])
        async with receiving() as receiver:
            await api.send("ask", inline(receiver), taskId=task["id"])
            await receiver.until(lambda request: request.state == INPUT_REQUIRED)
            await api.send("x", taskId=task["id"])
            requests = await receiver.until(has_ended)
            assert [request.event for request in requests] == (await log_of(api, task["id"]))[len(before) :]

    @requirement("push.delivery", "push.retry")
    async def test_a_failed_delivery_is_made_again_before_the_next(self, api: Api) -> None:
        async with receiving(answers(500, 302, 404)) as receiver:
            task = await api.send("chunks 2", inline(receiver))
            requests = await receiver.until(has_ended)
            log = await log_of(api, task["id"])
            assert [request.event for request in requests] == [log[0]] * 3 + log


@pytest.mark.parametrize("store_kind", ["sqlite", "postgresql"])
async def test_a_restart_goes_on_where_it_was(settings: Settings) -> None:
    script = Script()
    async with receiving() as receiver:
        async with server(settings, script) as api:
            task_id = (await api.send("chunks 20", configured(receiver)))["id"]
            await receiver.received(3)
            receiver.hold.clear()
            await api.wait_for(task_id, COMPLETED)
        told = len(receiver.requests)
        receiver.hold.set()
        async with server(settings, script) as api:
            requests = await receiver.until(has_ended)
            log = await log_of(api, task_id)
            assert script.runs == 1
        assert told < len(log)
        # At least once: what was under way when the server ended may come again, and nothing is left out.
        events = [request.event for request in requests]
        assert events[:told] == log[:told]
        again = events[told:]
        assert again[0] in log[told - 1 : told + 1]
        assert again == log[log.index(again[0]) :]


@requirement("push.timeout")
@pytest.mark.setting("push_timeout")
async def test_the_settings_time_out_is_kept(settings: Settings) -> None:
    async with receiving() as receiver, server(settings.model_copy(update={"push_timeout": 0.1})) as api:
        receiver.hold.clear()
        await api.send("x", inline(receiver))
        await receiver.received(2)
        receiver.hold.set()
        await receiver.until(has_ended)


@pytest.mark.setting("push_retry")
async def test_nobody_listening_is_waited_out(settings: Settings) -> None:
    async with receiving() as gone:
        port = gone.port
    async with server(settings) as api:
        await api.send("x", {"taskPushNotificationConfig": {"url": f"http://127.0.0.1:{port}/hook"}})
        async with receiving(port=port) as back:
            await back.until(has_ended)


async def test_the_receiver_says_when_to_come_again(settings: Settings) -> None:
    times: list[float] = []

    def respond(_: Received) -> tuple[int, Mapping[str, str]]:
        times.append(asyncio.get_running_loop().time())
        return (429, {"Retry-After": "1"}) if len(times) == 1 else (200, {})

    async with receiving(respond) as receiver, server(settings) as api:
        await api.send("x", inline(receiver))
        await receiver.until(has_ended)
    assert times[1] - times[0] >= 1.0


async def test_a_receiver_that_is_gone_is_told_nothing_more(settings: Settings) -> None:
    async with receiving(answers(410)) as gone, receiving() as receiver, server(settings) as api:
        task = await api.send("ask", inline(gone))
        await gone.received(1)
        await api.send("ask", inline(receiver), taskId=task["id"])
        for _ in range(5):
            await api.send("ask", taskId=task["id"])
            await receiver.received(len(receiver.requests) + 1)
        await api.send("x", taskId=task["id"])
        await receiver.until(has_ended)
        assert len(gone.requests) == 1
        listed = (await api.get(f"/tasks/{task['id']}/pushNotificationConfigs")).json()["configs"]
        assert len(listed) == 2, "it is still there to be seen"


@requirement("push.delete")
async def test_a_deleted_one_is_told_nothing_more(settings: Settings) -> None:
    async with receiving() as deleted, receiving() as kept, server(settings) as api:
        task = await api.send("ask", inline(deleted, id="c"))
        await deleted.until(lambda request: request.state == INPUT_REQUIRED)
        told = len(deleted.requests)
        path = f"/tasks/{task['id']}/pushNotificationConfigs/c"
        assert (await api.http.delete(path)).status_code == 200
        await api.send("chunks 5", inline(kept), taskId=task["id"])
        await kept.until(has_ended)
        assert len(deleted.requests) == told


async def test_a_replaced_one_is_called_at_its_new_place_from_where_it_was(settings: Settings) -> None:
    async with receiving() as old, receiving() as new, server(settings) as api:
        task = await api.send("ask", inline(old, id="c"))
        await old.until(lambda request: request.state == INPUT_REQUIRED)
        body = {"id": "c", "url": new.url}
        assert (await api.post(f"/tasks/{task['id']}/pushNotificationConfigs", body)).status_code == 200
        await api.send("x", taskId=task["id"])
        requests = await new.until(has_ended)
        log = await log_of(api, task["id"])
        first = log.index(requests[0].event)
        assert [request.event for request in requests] == log[first:]
        assert [request.event for request in old.requests][:first] == log[:first]


async def test_a_cursor_that_truncation_overtook_gets_the_task_and_what_follows(settings: Settings) -> None:
    settings = settings.model_copy(update={"max_events_per_task": 4})
    async with receiving(lambda _: (500, {})) as receiver, server(settings) as api:
        task_id = (await api.send("ask", inline(receiver)))["id"]
        for _ in range(6):
            await api.send("ask", taskId=task_id)
        await receiver.received(1)
        receiver.respond = answers()
        whole = {"task": await api.task(task_id)}
        requests = await receiver.until(lambda request: request.event == whole)
        told = len(requests)
        await api.send("chunks 1", taskId=task_id)
        requests = await receiver.until(has_ended)
        page = (await api.get(f"/tasks/{task_id}/events", after=1)).json()
        newest = [entry["event"] for entry in page["events"]][-3:]
        assert [request.event for request in requests[told:]] == newest


@pytest.mark.parametrize("origins", [1, 100])
async def test_100_dead_receivers_slow_neither_the_task_nor_a_good_one(settings: Settings, origins: int) -> None:
    settings = settings.model_copy(update={"push_timeout": 5.0})
    async with AsyncExitStack() as stack:
        dead = [await stack.enter_async_context(receiving()) for _ in range(origins)]
        good = await stack.enter_async_context(receiving())
        api = await stack.enter_async_context(server(settings))
        for receiver in dead:
            receiver.hold.clear()
            stack.callback(receiver.hold.set)
        for number in range(100):
            await api.send("ask", configured(dead[number % origins]))
        for receiver in dead:
            await receiver.received(1 if origins > 1 else 16)
        task = await api.send("chunks 20", inline(good))
        requests = await good.until(has_ended, timeout=1.0)
        assert [request.event for request in requests] == await log_of(api, task["id"])
        assert max(len(receiver.requests) for receiver in dead) <= 20, "one is called so often at a time"


async def test_a_direct_reply_is_told_alone_and_a_task_that_is_one_from_its_start(settings: Settings) -> None:
    async with receiving() as receiver, server(settings, Script(may_reply=True)) as api:
        body = {"message": api.message("reply hello"), "configuration": inline(receiver)}
        message = (await api.post("/message:send", body)).json()["message"]
        (request,) = await receiver.received(1)
        assert request.event == {"message": message}
        task = await api.send("x", inline(receiver))
        requests = await receiver.until(has_ended)
        assert [request.event for request in requests[1:]] == await log_of(api, task["id"])


async def test_what_another_replica_replaces_is_let_go_of_at_once(postgres_url: str) -> None:
    settings = push_settings(postgres_url, lease_ttl=60.0)
    async with receiving() as old, receiving() as new, server(settings) as one, server(settings) as other:
        task = await one.send("ask", inline(old, id="c"))
        await old.until(lambda request: request.state == INPUT_REQUIRED)
        body = {"id": "c", "url": new.url}
        assert (await other.post(f"/tasks/{task['id']}/pushNotificationConfigs", body)).status_code == 200
        await unclaimed(postgres_url)
        told = len(old.requests)
        await one.send("x", taskId=task["id"])
        await new.until(has_ended)
        assert len(old.requests) == told


async def unclaimed(url: str) -> None:
    """Return when nobody delivers, long before a lease is over or renewed."""
    connection = await asyncpg.connect(url)
    async with asyncio.timeout(3 * TIMEOUT):
        while await connection.fetchval("SELECT max(claimed_until) FROM push_configs"):  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.01)
    await connection.close()


async def test_two_replicas_never_both_deliver(postgres_url: str) -> None:
    script, settings = Script(), push_settings(postgres_url)
    async with receiving() as receiver, server(settings, script) as one, server(settings, script) as other:
        apis = [one, other]
        tasks = [await apis[number % 2].send("chunks 10", configured(receiver)) for number in range(10)]
        for task in tasks:
            await receiver.until(end_of(task["id"]))
        for task in tasks:
            told = [request.event for request in receiver.requests if task["id"] in str(request.event)]
            assert told == await log_of(one, task["id"])


@pytest.mark.setting("push_allow")
async def test_a_webhook_that_may_not_be_called_is_not_called_whatever_was_stored(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with receiving() as receiver:
        async with server(push_settings(url, push_retry=3600.0)) as api:
            receiver.respond = answers(500)
            task = await api.send("x", inline(receiver))
            await receiver.received(1)
        stricter = push_settings(url).model_copy(update={"push_allow": ""})
        async with server(stricter) as api:
            refused = await api.post(f"/tasks/{task['id']}/pushNotificationConfigs", {"url": receiver.url})
            assert refused.status_code == 400
        assert len(receiver.requests) == 1
