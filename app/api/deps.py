"""What routes are given: the services of the process, and who is asking."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Final, TypedDict

from fastapi import Depends, Request

from app.api.card_document import CardDocument
from app.api.extensions import ExtensionPolicy
from app.api.sse import StreamPolicy
from app.protocol.errors import InvalidParamsError, VersionNotSupportedError
from app.protocol.identity import Owner
from app.service.agent_card import PROTOCOL_VERSION
from app.service.push_configs import PushConfigService
from app.service.tasks import TaskService
from app.service.turns import Caller
from app.store.base import TaskStore

RESERVED_SEGMENTS: Final = frozenset(
    {
        ".well-known",
        "docs",
        "extendedAgentCard",
        "healthz",
        "message:send",
        "message:stream",
        "metrics",
        "openapi.json",
        "playground",
        "readyz",
        "redoc",
        "rpc",
        "tasks",
    }
)
"""First path segments of the server itself; none of them can be a tenant."""


@dataclass(slots=True)
class Services:
    """What the process made at its start."""

    store: TaskStore
    tasks: TaskService
    push_configs: PushConfigService
    card: CardDocument
    extensions: ExtensionPolicy
    streams: StreamPolicy
    max_body_bytes: int
    body_timeout: float
    """Seconds."""
    require_version: bool
    drain: Callable[[], Awaitable[None]]
    """Take no new work, send streams elsewhere, let running turns end or hand them over; returns when that is done."""
    draining: bool = False
    """Whether the process is about to end and wants no new work."""


class State(TypedDict):
    """The lifespan state, on `request.state`."""

    services: Services


def services(request: Request) -> Services:
    """The services of the process this request came to."""
    found: Services = request.state.services
    return found


async def get_services(request: Request) -> Services:
    """`services`, as a dependency that tests and forks may override."""
    return services(request)


class Gate:
    """What every A2A request passes: the version it speaks, the extensions it activates, the tenant it names."""

    __slots__ = ("_extensions", "_path_tenant", "services")

    def __init__(self, services: Services, path_tenant: str | None, extensions: frozenset[str]) -> None:
        self.services = services
        self._path_tenant = path_tenant
        self._extensions = extensions

    def caller(self, tenant: str | None) -> Caller:
        """Who asks, with the store bound to them. `tenant` is that of the body or the query.

        Raises:
            InvalidParamsError: the path names another tenant, or one that the server needs for itself.
            ExtensionSupportRequiredError: the card requires an extension that the request does not name.
        """
        self.services.extensions.check(self._extensions)
        named = self._path_tenant or tenant or ""
        if tenant and tenant != named:
            raise InvalidParamsError.of("tenant", "differs from the tenant in the path")
        if named in RESERVED_SEGMENTS:
            raise InvalidParamsError.of("tenant", "is a name that the server needs for itself")
        owner = Owner(named)
        return Caller(owner, self.services.store.for_owner(owner), self._extensions)


async def get_gate(request: Request, services: Annotated[Services, Depends(get_services)]) -> Gate:
    """Check what holds for every A2A request.

    Raises:
        VersionNotSupportedError: `A2A-Version` is not 1.0; absent or empty means 0.3 (A2A 3.6.2).
    """
    version = request.headers.get("a2a-version") or request.query_params.get("A2A-Version")
    if version:
        if _major_minor(version) != PROTOCOL_VERSION:
            raise VersionNotSupportedError(
                f"A2A version {version[:20]!r} is not supported; this server speaks {PROTOCOL_VERSION}.",
                metadata={"supportedVersions": PROTOCOL_VERSION},
            )
    elif services.require_version:
        raise VersionNotSupportedError(
            f"The A2A-Version header is missing, which means 0.3; this server speaks {PROTOCOL_VERSION}.",
            metadata={"supportedVersions": PROTOCOL_VERSION},
        )
    return Gate(services, request.path_params.get("tenant"), services.extensions.activate(request))


def _major_minor(version: str) -> str:
    return ".".join(version.strip().split(".")[:2])


ServicesDep = Annotated[Services, Depends(get_services)]
GateDep = Annotated[Gate, Depends(get_gate)]
