"""How an operation becomes an HTTP request and an answer becomes JSON, in either binding (A2A 9, 11)."""

import itertools
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

import httpx
from pydantic_core import from_json
from pydantic_core import to_json as plain_json

from app.client.errors import InvalidPeerResponseError, error_of_jsonrpc, error_of_rest
from app.protocol.protojson import ProtoModel, to_json

JSON: Final = "application/json"
HTTP_JSON_BINDING: Final = "HTTP+JSON"
JSONRPC_BINDING: Final = "JSONRPC"


class Call(NamedTuple):
    """One operation: its name, and its request as ProtoJSON."""

    operation: str
    params: dict[str, Any]


def call(operation: str, request: ProtoModel) -> Call:
    """An operation with its request; raises `ValueError` for what is no JSON that can be kept."""
    return Call(operation, from_json(to_json(request)))


class Transport(Protocol):
    """A binding."""

    def request(self, call: Call) -> httpx.Request:
        """The HTTP request of a call."""

    def result(self, response: httpx.Response) -> Any:
        """What an answer that was read holds. Raises the `A2AError` that it is."""

    def event(self, data: str, response: httpx.Response) -> Any:
        """What a frame of a stream holds; raises as `result` does."""


# Operation → method, path, and the members of the request that stand in the path.
_ROUTES: Final[Mapping[str, tuple[str, str]]] = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("POST", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
}


class RestTransport:
    """HTTP+JSON."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def request(self, call: Call) -> httpx.Request:
        """The HTTP request of a call: path members in the path, the rest in the query or the body."""
        method, path = _ROUTES[call.operation]
        params = dict(call.params)
        for member in ("id", "taskId"):
            if f"{{{member}}}" in path:
                path = path.replace(f"{{{member}}}", quote(str(params.pop(member)), safe=""))
        tenant = params.pop("tenant", None)
        url = f"{self._url}/{quote(tenant, safe='')}{path}" if tenant else self._url + path
        if method == "POST":
            headers = {"Content-Type": JSON}
            return httpx.Request(method, url, content=plain_json(params), headers=headers)
        query = {name: _query(value) for name, value in params.items()}
        return httpx.Request(method, url, params=query)

    def result(self, response: httpx.Response) -> Any:
        """The JSON of the answer."""
        if not response.is_success:
            raise error_of_rest(response)
        return _json(response.content) if response.content else {}

    def event(self, data: str, response: httpx.Response) -> Any:
        """The JSON of a frame."""
        event = _json(data)
        if isinstance(event, dict) and "error" in event:
            error = event["error"]
            if isinstance(error, dict):
                error = {"message": error.get("message"), "data": error.get("details")}
            raise error_of_jsonrpc(error, response)
        return event


def _query(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class JsonRpcTransport:
    """JSON-RPC 2.0."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ids = itertools.count(1)

    def request(self, call: Call) -> httpx.Request:
        """The HTTP request of a call."""
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": call.operation, "params": call.params}
        return httpx.Request("POST", self._url, content=plain_json(body), headers={"Content-Type": JSON})

    def result(self, response: httpx.Response) -> Any:
        """The `result` of the answer."""
        try:
            answer = _json(response.content)
        except InvalidPeerResponseError:
            if response.is_success:
                raise
            answer = None
        if not response.is_success and not (isinstance(answer, dict) and "jsonrpc" in answer):
            # Somebody on the way, who does not speak JSON-RPC.
            raise error_of_rest(response)
        return self._unwrap(answer, response)

    def event(self, data: str, response: httpx.Response) -> Any:
        """The `result` of a frame."""
        return self._unwrap(_json(data), response)

    def _unwrap(self, answer: Any, response: httpx.Response) -> Any:
        if not isinstance(answer, dict):
            raise InvalidPeerResponseError("the answer is no JSON-RPC response")
        if (error := answer.get("error")) is not None:
            raise error_of_jsonrpc(error, response)
        return answer.get("result")


def _json(data: bytes | str) -> Any:
    try:
        # Integers of any size stay what they are.
        return from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidPeerResponseError(f"the answer is not JSON: {error}") from None
