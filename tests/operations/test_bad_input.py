"""Nonsense never gets further than a 4xx that names what is wrong; nothing is stored, the server lives on."""

import json
from typing import Any

import pytest

from tests.conftest import Api
from tests.operations.conftest import JSON_RPC, REST, on_both_bindings
from tests.requirements import requirement

MESSAGE: dict[str, Any] = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}


def changed(**members: Any) -> bytes:
    """A good body but for some members of its message; `...` removes one."""
    message = {**MESSAGE, **members}
    return json.dumps({"message": {name: value for name, value in message.items() if value is not ...}}).encode()


def configured(**members: Any) -> bytes:
    return json.dumps({"message": MESSAGE, "configuration": members}).encode()


FIELDS = [
    (b"{}", "message"),
    (b'{"message": null}', "message"),
    (b'{"message": []}', "message"),
    (b'{"message": "hello"}', "message"),
    (changed(messageId=...), "message.messageId"),
    (changed(messageId=None), "message.messageId"),
    (changed(messageId=""), "message.messageId"),
    (changed(messageId=" \t"), "message.messageId"),
    (changed(messageId=7), "message.messageId"),
    (changed(messageId="m" * 1025), "message.messageId"),
    (changed(contextId="c" * 1025), "message.contextId"),
    (changed(taskId="t" * 1025), "message.taskId"),
    (changed(contextId=7), "message.contextId"),
    (changed(role=...), "message.role"),
    (changed(role="user"), "message.role"),
    (changed(role=1), "message.role"),
    (changed(role="ROLE_AGENT"), "message.role"),
    (changed(role="ROLE_UNSPECIFIED"), "message.role"),
    (changed(parts=...), "message.parts"),
    (changed(parts=[]), "message.parts"),
    (changed(parts=None), "message.parts"),
    (changed(parts={}), "message.parts"),
    (changed(parts=[{}]), "message.parts[0]"),
    (changed(parts=[{"text": "a"}, {"text": "b", "url": "c"}]), "message.parts[1]"),
    (changed(parts=[{"text": "a", "data": None}]), "message.parts[0]"),
    (changed(parts=[{"text": 7}]), "message.parts[0].text"),
    (changed(parts=[{"raw": "not base64!"}]), "message.parts[0].raw"),
    (changed(parts=["hello"]), "message.parts[0]"),
    (changed(metadata=[]), "message.metadata"),
    (changed(extensions="urn:x"), "message.extensions"),
    (changed(extensions=[7]), "message.extensions[0]"),
    (changed(referenceTaskIds=[None]), "message.referenceTaskIds[0]"),
    (configured(historyLength=-1), "configuration.historyLength"),
    (configured(historyLength="many"), "configuration.historyLength"),
    (configured(historyLength=2**31), "configuration.historyLength"),
    (configured(historyLength=1.5), "configuration.historyLength"),
    (configured(returnImmediately="yes"), "configuration.returnImmediately"),
    (configured(returnImmediately=1), "configuration.returnImmediately"),
    (configured(acceptedOutputModes="text/plain"), "configuration.acceptedOutputModes"),
    (configured(taskPushNotificationConfig={}), "configuration.taskPushNotificationConfig.url"),
    (json.dumps({"message": MESSAGE, "tenant": 7}).encode(), "tenant"),
    (json.dumps({"message": MESSAGE, "metadata": "x"}).encode(), "metadata"),
]

