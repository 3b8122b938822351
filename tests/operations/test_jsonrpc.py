"""The JSON-RPC binding (A2A 9): envelope, errors, streams; the operations behind it are those of REST."""

import json
from typing import Any

import httpx
import pytest

from tests.conftest import Api, Event, read_events
from tests.operations.conftest import on_every_store
from tests.requirements import requirement


async def call(api: Api, method: str, params: Any, path: str = "/rpc", **headers: str) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    response = await api.http.post(path, json=body, headers=headers)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    assert answer["jsonrpc"] == "2.0"
    assert answer["id"] == 1
    return answer


async def raw(api: Api, body: bytes, content_type: str = "application/json") -> httpx.Response:
    return await api.http.post("/rpc", content=body, headers={"Content-Type": content_type})


async def streamed(api: Api, method: str, params: Any, **headers: str) -> list[Event]:
    body = {"jsonrpc": "2.0", "id": "s", "method": method, "params": params}
    async with api.http.stream("POST", "/rpc", json=body, headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream"), await response.aread()
        events = [event async for event in read_events(response)]
    for event in events:
        assert event.data.pop("jsonrpc") == "2.0"
        assert event.data.pop("id") == "s"
        event.data = event.data["result"]
    return events


@requirement("bindings.equal", "rpc.methods")
@on_every_store
@pytest.mark.parametrize("path", ["/rpc", "/rpc/"])
async def test_the_operations_answer_as_over_rest(api: Api, path: str) -> None:
    task = (await call(api, "SendMessage", {"message": api.message("hello")}, path))["result"]["task"]
    assert task == await api.task(task["id"])
    assert (await call(api, "GetTask", {"id": task["id"]}))["result"] == task
    assert (await call(api, "ListTasks", {}))["result"] == (await api.get("/tasks")).json()
    waiting = (await call(api, "SendMessage", {"message": api.message("ask")}))["result"]["task"]
    canceled = (await call(api, "CancelTask", {"id": waiting["id"]}))["result"]
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"


async def test_params_are_read_in_snake_case_too(api: Api) -> None:
    message = {"message_id": "m", "role": "ROLE_USER", "parts": [{"text": "x"}], "context_id": "c"}
    params = {"message": message, "configuration": {"history_length": 0}}
    task = (await call(api, "SendMessage", params))["result"]["task"]
    assert task["contextId"] == "c"
    assert "history" not in task
    assert (await call(api, "ListTasks", {"page_size": 1, "context_id": "c"}))["result"]["pageSize"] == 1


@requirement("rpc.streams")
@on_every_store
async def test_streams_carry_the_requests_id_and_resume_as_over_rest(api: Api) -> None:
    whole = await streamed(api, "SendStreamingMessage", {"message": api.message("chunks 4")})
    assert [event.id for event in whole] == [str(number) for number in range(1, 8)]
    task_id = whole[0].data["task"]["id"]
    over_rest = await api.stream(f"/tasks/{task_id}:subscribe", headers={"Last-Event-ID": "0"})
    assert over_rest == whole
    rest = await streamed(api, "SubscribeToTask", {"id": task_id}, **{"Last-Event-ID": "3"})
    assert rest == whole[3:]
    at_end = await call(api, "SubscribeToTask", {"id": task_id}, **{"Last-Event-ID": "7"})
    assert at_end["error"]["code"] == -32004


@requirement("rpc.envelope")
@pytest.mark.parametrize("given", ["0", '""', "null", "1.5", '"a"', "-7", "12345678901234"])
async def test_the_id_comes_back_as_it_was(api: Api, given: str) -> None:
    body = f'{{"jsonrpc":"2.0","id":{given},"method":"GetTask","params":{{"id":"nowhere"}}}}'
    response = await raw(api, body.encode())
    assert f'"id":{given},' in response.text
    assert response.json()["error"]["code"] == -32001


@requirement("rpc.errors")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"hello", -32700),
        (b"", -32700),
        (b'{"jsonrpc":"2.0","id":1', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":NaN}}', -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ListTasks"}]', -32600),
        (b"7", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ListTasks"}', -32600),
        (b'{"jsonrpc":"2.0","method":"ListTasks"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ListTasks"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ListTasks"}', -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"tasks/get"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"sendMessage"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[]}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":null}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask"}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"parts":[]}}}', -32602),
    ],
)
async def test_each_fault_of_the_envelope_has_its_code(api: Api, body: bytes, code: int) -> None:
    response = await raw(api, body)
    assert response.status_code == 200
    assert set(response.json()) == {"jsonrpc", "id", "error"}
    error = response.json()["error"]
    assert error["code"] == code
    assert isinstance(error["data"], list)
    assert api.script.runs == 0


