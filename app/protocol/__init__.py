"""A2A v1.0 on paper: types, requests, errors and the rules of a task's life. No I/O, no framework."""

from pydantic import JsonValue

from app.protocol.agent_card import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
)
from app.protocol.identity import ANONYMOUS, Owner
from app.protocol.lifecycle import INTERRUPTED, TERMINAL, TURN_ENDING, Event, copy_task, fold, payload, trim_history
from app.protocol.limits import LimitError
from app.protocol.protojson import JSON_NULL, ProtoModel, Struct, to_dict, to_json
from app.protocol.types import (
    Artifact,
    Message,
    Part,
    Role,
    SendMessageResponse,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

__all__ = [
    "ANONYMOUS",
    "INTERRUPTED",
    "JSON_NULL",
    "TERMINAL",
    "TURN_ENDING",
    "AgentCapabilities",
    "AgentCard",
    "AgentExtension",
    "AgentInterface",
    "AgentProvider",
    "AgentSkill",
    "Artifact",
    "Event",
    "JsonValue",
    "LimitError",
    "Message",
    "Owner",
    "Part",
    "ProtoModel",
    "Role",
    "SendMessageResponse",
    "StreamResponse",
    "Struct",
    "Task",
    "TaskArtifactUpdateEvent",
    "TaskState",
    "TaskStatus",
    "TaskStatusUpdateEvent",
    "copy_task",
    "fold",
    "payload",
    "to_dict",
    "to_json",
    "trim_history",
]
