"""The OpenAPI document: what FastAPI cannot see is added, what it assumes wrongly is removed."""

from collections.abc import Iterator
from typing import Any, Final, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, RootModel
from pydantic.json_schema import models_json_schema

from app.api.rest import CancelTaskBody
from app.protocol.agent_card import AgentCard
from app.protocol.push import TaskPushNotificationConfig
from app.protocol.requests import ListTaskPushNotificationConfigsResponse, ListTasksResponse, SendMessageRequest
from app.protocol.types import SendMessageResponse, StreamResponse, Task

_REF: Final = "#/components/schemas/"
EXAMPLE_SEND: Final = {
    "message": {
        "messageId": "0b6f1c1e-7a57-4a53-9a3e-6d1f0a3c5d01",
        "role": "ROLE_USER",
        "parts": [{"text": "hello world"}],
    }
}


class EventListItem(BaseModel):
    """One entry of a task's log."""

    seq: int
    event: StreamResponse


class EventList(BaseModel):
    """A stretch of a task's log."""

    events: list[EventListItem]
    earliestSeq: int  # noqa: N815 - the name on the wire
    lastSeq: int  # noqa: N815 - the name on the wire


class FieldViolationSchema(BaseModel):
    """One wrong field."""

    field: str
    description: str


class ErrorBody(BaseModel):
    """`google.rpc.Status`."""

    code: int
    status: str
    message: str
    details: list[dict[str, Any]]


class Error(BaseModel):
    """Every error of this API (A2A 11.6)."""

    error: ErrorBody


class JsonRpcRequest(BaseModel):
    """A request of JSON-RPC 2.0 (A2A 9)."""

    jsonrpc: Literal["2.0"]
    id: str | int | float | None
    method: str
    """The name of an operation, such as `SendMessage`."""
    params: dict[str, Any] = {}
    """The operation's request."""


class JsonRpcError(BaseModel):
    """Why a request failed (A2A 9.5)."""

    code: int
    message: str
    data: list[dict[str, Any]]


class JsonRpcFailure(BaseModel):
    """A request that failed."""

    jsonrpc: Literal["2.0"]
    id: str | int | float | None
    error: JsonRpcError


class JsonRpcSuccess(BaseModel):
    """The operation's answer, or one event of its stream."""

    jsonrpc: Literal["2.0"]
    id: str | int | float | None
    result: dict[str, Any]


class JsonRpcResponse(RootModel[JsonRpcSuccess | JsonRpcFailure]):
    """`result`, or `error`."""


REQUESTS: Final[dict[str, type[BaseModel]]] = {
    "SendMessage": SendMessageRequest,
    "SendStreamingMessage": SendMessageRequest,
    "CancelTask": CancelTaskBody,
    "CreateTaskPushNotificationConfig": TaskPushNotificationConfig,
    "JsonRpc": JsonRpcRequest,
}
RESPONSES: Final[dict[str, type[BaseModel]]] = {
    "SendMessage": SendMessageResponse,
    "GetTask": Task,
    "ListTasks": ListTasksResponse,
    "CancelTask": Task,
    "ListEvents": EventList,
    "CreateTaskPushNotificationConfig": TaskPushNotificationConfig,
    "GetTaskPushNotificationConfig": TaskPushNotificationConfig,
    "ListTaskPushNotificationConfigs": ListTaskPushNotificationConfigsResponse,
    "GetAgentCard": AgentCard,
    "JsonRpc": JsonRpcResponse,
}
_MODELS: Final[list[type[BaseModel]]] = [*REQUESTS.values(), *RESPONSES.values(), StreamResponse, Error]
STREAMS: Final = frozenset({"SendStreamingMessage", "SubscribeToTask", "SubscribeToTaskByGet"})
_VERSION_PARAMETER: Final = {
    "name": "A2A-Version",
    "in": "header",
    "required": True,
    "description": "The version of A2A that the request speaks.",
    "schema": {"type": "string", "pattern": r"^1\.0(\.[0-9]+)?$", "default": "1.0"},
    "example": "1.0",
}
_IDEMPOTENCY_KEY_PARAMETER: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A second spelling of the message's idempotency key.",
    "schema": {"type": "string"},
}
_EXTENSIONS_PARAMETER: Final = {
    "name": "A2A-Extensions",
    "in": "header",
    "description": "URIs of extensions to activate, separated by commas.",
    "schema": {"type": "string"},
}
_EXTENSIONS_HEADER: Final = {
    "A2A-Extensions": {
        "description": "URIs of the extensions that are active, separated by commas; absent if none is.",
        "schema": {"type": "string"},
    }
}
_CURSOR_PARAMETERS: Final = (
    {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "Resume after the event of this id.",
        "schema": {"type": "integer", "minimum": 0},
    },
    {
        "name": "lastEventId",
        "in": "query",
        "description": "Last-Event-ID, where a header cannot be set.",
        "schema": {"type": "integer", "minimum": 0},
    },
)
_WITHOUT_VERSION: Final = frozenset({"GetAgentCard", "Healthz", "Readyz"})


