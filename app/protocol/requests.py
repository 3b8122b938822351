"""The requests and responses of the eleven operations (A2A 3.2, 9.4, 11.5)."""

from typing import Annotated

from pydantic import Field

from app.protocol.protojson import (
    Flag,
    Id,
    Int32,
    Integer,
    OptionalId,
    ProtoModel,
    Repeated,
    RequiredRepeated,
    Struct,
    Timestamp,
)
from app.protocol.push import TaskPushNotificationConfig
from app.protocol.types import Message, Task, TaskState

HistoryLength = Annotated[Integer, Field(ge=0, le=2**31 - 1)]

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 100


class SendMessageConfiguration(ProtoModel):
    """How a send wants to be answered (A2A 3.2.2)."""

    accepted_output_modes: Repeated[str] = Field(default_factory=list)
    task_push_notification_config: TaskPushNotificationConfig | None = None
    history_length: HistoryLength | None = None
    """At most so many of the newest messages in the answer; 0 for none, absent for all."""
    return_immediately: Flag | None = None
    """Answer as soon as the task exists, instead of when its turn has ended."""


class SendMessageRequest(ProtoModel):
    """SendMessage and SendStreamingMessage (A2A 3.2.1)."""

    tenant: OptionalId = None
    message: Message
    configuration: SendMessageConfiguration | None = None
    metadata: Struct | None = None


class GetTaskRequest(ProtoModel):
    """GetTask (A2A 3.1.3)."""

    tenant: OptionalId = None
    id: Id
    history_length: HistoryLength | None = None


class ListTasksRequest(ProtoModel):
    """ListTasks (A2A 3.1.4)."""

    tenant: OptionalId = None
    context_id: OptionalId = None
    status: TaskState | None = None
    page_size: Annotated[Integer, Field(ge=1, le=MAX_PAGE_SIZE)] | None = None
    """1 to 100; 50 if absent."""
    page_token: str | None = None
    history_length: HistoryLength | None = None
    status_timestamp_after: Timestamp | None = None
    """Only tasks whose status is of this time or later."""
    include_artifacts: Flag | None = None


class ListTasksResponse(ProtoModel):
    """One page of tasks, newest status first; all four members are always written (A2A 3.1.4)."""

    tasks: RequiredRepeated[Task] = Field(default_factory=list)
    next_page_token: str = ""
    """Empty on the last page."""
    page_size: Int32 = 0
    total_size: Int32 = 0


class CancelTaskRequest(ProtoModel):
    """CancelTask (A2A 3.1.5)."""

    tenant: OptionalId = None
    id: Id
    metadata: Struct | None = None


class SubscribeToTaskRequest(ProtoModel):
    """SubscribeToTask (A2A 3.1.6)."""

    tenant: OptionalId = None
    id: Id


class GetTaskPushNotificationConfigRequest(ProtoModel):
    """GetTaskPushNotificationConfig (A2A 3.1.8)."""

    tenant: OptionalId = None
    task_id: Id
    id: Id


class ListTaskPushNotificationConfigsRequest(ProtoModel):
    """ListTaskPushNotificationConfigs (A2A 3.1.9)."""

    tenant: OptionalId = None
    task_id: Id
    page_size: Int32 | None = None
    page_token: str | None = None


class ListTaskPushNotificationConfigsResponse(ProtoModel):
    """One page of push notification configurations (A2A 3.1.9)."""

    configs: Repeated[TaskPushNotificationConfig] = Field(default_factory=list)
    next_page_token: str | None = None


class DeleteTaskPushNotificationConfigRequest(ProtoModel):
    """DeleteTaskPushNotificationConfig (A2A 3.1.10)."""

    tenant: OptionalId = None
    task_id: Id
    id: Id


class GetExtendedAgentCardRequest(ProtoModel):
    """GetExtendedAgentCard (A2A 3.1.11)."""

    tenant: OptionalId = None
