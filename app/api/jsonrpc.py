"""The JSON-RPC 2.0 binding (A2A 9): the eleven methods by one table, over the same service as REST.

A notification (no `id`) and a batch are answered with -32600: A2A has neither. Errors come with HTTP 200, but for those
that HTTP itself must know of (401, 403, 408, 413, 429, 503).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, ValidationError, create_model
from pydantic_core import to_json as plain_json

from app.api.body import read_body
from app.api.deps import Gate, Services, ServicesDep, get_gate
from app.api.errors import invalid_params
from app.api.media import JSON, is_json
from app.api.rest import REPLAYED, idempotency_key, last_event_id
from app.api.sse import Framing
from app.protocol.errors import (
    A2AError,
    InternalError,
    InvalidParamsError,
    InvalidRequestError,
    MethodNotFoundError,
    ParseError,
    UnsupportedMediaTypeError,
)
from app.protocol.protojson import check_json, to_json
from app.protocol.push import TaskPushNotificationConfig
from app.protocol.requests import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
)
from app.protocol.types import Task
from app.store.base import LogEntry
from app.telemetry import get_logger

log = get_logger(__name__)
router = APIRouter(tags=["JSON-RPC"])

HTTP_KNOWS: Final = frozenset({401, 403, 408, 413, 429, 503})
"""HTTP statuses that stay what they are."""


class Exchange(NamedTuple):
    """A request on its way through the binding."""

    request: Request
    services: Services
    gate: Gate
    id: bytes
    """The request's id, as JSON."""
    headers: dict[str, str]
    """Of the answer, if it is no stream."""


Answer = bytes | Response
"""The result as JSON, or a stream of results."""
Method = Callable[[Exchange, Any], Awaitable[Answer]]


async def _send_message(exchange: Exchange, params: SendMessageRequest) -> Answer:
    key = idempotency_key(exchange.request)
    caller = exchange.gate.caller(params.tenant)
    answer = await exchange.services.tasks.send_message(caller, params, key)
    if answer.replayed:
        exchange.headers.update(REPLAYED)
    member = b'{"task":' if isinstance(answer.result, Task) else b'{"message":'
    return member + to_json(answer.result) + b"}"


async def _send_streaming_message(exchange: Exchange, params: SendMessageRequest) -> Answer:
    key = idempotency_key(exchange.request)
    caller = exchange.gate.caller(params.tenant)
    cursor = last_event_id(exchange.request)
    with exchange.services.streams.slot() as slot:
        stream = await exchange.services.tasks.send_streaming_message(caller, params, key, cursor)
        return slot.respond(stream, _framing(exchange.id))


async def _get_task(exchange: Exchange, params: GetTaskRequest) -> Answer:
    return to_json(await exchange.services.tasks.get_task(exchange.gate.caller(params.tenant), params))


async def _list_tasks(exchange: Exchange, params: ListTasksRequest) -> Answer:
    return to_json(await exchange.services.tasks.list_tasks(exchange.gate.caller(params.tenant), params))


async def _cancel_task(exchange: Exchange, params: CancelTaskRequest) -> Answer:
    return to_json(await exchange.services.tasks.cancel_task(exchange.gate.caller(params.tenant), params))


async def _subscribe_to_task(exchange: Exchange, params: SubscribeToTaskRequest) -> Answer:
    caller = exchange.gate.caller(params.tenant)
    cursor = last_event_id(exchange.request)
    with exchange.services.streams.slot() as slot:
        stream = await exchange.services.tasks.subscribe_to_task(caller, params, cursor)
        return slot.respond(stream, _framing(exchange.id))


async def _create_push_config(exchange: Exchange, params: TaskPushNotificationConfig) -> Answer:
    caller = exchange.gate.caller(params.tenant)
    return to_json(await exchange.services.push_configs.create_task_push_notification_config(caller, params))


async def _get_push_config(exchange: Exchange, params: GetTaskPushNotificationConfigRequest) -> Answer:
    caller = exchange.gate.caller(params.tenant)
    return to_json(await exchange.services.push_configs.get_task_push_notification_config(caller, params))


async def _list_push_configs(exchange: Exchange, params: ListTaskPushNotificationConfigsRequest) -> Answer:
    caller = exchange.gate.caller(params.tenant)
    return to_json(await exchange.services.push_configs.list_task_push_notification_configs(caller, params))


async def _delete_push_config(exchange: Exchange, params: DeleteTaskPushNotificationConfigRequest) -> Answer:
    caller = exchange.gate.caller(params.tenant)
    await exchange.services.push_configs.delete_task_push_notification_config(caller, params)
    return b"{}"


async def _get_extended_agent_card(exchange: Exchange, _params: GetExtendedAgentCardRequest) -> Answer:
    return to_json(exchange.services.tasks.get_extended_agent_card())


