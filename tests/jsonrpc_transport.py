"""JSON-RPC under tests written for REST: each request is sent as its method (A2A 5.3), each answer read back.

What a test of an operation says of one binding, it so says of both, word for word. Paths that are no operation – the
card, the event log, documents – go through as they are.
"""

import itertools
import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import httpx

_CONFIGS: Final = r"/tasks/(?P<taskId>[^/]+)/pushNotificationConfigs"
METHODS: Final = [
    (verb, re.compile(rf"(?P<prefix>(/[^/]+)?){path}$"), method)
    for verb, path, method in (
        ("POST", "/message:send", "SendMessage"),
        ("POST", "/message:stream", "SendStreamingMessage"),
        ("GET", "/tasks", "ListTasks"),
        ("GET|POST", "/tasks/(?P<id>[^/]+):subscribe", "SubscribeToTask"),
        ("POST", "/tasks/(?P<id>[^/]+):cancel", "CancelTask"),
        ("GET", "/tasks/(?P<id>[^/]+)", "GetTask"),
        ("POST", _CONFIGS, "CreateTaskPushNotificationConfig"),
        ("GET", _CONFIGS, "ListTaskPushNotificationConfigs"),
        ("GET", _CONFIGS + "/(?P<configId>[^/]+)", "GetTaskPushNotificationConfig"),
        ("DELETE", _CONFIGS + "/(?P<configId>[^/]+)", "DeleteTaskPushNotificationConfig"),
        ("GET", "/extendedAgentCard", "GetExtendedAgentCard"),
    )
]
STREAMING: Final = frozenset({"SendStreamingMessage", "SubscribeToTask"})
STATUS: Final = {
    -32001: (404, "NOT_FOUND"),
    -32002: (400, "FAILED_PRECONDITION"),
    -32003: (400, "FAILED_PRECONDITION"),
    -32004: (400, "FAILED_PRECONDITION"),
    -32005: (400, "INVALID_ARGUMENT"),
    -32006: (500, "INTERNAL"),
    -32007: (400, "FAILED_PRECONDITION"),
    -32008: (400, "FAILED_PRECONDITION"),
    -32009: (400, "FAILED_PRECONDITION"),
    -32602: (400, "INVALID_ARGUMENT"),
    -32603: (500, "INTERNAL"),
}
"""A2A 5.4 and 9.5."""
HTTP_SAYS: Final = {413: "INVALID_ARGUMENT", 503: "UNAVAILABLE"}
"""HTTP statuses that are those of JSON-RPC answers too."""
NOT_PARAMETERS: Final = frozenset({"A2A-Version", "A2A-Extensions", "lastEventId"})


class Call(NamedTuple):
    """A REST request, as a JSON-RPC one."""

    path: str
    method: str
    params: dict[str, Any]


class JsonRpcTransport(httpx.AsyncBaseTransport):
    """Speaks JSON-RPC through another transport."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self._ids = itertools.count(1)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        call = as_call(request, await request.aread())
        if call is None:
            return await self._inner.handle_async_request(request)
        request_id = f"r-{next(self._ids)}"
        body = {"jsonrpc": "2.0", "id": request_id, "method": call.method, "params": call.params}
        headers = {name: value for name, value in request.headers.items() if name != "content-length"}
        kept = {name: value for name, value in request.url.params.multi_items() if name in NOT_PARAMETERS}
        response = await self._inner.handle_async_request(
            httpx.Request(
                "POST",
                request.url.copy_with(path=call.path, query=None).copy_merge_params(kept),
                headers={**headers, "content-type": "application/json"},
                content=json.dumps(body),
            )
        )
        if response.headers["content-type"].startswith("text/event-stream"):
            assert call.method in STREAMING
            assert isinstance(response.stream, httpx.AsyncByteStream)
            stream = _Unwrapped(response.stream, request_id)
            return httpx.Response(response.status_code, headers=response.headers, stream=stream)
        return as_rest(response.status_code, response.headers, await response.aread(), request_id)


def as_call(request: httpx.Request, body: bytes) -> Call | None:
    """The method that stands for a path, with its params; `None` where it is no operation."""
    path = request.url.raw_path.partition(b"?")[0].decode()
    for verb, pattern, method in METHODS:
        match = pattern.match(path)
        if match is None or request.method not in verb.split("|"):
            continue
        found = {name: unquote(value) for name, value in match.groupdict().items() if name != "prefix"}
        query = {
            name: {"true": True, "false": False}.get(value, value)
            for name, value in request.url.params.multi_items()
            if name not in NOT_PARAMETERS
        }
        params = {**query, **(json.loads(body) if body else {}), **found}
        if "configId" in params:
            params["id"] = params.pop("configId")
        return Call(match["prefix"] + "/rpc", method, params)
    return None


def as_rest(http_status: int, headers: Mapping[str, str], body: bytes, request_id: str) -> httpx.Response:
    """The answer as REST gives it; the envelope is checked on the way."""
    answer = json.loads(body)
    assert answer.pop("jsonrpc") == "2.0"
    assert answer.pop("id") == request_id
    kept = {name: value for name, value in headers.items() if name not in ("content-length", "content-type")}
    if "result" in answer:
        assert set(answer) == {"result"}
        assert http_status == 200
        return httpx.Response(200, headers=kept, json=answer["result"])
    assert set(answer) == {"error"}
    error = error_as_rest(answer["error"], http_status)
    return httpx.Response(error["code"], headers=kept, json={"error": error})


def error_as_rest(error: dict[str, Any], http_status: int = 200) -> dict[str, Any]:
    """A JSON-RPC error as REST says it (A2A 5.4)."""
    assert set(error) == {"code", "message", "data"}
    status, name = STATUS[error["code"]] if http_status == 200 else (http_status, HTTP_SAYS[http_status])
    return {"code": status, "status": name, "message": error["message"], "details": error["data"]}


class _Unwrapped(httpx.AsyncByteStream):
    """Server-sent events whose data is the result of a JSON-RPC answer."""

    def __init__(self, stream: httpx.AsyncByteStream, request_id: str) -> None:
        self._stream = stream
        self._before = b'{"jsonrpc":"2.0","id":"%b",' % request_id.encode()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        buffer = b""
        async for chunk in self._stream:
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                yield self._unwrapped(line) + b"\n"
        assert not buffer, "the stream ends with a whole line"

    def _unwrapped(self, line: bytes) -> bytes:
        if not line.startswith(b"data: "):
            return line
        assert line.startswith(b"data: " + self._before)
        assert line.endswith(b"}")
        name, _, value = line.removeprefix(b"data: " + self._before)[:-1].partition(b":")
        if name == b'"result"':
            return b"data: " + value
        assert name == b'"error"'
        return b"event: error\ndata: " + json.dumps({"error": error_as_rest(json.loads(value))}).encode()

    async def aclose(self) -> None:
        await self._stream.aclose()
