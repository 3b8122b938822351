"""The A2A v1.0 data model: tasks, messages, artifacts and the events of a stream (A2A 4.1, 4.2)."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from app.protocol.protojson import (
    Bytes,
    Data,
    Flag,
    Id,
    OptionalId,
    ProtoModel,
    Repeated,
    RequiredRepeated,
    Struct,
    Timestamp,
)


class TaskState(StrEnum):
    """Where a task stands (A2A 4.1.3)."""

    UNSPECIFIED = "TASK_STATE_UNSPECIFIED"
    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    REJECTED = "TASK_STATE_REJECTED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"


class Role(StrEnum):
    """Who speaks (A2A 4.1.5)."""

    UNSPECIFIED = "ROLE_UNSPECIFIED"
    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


class Part(ProtoModel):
    """One piece of content: exactly one of `text`, `raw`, `url`, `data` (A2A 4.1.6)."""

    text: str | None = None
    """Text content."""
    raw: Bytes | None = None
    """The bytes of a file; base64 in JSON."""
    url: str | None = None
    """Where the content of a file is found."""
    data: Data = None
    """Any JSON value; `JSON_NULL` for `null`."""
    metadata: Struct | None = None
    filename: str | None = None
    media_type: str | None = None

    @model_validator(mode="after")
    def _holds_one_content(self) -> Self:
        given = (self.text is not None) + (self.raw is not None) + (self.url is not None) + (self.data is not None)
        if given != 1:
            raise ValueError("must have exactly one of text, raw, url, data")
        return self


class Message(ProtoModel):
    """One unit of communication between client and agent (A2A 4.1.4)."""

    message_id: Id
    """Chosen by whoever made the message."""
    context_id: OptionalId = None
    task_id: OptionalId = None
    role: Role
    parts: Annotated[list[Part], Field(min_length=1)]
    metadata: Struct | None = None
    extensions: Repeated[str] = Field(default_factory=list)
    reference_task_ids: Repeated[str] = Field(default_factory=list)


class TaskStatus(ProtoModel):
    """The state of a task, with the message that came with it (A2A 4.1.2)."""

    state: TaskState
    message: Message | None = None
    timestamp: Timestamp | None = None
    """When the status was recorded; UTC, milliseconds."""


class Artifact(ProtoModel):
    """Something a task produced (A2A 4.1.7)."""

    artifact_id: Id
    """Unique within the task."""
    name: str | None = None
    description: str | None = None
    parts: RequiredRepeated[Part] = Field(default_factory=list)
    metadata: Struct | None = None
    extensions: Repeated[str] = Field(default_factory=list)


class Task(ProtoModel):
    """The unit of work (A2A 4.1.1)."""

    id: Id
    """Made by the server."""
    context_id: OptionalId = None
    status: TaskStatus
    artifacts: Repeated[Artifact] = Field(default_factory=list)
    history: Repeated[Message] = Field(default_factory=list)
    """Messages of the task, oldest first; the message of the current status is not among them."""
    metadata: Struct | None = None


class TaskStatusUpdateEvent(ProtoModel):
    """A task's status changed (A2A 4.2.1)."""

    task_id: Id
    context_id: OptionalId = None
    status: TaskStatus
    metadata: Struct | None = None


class TaskArtifactUpdateEvent(ProtoModel):
    """An artifact was written or added to (A2A 4.2.2)."""

    task_id: Id
    context_id: OptionalId = None
    artifact: Artifact
    append: Flag | None = None
    """Add the parts to the artifact of the same id, instead of replacing it."""
    last_chunk: Flag | None = None
    """Nothing more will be appended to this artifact."""
    metadata: Struct | None = None


class StreamResponse(ProtoModel):
    """One event of a stream: exactly one of its members (A2A 3.2.3)."""

    task: Task | None = None
    message: Message | None = None
    status_update: TaskStatusUpdateEvent | None = None
    artifact_update: TaskArtifactUpdateEvent | None = None

    @model_validator(mode="after")
    def _holds_one_payload(self) -> Self:
        given = (self.task, self.message, self.status_update, self.artifact_update)
        if sum(payload is not None for payload in given) != 1:
            raise ValueError("must have exactly one of task, message, statusUpdate, artifactUpdate")
        return self


class SendMessageResponse(ProtoModel):
    """The answer to SendMessage: exactly one of its members (A2A 3.1.1)."""

    task: Task | None = None
    message: Message | None = None

    @model_validator(mode="after")
    def _holds_one_payload(self) -> Self:
        if (self.task is None) == (self.message is None):
            raise ValueError("must have exactly one of task, message")
        return self
