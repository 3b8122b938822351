"""What the conformance kit and real clients showed that servers get wrong, asked of both bindings."""

from collections.abc import Callable
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf import json_format

from tests.conftest import Api, Event, read_events
from tests.operations.bindings import JSONRPC, REST, REST_PATHS, invoke, on_both_bindings, request

A2A_JSON = "application/a2a+json"
ANSWERS = {
    "SendMessage": pb.SendMessageResponse,
    "SendStreamingMessage": pb.StreamResponse,
    "GetTask": pb.Task,
    "ListTasks": pb.ListTasksResponse,
    "CancelTask": pb.Task,
    "SubscribeToTask": pb.StreamResponse,
}


def in_snake_case(value: Any) -> Any:
    """The same JSON, with the names of members as protobuf has them."""
    if isinstance(value, list):
        return [in_snake_case(one) for one in value]
    if isinstance(value, dict):
        return {
            "".join("_" + letter.lower() if letter.isupper() else letter for letter in name): in_snake_case(inner)
            for name, inner in value.items()
        }
    return value


def nulls(value: Any, path: str = "") -> list[str]:
    """Where JSON has a null that is not the content of a data part."""
    if value is None:
        return [] if "data" in path.split(".") else [path]
    inner = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    return [found for name, one in inner for found in nulls(one, f"{path}.{name}")]


@pytest.mark.parametrize("path", ["/rpc", "/rpc/", "/acme/rpc", "/acme/rpc/"])
async def test_json_rpc_answers_at_its_url_with_and_without_a_slash(api: Api, path: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
    response = await api.http.post(path, json=body)
    assert (response.status_code, response.json()["result"]["tasks"]) == (200, [])


@on_both_bindings
async def test_parameters_are_read_in_camel_case_and_in_snake_case(api: Api, binding: str) -> None:
    spellings: list[Callable[[Any], Any]] = [lambda value: value, in_snake_case]
    for spelled in spellings:
        params = {
            "message": api.message(
                "x", contextId="c", referenceTaskIds=["r"], parts=[{"text": "x", "mediaType": "text/plain"}]
            ),
            "configuration": {"historyLength": 1, "acceptedOutputModes": [], "returnImmediately": False},
        }
        task = (await invoke(api, binding, "SendMessage", spelled(params))).result["task"]
        assert task["contextId"] == "c"
        (message,) = task["history"]
        assert (message["referenceTaskIds"], message["parts"][0]["mediaType"]) == (["r"], "text/plain")
    if binding == JSONRPC:
        page = {"contextId": "c", "pageSize": 1, "historyLength": 0, "includeArtifacts": True, "status": None}
        for listed in (page, in_snake_case(page)):
            result = (await invoke(api, binding, "ListTasks", listed)).result
            assert (len(result["tasks"]), result["pageSize"], result["totalSize"]) == (1, 1, 2)
            assert "history" not in result["tasks"][0]
            assert "artifacts" in result["tasks"][0]


async def test_the_media_type_that_was_asked_for_is_answered_errors_included(api: Api) -> None:
    for asked, answered in (
        ("application/json", "application/json"),
        (A2A_JSON, A2A_JSON),
        ("*/*", "application/json"),
    ):
        for path in ("/tasks", "/tasks/nowhere", "/nowhere", "/tasks?pageSize=0"):
            response = await api.http.get(path, headers={"Accept": asked})
            assert response.headers["content-type"] == answered
    spoken = await api.http.post("/message:send", content=b"{}", headers={"Content-Type": A2A_JSON})
    assert (spoken.status_code, spoken.headers["content-type"]) == (400, A2A_JSON)


async def test_json_rpc_speaks_application_json(api: Api) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"ListTasks"}'
    for content_type in ("application/json", A2A_JSON):
        response = await api.http.post("/rpc", content=body, headers={"Content-Type": content_type})
        assert response.json()["result"]["tasks"] == []
        assert response.headers["content-type"] == "application/json"


@on_both_bindings
async def test_a_wrong_content_type_is_refused_where_there_is_a_body(api: Api, binding: str) -> None:
    waiting = await api.send("ask")
    for content_type in ("text/plain", ""):
        headers = {"Content-Type": content_type} if content_type else {}
        path = "/message:send" if binding == REST else "/rpc"
        refused = await api.http.post(path, content=b'{"message":{}}', headers=headers)
        error = refused.json()["error"]
        assert (error["details"] if binding == REST else error["data"])[0]["reason"] == "CONTENT_TYPE_NOT_SUPPORTED"
        assert (refused.status_code, error["code"]) == ((415, 415) if binding == REST else (200, -32005))
        if binding == REST:
            async with api.http.stream("POST", f"/tasks/{waiting['id']}:subscribe", headers=headers) as response:
                assert response.status_code == 200
            canceled = await api.post(f"/tasks/{(await api.send('ask'))['id']}:cancel", headers=headers)
            assert (canceled.status_code, canceled.json()["status"]["state"]) == (200, "TASK_STATE_CANCELED")


