"""Push notification configurations (A2A 4.3)."""

from app.protocol.protojson import OptionalId, ProtoModel


class AuthenticationInfo(ProtoModel):
    """How the agent authenticates to a webhook (A2A 4.3.2)."""

    scheme: str
    """An HTTP authentication scheme, such as `Bearer`."""
    credentials: str | None = None


class TaskPushNotificationConfig(ProtoModel):
    """A webhook that hears of a task's updates (A2A 4.3.1)."""

    tenant: OptionalId = None
    id: OptionalId = None
    task_id: OptionalId = None
    url: str
    token: str | None = None
    authentication: AuthenticationInfo | None = None
