"""The HTTP+JSON binding (A2A 11): every operation at its path, at the root and under `/{tenant}`."""

from datetime import datetime
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request, Response

from app.api.body import read_json
from app.api.deps import GateDep
from app.api.media import media_type
from app.protocol.errors import InvalidParamsError
from app.protocol.protojson import MAX_ID_LENGTH, OptionalId, ProtoModel, Struct, to_json
from app.protocol.requests import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
)
from app.protocol.types import Task, TaskState
from app.service.tasks import MAX_EVENTS_PAGE, StreamAtEndError

router = APIRouter()

MAX_INT32: Final = 2**31 - 1
MAX_POSITION: Final = 2**53
REPLAYED: Final = {"Idempotency-Replayed": "true"}
"""Says that an earlier send with the same key began the turn."""

TaskId = Annotated[str, Path(alias="id", description="The task's id.", max_length=MAX_ID_LENGTH)]
TenantQuery = Annotated[str | None, Query(alias="tenant", description="The tenant, where the path names none.")]
HistoryLength = Annotated[
    int | None,
    Query(alias="historyLength", ge=0, le=MAX_INT32, description="At most so many of the newest messages; 0 for none."),
]


class CancelTaskBody(ProtoModel):
    """The body of CancelTask; it may be absent."""

    tenant: OptionalId = None
    metadata: Struct | None = None


def _json(request: Request, model: ProtoModel) -> Response:
    return Response(to_json(model), media_type=media_type(request))


@router.post("/message:send", operation_id="SendMessage", tags=["messages"], summary="Send a message")
async def send_message(
    request: Request,
    gate: GateDep,
) -> Response:
    """Begin a task, or continue one by its `taskId`, and answer when the turn has ended (A2A 3.1.1)."""
    body = await read_json(request, SendMessageRequest)
    answer = await gate.services.tasks.send_message(gate.caller(body.tenant), body, idempotency_key(request))
    member = b'{"task":' if isinstance(answer.result, Task) else b'{"message":'
    headers = REPLAYED if answer.replayed else None
    return Response(member + to_json(answer.result) + b"}", headers=headers, media_type=media_type(request))


@router.post("/message:stream", operation_id="SendStreamingMessage", tags=["messages"], summary="Send, and stream")
async def send_streaming_message(
    request: Request,
    gate: GateDep,
) -> Response:
    """Begin or continue a task and stream its events until the turn ends (A2A 3.1.2).

    The first event is the Task. `id:` is the event's position in the task's log.
    """
    body = await read_json(request, SendMessageRequest)
    caller, key, cursor = gate.caller(body.tenant), idempotency_key(request), last_event_id(request)
    try:
        with gate.services.streams.slot() as slot:
            return slot.respond(await gate.services.tasks.send_streaming_message(caller, body, key, cursor))
    except StreamAtEndError:
        # Only of a turn that an earlier send began can a send be at the end.
        return Response(status_code=204, headers=REPLAYED)


@router.get("/tasks", operation_id="ListTasks", tags=["tasks"], summary="List tasks")
async def list_tasks(
    request: Request,
    gate: GateDep,
    named_tenant: TenantQuery = None,
    context_id: Annotated[str | None, Query(alias="contextId", max_length=MAX_ID_LENGTH)] = None,
    status: Annotated[TaskState | None, Query(description="Only tasks in this state.")] = None,
    page_size: Annotated[int | None, Query(alias="pageSize", ge=1, le=100, description="50 if absent.")] = None,
    page_token: Annotated[str | None, Query(alias="pageToken", description="`nextPageToken` of a page.")] = None,
    history_length: HistoryLength = None,
    status_timestamp_after: Annotated[datetime | None, Query(alias="statusTimestampAfter")] = None,
    include_artifacts: Annotated[bool | None, Query(alias="includeArtifacts")] = None,
) -> Response:
    """One page of tasks, newest status first (A2A 3.1.4)."""
    if status_timestamp_after is not None and status_timestamp_after.tzinfo is None:
        raise InvalidParamsError.of("statusTimestampAfter", "must have a time zone, such as Z")
    if status is TaskState.UNSPECIFIED:
        status = None
    listing = ListTasksRequest(
        context_id=context_id,
        status=status,
        page_size=page_size,
        page_token=page_token or None,
        history_length=history_length,
        status_timestamp_after=status_timestamp_after,
        include_artifacts=include_artifacts,
    )
    return _json(request, await gate.services.tasks.list_tasks(gate.caller(named_tenant), listing))