METHODS: Final[Mapping[str, tuple[type[BaseModel], Method]]] = {
    "SendMessage": (SendMessageRequest, _send_message),
    "SendStreamingMessage": (SendMessageRequest, _send_streaming_message),
    "GetTask": (GetTaskRequest, _get_task),
    "ListTasks": (ListTasksRequest, _list_tasks),
    "CancelTask": (CancelTaskRequest, _cancel_task),
    "SubscribeToTask": (SubscribeToTaskRequest, _subscribe_to_task),
    "CreateTaskPushNotificationConfig": (TaskPushNotificationConfig, _create_push_config),
    "GetTaskPushNotificationConfig": (GetTaskPushNotificationConfigRequest, _get_push_config),
    "ListTaskPushNotificationConfigs": (ListTaskPushNotificationConfigsRequest, _list_push_configs),
    "DeleteTaskPushNotificationConfig": (DeleteTaskPushNotificationConfigRequest, _delete_push_config),
    "GetExtendedAgentCard": (GetExtendedAgentCardRequest, _get_extended_agent_card),
}

ABOUT_PUSH: Final = frozenset(name for name in METHODS if "PushNotificationConfig" in name)

_CALLS: Final[Mapping[str, type[Any]]] = {
    name: create_model(name, params=(model, Field(default_factory=dict, validate_default=True)))
    for name, (model, _) in METHODS.items()
}
"""Requests of each method, with an eye for their `params` only."""


class _Envelope(BaseModel):
    """A request with an eye for all but its `params`."""

    jsonrpc: Any = None
    id: Any = None
    method: Any = None


@router.post("/rpc", operation_id="JsonRpc", summary="Every operation, as JSON-RPC 2.0")
@router.post("/rpc/", include_in_schema=False)
async def rpc(request: Request, services: ServicesDep) -> Response:
    """Methods are the operations by their names; streaming ones answer with server-sent events (A2A 9)."""
    request_id = b"null"
    try:
        body = await _read(request, services)
        envelope = _envelope(body)
        request_id = plain_json(envelope.id)
        # The version first: the methods of another have other names.
        gate = await get_gate(request, services)
        name = _method(envelope)
        if name in ABOUT_PUSH:
            # Before the parameters are looked at (A2A 3.3.4).
            services.push_configs.require()
        exchange = Exchange(request, services, gate, request_id, {})
        answer = await METHODS[name][1](exchange, _params(name, body))
    except A2AError as error:
        return _respond_error(request_id, error)
    except Exception:
        log.exception("a JSON-RPC request failed")
        return _respond_error(request_id, InternalError())
    if isinstance(answer, Response):
        return answer
    return Response(_wrap(request_id, answer), headers=exchange.headers, media_type=JSON)


async def _read(request: Request, services: Services) -> bytes:
    body = await read_body(request, services.max_body_bytes, services.body_timeout)
    if body and not is_json(request.headers.get("content-type", "")):
        raise UnsupportedMediaTypeError
    try:
        check_json(body)
    except ValueError as error:
        raise ParseError(str(error)) from None
    return body


def _envelope(body: bytes) -> _Envelope:
    if body.lstrip().startswith(b"["):
        raise InvalidRequestError("Batches are not part of A2A; send one request at a time.")
    try:
        envelope = _Envelope.model_validate_json(body)
    except ValidationError:
        envelope = _Envelope()
    if envelope.jsonrpc != "2.0":
        raise InvalidRequestError('The request must be a JSON-RPC object with "jsonrpc": "2.0".')
    if "id" not in envelope.model_fields_set:
        raise InvalidRequestError("The request has no id; notifications are not part of A2A.")
    if isinstance(envelope.id, bool | dict | list):
        raise InvalidRequestError("The id must be a string, a number or null.")
    return envelope


def _method(envelope: _Envelope) -> str:
    name = envelope.method
    if not isinstance(name, str):
        raise InvalidRequestError("The method must be a string.")
    if name not in METHODS:
        raise MethodNotFoundError(f"There is no method {name[:80]!r}.")
    return name


def _params(name: str, body: bytes) -> Any:
    # Read from the body as it came: written anew in between, large numbers would not be what they were.
    try:
        return _CALLS[name].model_validate_json(body).params
    except ValidationError as error:
        if error.errors(include_url=False)[0]["loc"] == ("params",):
            raise InvalidParamsError.of("params", "must be an object") from None
        raise invalid_params(error, skip=1) from None


def _wrap(request_id: bytes, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request_id, result)


def _error(request_id: bytes, error: A2AError) -> bytes:
    body = {"code": error.code, "message": error.message, "data": error.details()}
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request_id, orjson.dumps(body))


def _respond_error(request_id: bytes, error: A2AError) -> Response:
    status = error.http_status if error.http_status in HTTP_KNOWS else 200
    return Response(_error(request_id, error), status, error.headers, JSON)


def _framing(request_id: bytes) -> Framing:
    def data(entry: LogEntry) -> bytes:
        return _wrap(request_id, entry.data)

    def last(error: A2AError) -> bytes:
        return b"data: %b\n\n" % _error(request_id, error)

    return Framing(data, last)
