"""The JSON-RPC 2.0 binding (A2A 9): the eleven methods by one table, over the same service as REST.

A notification (no `id`) and a batch are answered with -32600: A2A has neither. Errors come with HTTP 200, but for those
that HTTP itself must know of (401, 403, 408, 413, 429, 503).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ValidationError

from app.api.body import read_body
from app.api.deps import Gate, Services, ServicesDep, get_gate
from app.api.errors import invalid_params
from app.api.media import JSON, is_json
from app.api.rest import idempotency_key, last_event_id
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


Answer = bytes | Response
"""The result as JSON, or a response that says more than the result."""
Method = Callable[[Exchange, Any], Awaitable[Answer]]


async def _send_message(exchange: Exchange, params: SendMessageRequest) -> Answer:
    key = idempotency_key(exchange.request)
    caller = exchange.gate.caller(params.tenant)
    answer = await exchange.services.tasks.send_message(caller, params, key)
    member = b'{"task":' if isinstance(answer.result, Task) else b'{"message":'
    result = member + to_json(answer.result) + b"}"
    if answer.replayed:
        return Response(_wrap(exchange.id, result), headers={"Idempotency-Replayed": "true"}, media_type=JSON)
    return result


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


async def _refuse_push(exchange: Exchange, _params: BaseModel) -> Answer:
    exchange.services.tasks.refuse_push()


async def _get_extended_agent_card(exchange: Exchange, _params: GetExtendedAgentCardRequest) -> Answer:
    return to_json(exchange.services.tasks.get_extended_agent_card())


METHODS: Final[Mapping[str, tuple[type[BaseModel], Method]]] = {
    "SendMessage": (SendMessageRequest, _send_message),
    "SendStreamingMessage": (SendMessageRequest, _send_streaming_message),
    "GetTask": (GetTaskRequest, _get_task),
    "ListTasks": (ListTasksRequest, _list_tasks),
    "CancelTask": (CancelTaskRequest, _cancel_task),
    "SubscribeToTask": (SubscribeToTaskRequest, _subscribe_to_task),
    "CreateTaskPushNotificationConfig": (TaskPushNotificationConfig, _refuse_push),
    "GetTaskPushNotificationConfig": (GetTaskPushNotificationConfigRequest, _refuse_push),
    "ListTaskPushNotificationConfigs": (ListTaskPushNotificationConfigsRequest, _refuse_push),
    "DeleteTaskPushNotificationConfig": (DeleteTaskPushNotificationConfigRequest, _refuse_push),
    "GetExtendedAgentCard": (GetExtendedAgentCardRequest, _get_extended_agent_card),
}


@router.post("/rpc", operation_id="JsonRpc", summary="Every operation, as JSON-RPC 2.0")
@router.post("/rpc/", include_in_schema=False)
async def rpc(request: Request, services: ServicesDep) -> Response:
    """Methods are the operations by their names; streaming ones answer with server-sent events (A2A 9)."""
    request_id = b"null"
    try:
        envelope = await _envelope(request, services)
        request_id = orjson.dumps(envelope["id"])
        # The version first: the methods of another have other names.
        gate = await get_gate(request, services)
        model, method = _method(envelope)
        params = _params(model, envelope)
        answer = await method(Exchange(request, services, gate, request_id), params)
    except A2AError as error:
        return _respond_error(request_id, error)
    except Exception:
        log.exception("a JSON-RPC request failed")
        return _respond_error(request_id, InternalError())
    if isinstance(answer, Response):
        return answer
    return Response(_wrap(request_id, answer), media_type=JSON)


async def _envelope(request: Request, services: Services) -> dict[str, Any]:
    body = await read_body(request, services.max_body_bytes, services.body_timeout)
    if body and not is_json(request.headers.get("content-type", "")):
        raise UnsupportedMediaTypeError
    try:
        check_json(body)
    except ValueError as error:
        raise ParseError(str(error)) from None
    envelope = orjson.loads(body)
    if isinstance(envelope, list):
        raise InvalidRequestError("Batches are not part of A2A; send one request at a time.")
    if not isinstance(envelope, dict) or envelope.get("jsonrpc") != "2.0":
        raise InvalidRequestError('The request must be a JSON-RPC object with "jsonrpc": "2.0".')
    if "id" not in envelope:
        raise InvalidRequestError("The request has no id; notifications are not part of A2A.")
    if isinstance(envelope["id"], bool | dict | list):
        raise InvalidRequestError("The id must be a string, a number or null.")
    return envelope


def _method(envelope: Mapping[str, Any]) -> tuple[type[BaseModel], Method]:
    name = envelope.get("method")
    if not isinstance(name, str):
        raise InvalidRequestError("The method must be a string.")
    found = METHODS.get(name)
    if found is None:
        raise MethodNotFoundError(f"There is no method {name[:80]!r}.")
    return found


def _params(model: type[BaseModel], envelope: Mapping[str, Any]) -> BaseModel:
    params = envelope.get("params", {})
    if not isinstance(params, dict):
        raise InvalidParamsError.of("params", "must be an object")
    try:
        return model.model_validate_json(orjson.dumps(params))
    except ValidationError as error:
        raise invalid_params(error) from None


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
