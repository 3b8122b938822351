"""The server on a store of five methods: it works, and promises no more than it can keep."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.bootstrap import build_app
from app.settings import Settings
from tests.agents import Script
from tests.asgi import serving
from tests.conftest import Api
from tests.five_methods import FiveMethodStore
from tests.requirements import requirement


@pytest.fixture
async def api(script: Script, settings: Settings) -> AsyncIterator[Api]:
    app = build_app(settings, agent=script.agent(), store=FiveMethodStore())
    async with serving(app) as http:
        yield Api(http, script)
        for gate in list(script.gates.values()):
            gate.set()


async def test_sends_streams_and_turns_work(api: Api) -> None:
    task = await api.send("hello")
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert await api.task(task["id"]) == task
    asked = await api.send("ask")
    answered = await api.send("chunks 3", taskId=asked["id"])
    assert answered["status"]["state"] == "TASK_STATE_COMPLETED"
    assert len(answered["artifacts"][0]["parts"]) == 3
    assert (await api.get("/tasks")).json()["totalSize"] == 2


async def test_streams_carry_no_ids_and_cursors_are_ignored(api: Api) -> None:
    events = await api.stream_of("chunks 3")
    assert [event.kind for event in events] == ["task", "statusUpdate", *["artifactUpdate"] * 3, "statusUpdate"]
    assert {event.id for event in events} == {None}
    task_id = await api.held("g")
    stream = api.events(f"/tasks/{task_id}:subscribe", headers={"Last-Event-ID": "99"})
    first = await anext(stream)
    assert (first.kind, first.id) == ("task", None)
    api.script.gates["g"].set()
    rest = [event async for event in stream]
    assert rest[-1].state == "TASK_STATE_COMPLETED"


async def test_a_follow_up_stream_begins_with_the_task(api: Api) -> None:
    asked = await api.send("ask")
    events = await api.stream_of("chunks 2", taskId=asked["id"])
    assert events[0].state == "TASK_STATE_WORKING"
    assert events[-1].state == "TASK_STATE_COMPLETED"


@requirement("card.extensions")
async def test_keys_are_refused_and_not_advertised(api: Api) -> None:
    body = {"message": api.message("x")}
    response = await api.post("/message:send", body, headers={"Idempotency-Key": "k" * 16})
    assert response.status_code == 400
    assert response.json()["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"
    assert api.script.runs == 0
    card = (await api.get("/.well-known/agent-card.json")).json()
    assert card["capabilities"].get("extensions", []) == []


async def test_there_is_no_log_to_read(api: Api) -> None:
    task = await api.send("x")
    response = await api.get(f"/tasks/{task['id']}/events")
    assert response.json()["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"


async def test_a_running_task_takes_no_second_message_and_can_be_cancelled(api: Api) -> None:
    task_id = await api.held("g")
    response = await api.post("/message:send", {"message": api.message("x", taskId=task_id)})
    assert response.json()["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"
    stream = api.events(f"/tasks/{task_id}:subscribe")
    await anext(stream)
    canceled = await api.post(f"/tasks/{task_id}:cancel")
    assert canceled.json()["status"]["state"] == "TASK_STATE_CANCELED"
    assert [event.state async for event in stream][-1] == "TASK_STATE_CANCELED"
    waiting = await api.send("ask")
    assert (await api.post(f"/tasks/{waiting['id']}:cancel")).json()["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_tenant_is_refused_since_the_store_cannot_keep_tenants_apart(api: Api) -> None:
    response = await api.get("/acme/tasks")
    assert response.status_code == 400
    assert response.json()["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"


async def test_many_turns_at_once_stay_apart(api: Api) -> None:
    tasks = await asyncio.gather(*(api.send(f"chunks {number}") for number in range(1, 9)))
    assert sorted(len(task["artifacts"][0]["parts"]) for task in tasks) == list(range(1, 9))


async def test_push_is_off_even_where_it_is_switched_on(script: Script, settings: Settings) -> None:
    switched_on = settings.model_copy(update={"push": "on"})
    async with serving(build_app(switched_on, agent=script.agent(), store=FiveMethodStore())) as http:
        card = (await http.get("/.well-known/agent-card.json")).json()
        assert card["capabilities"]["pushNotifications"] is False
        for response in (
            await http.get("/tasks/x/pushNotificationConfigs"),
            await http.post("/rpc", json={"jsonrpc": "2.0", "id": 1, "method": "CreateTaskPushNotificationConfig"}),
        ):
            assert "PUSH_NOTIFICATION_NOT_SUPPORTED" in response.text
