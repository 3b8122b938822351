"""The HTTP+JSON binding of push notification configurations (A2A 11.3.3)."""

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from app.api.body import read_json
from app.api.deps import GateDep
from app.api.media import media_type
from app.api.rest import TaskId, TenantQuery
from app.protocol.errors import InvalidParamsError
from app.protocol.protojson import MAX_ID_LENGTH, to_json
from app.protocol.push import TaskPushNotificationConfig
from app.protocol.requests import (
    MAX_PAGE_SIZE,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
)


async def _require_push(gate: GateDep) -> None:
    """Refuse before the rest of the request is looked at, where no notifications are sent (A2A 3.3.4)."""
    gate.services.push_configs.require()


router = APIRouter(tags=["push notifications"], dependencies=[Depends(_require_push)])

CONFIGS: Final = "/tasks/{id}/pushNotificationConfigs"
CONFIG: Final = CONFIGS + "/{configId}"

ConfigId = Annotated[
    str, Path(alias="configId", description="The push notification configuration's id.", max_length=MAX_ID_LENGTH)
]


@router.post(
    CONFIGS, operation_id="CreateTaskPushNotificationConfig", summary="Create a push notification configuration"
)
async def create_task_push_notification_config(
    request: Request,
    task_id: TaskId,
    gate: GateDep,
) -> Response:
    """Have every event of the task from now on sent to a webhook (A2A 3.1.7); credentials are never shown again."""
    body = await read_json(request, TaskPushNotificationConfig)
    if body.task_id not in (None, task_id):
        raise InvalidParamsError.of("taskId", "differs from the task in the path")
    config = await gate.services.push_configs.create_task_push_notification_config(
        gate.caller(body.tenant), body.model_copy(update={"task_id": task_id})
    )
    return Response(to_json(config), media_type=media_type(request))


@router.get(CONFIGS, operation_id="ListTaskPushNotificationConfigs", summary="List push notification configurations")
async def list_task_push_notification_configs(
    request: Request,
    task_id: TaskId,
    gate: GateDep,
    named_tenant: TenantQuery = None,
    page_size: Annotated[int | None, Query(alias="pageSize", ge=0, le=MAX_PAGE_SIZE, description="50 if 0.")] = None,
    page_token: Annotated[str | None, Query(alias="pageToken", description="`nextPageToken` of a page.")] = None,
) -> Response:
    """One page of the task's configurations, by id, without credentials (A2A 3.1.9)."""
    listing = ListTaskPushNotificationConfigsRequest(task_id=task_id, page_size=page_size, page_token=page_token)
    page = await gate.services.push_configs.list_task_push_notification_configs(gate.caller(named_tenant), listing)
    return Response(to_json(page), media_type=media_type(request))


@router.get(CONFIG, operation_id="GetTaskPushNotificationConfig", summary="Get a push notification configuration")
async def get_task_push_notification_config(
    request: Request,
    task_id: TaskId,
    config_id: ConfigId,
    gate: GateDep,
    named_tenant: TenantQuery = None,
) -> Response:
    """One configuration, without credentials (A2A 3.1.8)."""
    config = await gate.services.push_configs.get_task_push_notification_config(
        gate.caller(named_tenant), GetTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)
    )
    return Response(to_json(config), media_type=media_type(request))


@router.delete(
    CONFIG, operation_id="DeleteTaskPushNotificationConfig", summary="Delete a push notification configuration"
)
async def delete_task_push_notification_config(
    request: Request,
    task_id: TaskId,
    config_id: ConfigId,
    gate: GateDep,
    named_tenant: TenantQuery = None,
) -> Response:
    """Send nothing more to this webhook (A2A 3.1.10); deleting twice is no error."""
    await gate.services.push_configs.delete_task_push_notification_config(
        gate.caller(named_tenant), DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)
    )
    return Response(b"{}", media_type=media_type(request))
