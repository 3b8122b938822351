"""Which extensions a request activates: named by the client in `A2A-Extensions`, known to the card (A2A 4.6)."""

from collections.abc import Iterable
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.protocol.agent_card import AgentCard
from app.protocol.errors import ExtensionSupportRequiredError

HEADER: Final = "A2A-Extensions"
_NAME: Final = HEADER.lower().encode()
_ACTIVATED: Final = "activated_extensions"


class ExtensionPolicy:
    """The extensions of a card."""

    def __init__(self, card: AgentCard) -> None:
        declared = card.capabilities.extensions
        self.uris = tuple(dict.fromkeys(extension.uri for extension in declared))
        self.required = frozenset(extension.uri for extension in declared if extension.required)

    def activate(self, request: Request) -> frozenset[str]:
        """What the request names and the card declares; other names count for nothing.

        Noted on the request, so that the answer says it. The query stands in for the header where an EventSource asks,
        as it does for `A2A-Version`.
        """
        named = _listed(request.headers.getlist(HEADER)) or _listed(request.query_params.getlist(HEADER))
        activated = frozenset(named.intersection(self.uris)) if named else frozenset()
        if activated:
            request.scope["state"][_ACTIVATED] = [uri for uri in self.uris if uri in activated]
        return activated

    def check(self, activated: frozenset[str]) -> None:
        """Refuse a request that does not name what the card requires (A2A 3.3.4).

        Raises:
            ExtensionSupportRequiredError: `metadata.requiredExtensions` says what was to be named.
        """
        missing = self.required - activated
        if missing:
            raise ExtensionSupportRequiredError(metadata={"requiredExtensions": ", ".join(sorted(missing))})


class SaysActivatedExtensions:
    """Puts `A2A-Extensions` on the answers to requests that activated some, errors and streams included."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or not _names_some(scope):
            await self.app(scope, receive, send)
            return

        async def said(message: Message) -> None:
            if message["type"] == "http.response.start" and (uris := scope.get("state", {}).get(_ACTIVATED)):
                message["headers"] = [*message["headers"], (_NAME, ", ".join(uris).encode("latin-1"))]
            await send(message)

        await self.app(scope, receive, said)


def _names_some(scope: Scope) -> bool:
    return any(name == _NAME for name, _ in scope["headers"]) or HEADER.encode() in scope["query_string"]


def _listed(values: Iterable[str]) -> set[str]:
    return {uri for value in values for item in value.split(",") if (uri := item.strip())}