@on_both_bindings
async def test_capabilities_are_asked_before_the_task_is_looked_up(api: Api, binding: str) -> None:
    if binding == JSONRPC:
        params = {"taskId": "nowhere", "id": "c", "url": "https://example.com"}
        for operation in ("Create", "Get", "Delete"):
            refused = await invoke(api, binding, f"{operation}TaskPushNotificationConfig", params)
            assert (refused.code, refused.reason) == (-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED")
    else:
        for method, path in (("POST", ""), ("GET", ""), ("GET", "/c"), ("DELETE", "/c")):
            refusal = await api.http.request(method, f"/tasks/nowhere/pushNotificationConfigs{path}")
            assert refusal.json()["error"]["details"][0]["reason"] == "PUSH_NOTIFICATION_NOT_SUPPORTED"
    inline = {
        "message": api.message("x", taskId="nowhere"),
        "configuration": {"taskPushNotificationConfig": {"url": "https://example.com"}},
    }
    assert (await invoke(api, binding, "SendMessage", inline)).reason == "PUSH_NOTIFICATION_NOT_SUPPORTED"


async def test_the_card_has_a_last_modified_beside_its_etag(api: Api) -> None:
    headers = (await api.get("/.well-known/agent-card.json")).headers
    assert {"etag", "last-modified", "cache-control"} <= set(headers)


@on_both_bindings
async def test_a_follow_up_that_names_only_the_task_stays_in_its_context(api: Api, binding: str) -> None:
    for members in ({}, {"contextId": "mine"}):
        begun = await invoke(api, binding, "SendMessage", {"message": api.message("ask", **members)})
        task = begun.result["task"]
        assert task["contextId"] == members.get("contextId", task["contextId"])
        answered = await invoke(api, binding, "SendMessage", {"message": api.message("go on", taskId=task["id"])})
        assert (answered.result["task"]["id"], answered.result["task"]["contextId"]) == (task["id"], task["contextId"])
        assert api.script.turns[-1].task.context_id == task["contextId"]


@on_both_bindings
async def test_message_ids_may_repeat_across_tasks_and_within_one(api: Api, binding: str) -> None:
    sends = [{"message": api.message("ask", messageId="same")} for _ in range(2)]
    first, second = [(await invoke(api, binding, "SendMessage", params)).result["task"] for params in sends]
    assert first["id"] != second["id"]
    again = {"message": api.message("another text", messageId="same", taskId=first["id"])}
    task = (await invoke(api, binding, "SendMessage", again)).result["task"]
    said = [message["parts"][0]["text"] for message in task["history"] if message["role"] == "ROLE_USER"]
    assert said == ["ask", "another text"]
    assert api.script.runs == 3


@on_both_bindings
async def test_answers_have_no_nulls_and_no_members_of_our_own(api: Api, binding: str) -> None:
    waiting = (await api.send("ask"))["id"]
    ended = (await api.send("data"))["id"]
    running = await api.held("x")
    params: dict[str, list[dict[str, Any]]] = {
        "SendMessage": [
            {"message": api.message(text)} for text in ("hello", "data", "ask", "raise", "complete", "lines")
        ],
        "SendStreamingMessage": [{"message": api.message(text)} for text in ("chunks 3", "data", "ask", "reject")],
        "GetTask": [{"id": task_id} for task_id in (waiting, ended, running)],
        "ListTasks": [{}, {"includeArtifacts": "true", "pageSize": 2}, {"contextId": "nowhere"}],
        "CancelTask": [{"id": waiting}],
        "SubscribeToTask": [],
    }
    if binding == JSONRPC:
        params["ListTasks"][1]["includeArtifacts"] = True
    seen: list[tuple[str, Any]] = []
    for operation, calls in params.items():
        for call in calls:
            outcome = await invoke(api, binding, operation, call)
            assert not outcome.failed
            answers = outcome.result if "Stream" in operation else [outcome.result]
            seen += [(operation, answer.get("result", answer)) for answer in answers]
    method, path, options = request(binding, "SubscribeToTask", {"id": running})
    async with api.http.stream(method, path, **options) as response:
        frame = (await anext(read_events(response))).data
        seen.append(("SubscribeToTask", frame.get("result", frame)))
    assert {operation for operation, _ in seen} == set(REST_PATHS) - {"GetExtendedAgentCard"}
    for operation, answer in seen:
        assert nulls(answer) == []
        # The official types know no other members, and the official parser refuses what they do not know.
        json_format.ParseDict(answer, ANSWERS[operation]())
    failed = await invoke(api, binding, "GetTask", {"id": "nowhere"})
    assert nulls(failed.details) == []
    card = (await api.get("/.well-known/agent-card.json")).json()
    assert nulls(card) == []
    json_format.ParseDict(card, pb.AgentCard())


@on_both_bindings
async def test_a_subscription_outlasts_input_required_and_ends_with_the_task(api: Api, binding: str) -> None:
    task_id = (await api.send("ask"))["id"]
    method, path, options = request(binding, "SubscribeToTask", {"id": task_id})
    async with api.http.stream(method, path, **options) as response:
        events = read_events(response)
        shown: list[Event] = [await anext(events)]
        await api.send("ask", taskId=task_id)
        await api.send("hello", taskId=task_id)
        shown += [event async for event in events]
    for event in shown:
        event.data = event.data.get("result", event.data)
    states = [event.state for event in shown if event.state is not None]
    waiting, working = "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_WORKING"
    assert states == [waiting, working, waiting, working, "TASK_STATE_COMPLETED"]
    assert shown[0].kind == "task"
