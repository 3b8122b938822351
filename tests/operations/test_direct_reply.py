"""An agent that may answer with a bare Message: then there never was a task (A2A 3.1.1, 3.1.2)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.bootstrap import build_app
from app.settings import Settings
from tests.agents import Script
from tests.asgi import TIMEOUT, serving
from tests.conftest import Api
from tests.five_methods import FiveMethodStore
from tests.operations.conftest import everywhere
from tests.requirements import requirement

KEY = "direct-reply-key-1"
TASK_METHODS = [("GET", ""), ("POST", ":cancel"), ("POST", ":subscribe"), ("GET", "/events")]


@pytest.fixture
def script() -> Script:
    return Script(may_reply=True)


async def replied(api: Api, text: str, configuration: Any = None, **options: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"message": api.message(text), "configuration": configuration or {}}
    response = await api.post("/message:send", body, **options)
    assert response.status_code == 200, response.text
    assert list(response.json()) == ["message"]
    message: dict[str, Any] = response.json()["message"]
    return message


def task_id_of(api: Api) -> str:
    return api.script.turns[-1].task.id


async def assert_nowhere(api: Api, task_id: str) -> None:
    for method, suffix in TASK_METHODS:
        response = await api.http.request(method, f"/tasks/{task_id}{suffix}")
        assert response.status_code == 404, (method, suffix, response.text)
    listed = (await api.get("/tasks")).json()
    assert (listed["tasks"], listed["totalSize"]) == ([], 0)
    follow_up = {"message": api.message("more", taskId=task_id)}
    assert (await api.post("/message:send", follow_up)).status_code == 404


@requirement("send.reply")
@everywhere
async def test_a_reply_is_a_bare_message_and_there_is_no_task(api: Api) -> None:
    message = await replied(api, "reply hi there")
    assert message["role"] == "ROLE_AGENT"
    assert message["parts"] == [{"text": "hi there"}]
    assert "taskId" not in message
    assert message["contextId"]
    await assert_nowhere(api, task_id_of(api))


@requirement("stream.reply-only")
@everywhere
async def test_a_stream_of_a_reply_is_that_message_alone(api: Api) -> None:
    (event,) = await api.stream_of("reply hi")
    assert event.kind == "message"
    assert event.data["message"]["parts"] == [{"text": "hi"}]
    await assert_nowhere(api, task_id_of(api))


@everywhere
async def test_retries_get_the_same_message_and_run_nothing(api: Api) -> None:
    send = {"message": api.message("reply hi")}
    first = await api.post("/message:send", send, headers={"Idempotency-Key": KEY})
    again = await api.post("/message:send", send, headers={"Idempotency-Key": KEY})
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    at_once = await api.post(
        "/message:send", {**send, "configuration": {"returnImmediately": True}}, headers={"Idempotency-Key": KEY}
    )
    assert at_once.json() == first.json()
    (event,) = await api.stream("/message:stream", send, headers={"Idempotency-Key": KEY})
    assert event.data == first.json()
    assert api.script.runs == 1


@requirement("send.immediately-reply")
@everywhere
async def test_nothing_is_shown_before_it_is_known_what_it_is(api: Api) -> None:
    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as group:
        at_once = group.create_task(replied(api, "reply-at gate", {"returnImmediately": True}))
        await api.script.reached["gate"].wait()
        await assert_nowhere(api, task_id_of(api))
        assert not at_once.done()
        api.script.gates["gate"].set()
    assert at_once.result()["parts"] == [{"text": "here"}]


@everywhere
async def test_anything_but_a_reply_makes_it_a_task(api: Api) -> None:
    events = await api.stream_of("chunks 2")
    assert [(event.kind, event.id) for event in events] == [
        ("task", "1"),
        ("statusUpdate", "2"),
        ("artifactUpdate", "3"),
        ("artifactUpdate", "4"),
        ("statusUpdate", "5"),
    ]
    task = await api.send("hello")
    held = await api.held("g")
    assert (await api.task(held))["status"]["state"] == "TASK_STATE_WORKING"
    assert (await api.get("/tasks")).json()["totalSize"] == 3
    api.script.gates["g"].set()
    assert (await api.task(task["id"])) == task
    asked = await api.send("ask")
    assert (await api.send("hello", taskId=asked["id"]))["status"]["state"] == "TASK_STATE_COMPLETED"


@everywhere
async def test_a_failure_reveals_the_task(api: Api) -> None:
    task = await api.send("fail")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert await api.task(task["id"]) == task
    assert (await api.get("/tasks", status="TASK_STATE_FAILED")).json()["totalSize"] == 1


async def test_a_reply_that_comes_too_late_fails_the_task(api: Api) -> None:
    assert (await api.send("reply-late hi"))["status"]["state"] == "TASK_STATE_FAILED"
    asked = await api.send("ask")
    assert (await api.send("reply hi", taskId=asked["id"]))["status"]["state"] == "TASK_STATE_FAILED"


async def test_an_agent_that_does_not_declare_it_cannot_reply(settings: Settings) -> None:
    script = Script()
    async with serving(build_app(settings, agent=script.agent())) as http:
        assert (await Api(http, script).send("reply hi"))["status"]["state"] == "TASK_STATE_FAILED"


async def test_a_reply_outlives_the_process(settings: Settings, tmp_path: Any) -> None:
    kept = settings.model_copy(update={"store_url": f"sqlite:///{tmp_path}/tasks.db"})
    answers = []
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "reply hi"}]}
    for _ in range(2):
        script = Script(may_reply=True)
        async with serving(build_app(kept, agent=script.agent())) as http:
            response = await http.post("/message:send", json={"message": message}, headers={"Idempotency-Key": KEY})
            answers.append((response.json(), script.runs))
    assert answers == [(answers[0][0], 1), (answers[0][0], 0)]
    assert list(answers[0][0]) == ["message"]


@pytest.fixture
async def plain(script: Script, settings: Settings) -> AsyncIterator[Api]:
    async with serving(build_app(settings, agent=script.agent(), store=FiveMethodStore())) as http:
        yield Api(http, script)


async def test_on_a_store_that_can_hide_nothing_a_reply_leaves_no_task(plain: Api) -> None:
    assert (await replied(plain, "reply hi"))["parts"] == [{"text": "hi"}]
    assert (await replied(plain, "reply hi", {"returnImmediately": True}))["parts"] == [{"text": "hi"}]
    (event,) = await plain.stream_of("reply hi")
    assert (event.kind, event.id) == ("message", None)
    assert (await plain.get("/tasks")).json()["tasks"] == []