NO_JSON = {
    "an empty object cut short": b'{"message": {"messageId": "m"',
    "text": b"hello",
    "a form": b"message=hello",
    "two values": b"{} {}",
    "a trailing comma": b'{"message": {},}',
    "NaN": b'{"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": NaN}]}}',
    "Infinity": b'{"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": -Infinity}]}}',
    "a number beyond a double": b'{"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": 1e999}]}}',
    "a NUL character": changed(parts=[{"text": "a\0b"}]),
    "a NUL character in metadata": changed(metadata={"a\0": 1}),
    "a lone surrogate": b'{"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "\\ud800"}]}}',
    "100,000 nested brackets": b'{"message": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "nested objects": b'{"message": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
    "invalid UTF-8": b'{"message": "\xff\xfe"}',
    "UTF-16": json.dumps({"message": MESSAGE}).encode("utf-16"),
}


async def nothing_happened(api: Api) -> bool:
    listing = (await api.get("/tasks")).json()
    return listing["totalSize"] == 0 and api.script.runs == 0 and (await api.get("/readyz")).status_code == 200


@requirement("errors.validation", "errors.names-field", "data.required")
@pytest.mark.parametrize(
    ("binding", "path"), [(REST, "/message:send"), (REST, "/message:stream"), (JSON_RPC, "/message:send")]
)
@pytest.mark.parametrize(("body", "field"), FIELDS)
async def test_a_wrong_field_is_named_and_nothing_runs(api: Api, path: str, body: bytes, field: str) -> None:
    response = await api.post(path, content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["code"] == 400
    assert error["status"] == "INVALID_ARGUMENT"
    assert error["details"][0]["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    assert [violation["field"] for violation in error["details"][0]["fieldViolations"]] == [field]
    assert await nothing_happened(api)


@pytest.mark.parametrize("body", [b"[]", b'"hello"', b"null", b"7"])
async def test_a_body_that_is_no_object_is_refused(api: Api, body: bytes) -> None:
    response = await api.post("/message:send", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["details"][0]["fieldViolations"][0]["field"] == "body"
    assert await nothing_happened(api)


@requirement("security.limits")
@pytest.mark.parametrize("case", NO_JSON)
async def test_what_is_no_storable_json_is_refused(api: Api, case: str) -> None:
    response = await api.post("/message:send", content=NO_JSON[case], headers={"Content-Type": "application/json"})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["details"][0]["reason"] == "PARSE_ERROR"
    assert await nothing_happened(api)


@on_both_bindings
async def test_text_that_only_looks_like_an_escaped_nul_is_kept(api: Api) -> None:
    task = await api.send("a\\u0000b")
    assert task["history"][0]["parts"] == [{"text": "a\\u0000b"}]


@requirement("data.unknown")
@on_both_bindings
async def test_unknown_members_are_ignored_and_snake_case_is_read(api: Api) -> None:
    message = {"message_id": "m", "role": "ROLE_USER", "parts": [{"text": "hello", "shape": "round"}], "mood": {}}
    response = await api.post("/message:send", {"message": message, "configuration": {"history_length": 0}, "x": [1]})
    assert response.status_code == 200
    assert "history" not in response.json()["task"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "multipart/form-data", "", "json"])
async def test_a_body_of_another_media_type_is_unsupported(api: Api, content_type: str) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    response = await api.post("/message:send", content=changed(), headers=headers)
    assert response.status_code == 415
    assert response.json()["error"]["details"][0]["reason"] == "CONTENT_TYPE_NOT_SUPPORTED"
    assert await nothing_happened(api)


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "Application/JSON", "application/a2a+json"]
)
async def test_json_under_each_of_its_names_is_read(api: Api, content_type: str) -> None:
    response = await api.post("/message:send", content=changed(), headers={"Content-Type": content_type})
    assert response.status_code == 200


@requirement("rest.media-type")
async def test_an_answer_mirrors_the_media_type_that_was_spoken_or_accepted(api: Api) -> None:
    a2a = "application/a2a+json"
    body = {"message": api.message("x")}
    spoken = await api.http.post("/message:send", content=json.dumps(body), headers={"Content-Type": a2a})
    assert spoken.headers["content-type"] == a2a
    assert (await api.http.post("/message:send", json=body)).headers["content-type"] == "application/json"
    for path in ("/tasks", "/tasks/nowhere", "/.well-known/agent-card.json"):
        assert (await api.http.get(path, headers={"Accept": a2a})).headers["content-type"] == a2a
        assert (await api.http.get(path)).headers["content-type"] == "application/json"


async def test_a_body_without_content_is_named(api: Api) -> None:
    response = await api.post("/message:send", content=b"", headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["details"][0]["fieldViolations"][0]["field"] == "body"


async def test_a_body_of_50_megabytes_is_too_large(api: Api) -> None:
    body = changed(parts=[{"text": "x" * 50_000_000}])
    response = await api.post("/message:send", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 413
    assert response.json()["error"]["details"][0]["reason"] == "PAYLOAD_TOO_LARGE"
    assert await nothing_happened(api)


async def test_a_body_that_does_not_say_how_large_it_is_meets_the_same_limit(api: Api) -> None:
    response = await api.post(
        "/message:send",
        content=changed(parts=[{"text": "x" * 5_000_000}]),
        headers={"Content-Type": "application/json", "Content-Length": ""},
    )
    assert response.status_code == 413


@pytest.mark.parametrize(
    "path",
    [
        "/tasks/a%00b",
        "/tasks/" + "x" * 1025,
        "/tasks/%ff",
        "/tasks/x?historyLength=-1",
        "/tasks/x?historyLength=1.5",
        "/tasks/x/events?after=-1",
        "/tasks/x/events?limit=0",
        "/tasks/x/events?limit=10001",
        "/tasks/x/events?after=" + "9" * 30,
    ],
)
async def test_a_wrong_path_or_query_is_a_plain_refusal(api: Api, path: str) -> None:
    response = await api.http.get(path)
    assert response.status_code in {400, 404}, response.text
    assert response.json()["error"]["code"] == response.status_code


@requirement("rest.errors")
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("POST", "/tasks/x/y/z", 404),
        ("GET", "/message:send", 405),
        ("DELETE", "/tasks/x", 405),
        ("PUT", "/tasks", 405),
    ],
)
async def test_an_unknown_path_or_method_answers_in_the_protocols_shape(
    api: Api, method: str, path: str, status: int
) -> None:
    response = await api.http.request(method, path)
    assert response.status_code == status
    error = response.json()["error"]
    assert error["code"] == status
    assert error["details"][0]["domain"] == "a2a-protocol.org"


@requirement("version.unsupported", "version.empty")
@on_both_bindings
@pytest.mark.parametrize("version", ["", "0.3", "2.0", "1", "banana", "1.1"])
async def test_another_protocol_version_is_refused_and_the_supported_one_named(api: Api, version: str) -> None:
    response = await api.http.get("/tasks", headers={"A2A-Version": version})
    assert response.status_code == 400
    detail = response.json()["error"]["details"][0]
    assert detail["reason"] == "VERSION_NOT_SUPPORTED"
    assert detail["metadata"]["supportedVersions"] == "1.0"


@requirement("version.patch")
@on_both_bindings
@pytest.mark.parametrize("version", ["1.0", "1.0.1", " 1.0 "])
async def test_patch_numbers_of_the_version_are_ignored(api: Api, version: str) -> None:
    assert (await api.http.get("/tasks", headers={"A2A-Version": version})).status_code == 200


@requirement("version.query")
@on_both_bindings
async def test_the_version_may_stand_in_the_query(api: Api) -> None:
    del api.http.headers["A2A-Version"]
    assert (await api.http.get("/tasks?A2A-Version=1.0")).status_code == 200
    assert (await api.http.get("/tasks")).status_code == 400


@requirement("capability.push")
@on_both_bindings
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/tasks/x/pushNotificationConfigs"),
        ("GET", "/tasks/x/pushNotificationConfigs"),
        ("GET", "/tasks/x/pushNotificationConfigs/c"),
        ("DELETE", "/tasks/x/pushNotificationConfigs/c"),
    ],
)
async def test_push_configurations_are_refused_before_the_task_is_looked_up(api: Api, method: str, path: str) -> None:
    body = {"url": "https://example.com/hook"} if method == "POST" else None
    response = await api.http.request(method, path, json=body)
    assert response.status_code == 400
    assert response.json()["error"]["details"][0]["reason"] == "PUSH_NOTIFICATION_NOT_SUPPORTED"


@requirement("capability.extended-card")
@on_both_bindings
async def test_there_is_no_extended_card(api: Api) -> None:
    response = await api.get("/extendedAgentCard")
    assert response.status_code == 400
    assert response.json()["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"