def _content(model: type[BaseModel]) -> dict[str, Any]:
    schema = {"$ref": _REF + model.__name__}
    return {"application/json": {"schema": schema}, "application/a2a+json": {"schema": schema}}


def _describe(operation: dict[str, Any]) -> None:
    name = operation["operationId"]
    responses = operation["responses"]
    responses.pop("422", None)
    if name in REQUESTS:
        content = _content(REQUESTS[name])
        if REQUESTS[name] is SendMessageRequest:
            for media in content.values():
                media["example"] = EXAMPLE_SEND
            operation.setdefault("parameters", []).append(_IDEMPOTENCY_KEY_PARAMETER)
        operation["requestBody"] = {"required": name != "CancelTask", "content": content}
    if name in RESPONSES:
        responses["200"] = {"description": "The answer.", "content": _content(RESPONSES[name])}
        if name == "JsonRpc":
            responses["200"]["content"]["text/event-stream"] = {"schema": {"$ref": _REF + JsonRpcResponse.__name__}}
    if name in STREAMS:
        operation.setdefault("parameters", []).extend(_CURSOR_PARAMETERS)
        responses["200"] = {
            "description": "Server-sent events. Each `data:` line is a StreamResponse, each `id:` its position in the "
            "task's event log; comment lines keep the connection alive.",
            "headers": {
                "A2A-Resume": {
                    "description": "On a resume: `replay` (exactly what was missed) or `snapshot` (start anew).",
                    "schema": {"type": "string", "enum": ["replay", "snapshot"]},
                }
            },
            "content": {"text/event-stream": {"schema": {"$ref": _REF + "StreamResponse"}}},
        }
        responses["204"] = {"description": "The cursor is at the end of a log that has ended: nothing will follow."}
    if name not in _WITHOUT_VERSION:
        operation["parameters"] = [_VERSION_PARAMETER, _EXTENSIONS_PARAMETER, *operation.get("parameters", ())]
        if "200" in responses:
            responses["200"]["headers"] = responses["200"].get("headers", {}) | _EXTENSIONS_HEADER
        error = _content(JsonRpcResponse if name == "JsonRpc" else Error)
        for status, text in _failures(name):
            responses[status] = {"description": text, "content": error}


def _failures(name: str) -> Iterator[tuple[str, str]]:
    """Statuses by which an operation says that it did not work."""
    if name != "JsonRpc":
        yield "400", "The request is wrong."
        yield "404", "No such task for this caller."
    if name in REQUESTS:
        yield "408", "The body did not arrive in time."
        yield "413", "The body is too large."
        if name != "JsonRpc":
            yield "415", "The body is not JSON."
    yield "503", "Not now; retry later."


class DescribedFastAPI(FastAPI):
    """FastAPI, with an `/openapi.json` that says what is true."""

    def openapi(self) -> dict[str, Any]:
        """The document; made once."""
        if self.openapi_schema is None:
            document = get_openapi(
                title=self.title, version=self.version, description=self.description, routes=self.routes
            )
            _, schemas = models_json_schema(
                [(model, "validation") for model in _MODELS], ref_template=_REF + "{model}", by_alias=True
            )
            components = document.setdefault("components", {}).setdefault("schemas", {})
            for unused in ("HTTPValidationError", "ValidationError"):
                components.pop(unused, None)
            components.update(schemas["$defs"])
            for path in document["paths"].values():
                for operation in path.values():
                    _describe(operation)
            self.openapi_schema = document
        return self.openapi_schema