@router.get(
    "/tasks/{id}:subscribe", operation_id="SubscribeToTaskByGet", tags=["tasks"], summary="Subscribe (EventSource)"
)
@router.post("/tasks/{id}:subscribe", operation_id="SubscribeToTask", tags=["tasks"], summary="Subscribe to a task")
async def subscribe_to_task(
    request: Request,
    task_id: TaskId,
    gate: GateDep,
    named_tenant: TenantQuery = None,
) -> Response:
    """Stream the task as it is and what follows, until it ends (A2A 3.1.6); resume with Last-Event-ID."""
    caller = gate.caller(named_tenant)
    cursor = last_event_id(request)
    try:
        with gate.services.streams.slot() as slot:
            subscription = SubscribeToTaskRequest(id=task_id)
            return slot.respond(await gate.services.tasks.subscribe_to_task(caller, subscription, cursor))
    except StreamAtEndError:
        return Response(status_code=204)


@router.post("/tasks/{id}:cancel", operation_id="CancelTask", tags=["tasks"], summary="Cancel a task")
async def cancel_task(
    request: Request,
    task_id: TaskId,
    gate: GateDep,
) -> Response:
    """Stop the task, wherever it runs, and answer with it (A2A 3.1.5)."""
    body = await read_json(request, CancelTaskBody, optional=True)
    caller = gate.caller(body.tenant)
    return _json(
        request, await gate.services.tasks.cancel_task(caller, CancelTaskRequest(id=task_id, metadata=body.metadata))
    )


@router.get("/tasks/{id}", operation_id="GetTask", tags=["tasks"], summary="Get a task")
async def get_task(
    request: Request,
    task_id: TaskId,
    gate: GateDep,
    named_tenant: TenantQuery = None,
    history_length: HistoryLength = None,
) -> Response:
    """The task as it is now (A2A 3.1.3)."""
    task = await gate.services.tasks.get_task(
        gate.caller(named_tenant), GetTaskRequest(id=task_id, history_length=history_length)
    )
    return _json(request, task)


@router.get("/tasks/{id}/events", operation_id="ListEvents", tags=["tasks"], summary="Read a task's event log")
async def list_events(
    request: Request,
    task_id: TaskId,
    gate: GateDep,
    named_tenant: TenantQuery = None,
    after: Annotated[int, Query(ge=0, le=MAX_POSITION, description="The position to read after.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_EVENTS_PAGE, description="At most so many events.")] = 1000,
) -> Response:
    """Events by position, oldest first; `earliestSeq` above `after` + 1 means that older ones were dropped."""
    page = await gate.services.tasks.list_events(gate.caller(named_tenant), task_id, after, limit)
    events = b",".join(b'{"seq":%d,"event":%b}' % (entry.seq, entry.data) for entry in page.events)
    body = b'{"events":[%b],"earliestSeq":%d,"lastSeq":%d}' % (events, page.earliest_seq, page.last_seq)
    return Response(body, media_type=media_type(request))


@router.get("/extendedAgentCard", operation_id="GetExtendedAgentCard", tags=["agent card"], summary="Extended card")
async def get_extended_agent_card(request: Request, gate: GateDep) -> Response:
    """Answers UnsupportedOperationError: this agent has no extended card (A2A 3.1.11)."""
    return _json(request, gate.services.tasks.get_extended_agent_card())


def idempotency_key(request: Request) -> str | None:
    """The `Idempotency-Key`, in its quoted form (a structured field string) or bare."""
    value = request.headers.get("idempotency-key")
    if value is not None and len(value) > 1 and value[0] == value[-1] == '"':
        return value[1:-1]
    return value


def last_event_id(request: Request) -> str | None:
    """Where to resume: the header wins over the query."""
    header = request.headers.get("last-event-id")
    return header if header is not None else request.query_params.get("lastEventId")