@pytest.mark.parametrize(
    ("method", "code", "reason"),
    [
        ("CreateTaskPushNotificationConfig", -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ("GetTaskPushNotificationConfig", -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ("ListTaskPushNotificationConfigs", -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ("DeleteTaskPushNotificationConfig", -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ("GetExtendedAgentCard", -32004, "UNSUPPORTED_OPERATION"),
    ],
)
async def test_what_is_not_supported_says_so(api: Api, method: str, code: int, reason: str) -> None:
    params = {"id": "c", "taskId": "t", "url": "https://example.com"}
    error = (await call(api, method, params))["error"]
    assert (error["code"], error["data"][0]["reason"]) == (code, reason)


async def test_the_version_is_asked_for(api: Api) -> None:
    error = (await call(api, "ListTasks", {}, **{"A2A-Version": "0.3"}))["error"]
    assert error["code"] == -32009


async def test_a_body_of_another_media_type_is_refused_by_its_header(api: Api) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}).encode()
    assert (await raw(api, body, "text/plain")).json()["error"]["code"] == -32005


async def test_a_body_that_is_too_large_is_too_large_for_http(api: Api) -> None:
    response = await raw(api, b'"' + b"x" * 5_000_000 + b'"')
    assert response.status_code == 413


async def test_tenants_stand_in_the_path_or_the_params(api: Api) -> None:
    task = (await call(api, "SendMessage", {"message": api.message("x")}, "/acme/rpc"))["result"]["task"]
    assert (await call(api, "GetTask", {"id": task["id"], "tenant": "acme"}))["result"] == task
    assert (await call(api, "GetTask", {"id": task["id"]}))["error"]["code"] == -32001
    assert (await call(api, "GetTask", {"id": task["id"], "tenant": "b"}, "/acme/rpc"))["error"]["code"] == -32602


@on_every_store
async def test_a_key_in_the_header_counts(api: Api) -> None:
    params = {"message": api.message("hello")}
    first = await call(api, "SendMessage", params, **{"Idempotency-Key": "k" * 16})
    assert await call(api, "SendMessage", params, **{"Idempotency-Key": "k" * 16}) == first
    assert api.script.runs == 1


@pytest.mark.parametrize("number", [2**53 + 1, 2**64, -(2**70), 10**300, 0.1])
async def test_numbers_are_kept_as_they_are_as_over_rest(api: Api, number: float) -> None:
    parts = [{"text": "x", "metadata": {"n": number}}]
    message = api.message("x", parts=parts, metadata={"n": number})
    tasks = [
        (await call(api, "SendMessage", {"message": message}))["result"]["task"],
        (await api.post("/message:send", {"message": message})).json()["task"],
    ]
    for task in tasks:
        assert json.dumps(task["history"]) == json.dumps([message])
        assert (await api.task(task["id"]))["history"] == [message]


async def test_a_fault_in_the_params_is_named_as_over_rest(api: Api) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": 7}]}
    error = (await call(api, "SendMessage", {"message": message}))["error"]
    over_rest = (await api.post("/message:send", {"message": message})).json()["error"]
    assert error["data"] == over_rest["details"]
    params = (await call(api, "SendMessage", [1]))["error"]
    assert params["data"][0]["fieldViolations"] == [{"field": "params", "description": "must be an object"}]
