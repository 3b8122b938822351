"""The agent card, derived from what is really wired."""

from typing import Final

from app.protocol.agent_card import AgentCapabilities, AgentCard, AgentExtension, AgentInterface
from app.protocol.extensions import IDEMPOTENCY_EXTENSION_URI, RESUME_EXTENSION_URI
from app.store.base import TaskStore

PROTOCOL_VERSION = "1.0"
DEFAULT_MODES = ("text/plain",)
OURS: Final = (
    AgentExtension(
        uri=IDEMPOTENCY_EXTENSION_URI,
        description="A send that carries a key may be retried; the agent runs once.",
        required=False,
    ),
    AgentExtension(
        uri=RESUME_EXTENSION_URI,
        description="Streams carry event ids and resume after Last-Event-ID.",
        required=False,
    ),
)
"""What the server itself brings to the card."""


def derive_card(card: AgentCard, store: TaskStore, public_url: str, *, sends_push: bool = False) -> AgentCard:
    """The card of the agent file, with interfaces and capabilities as this server has them.

    One of the server's own extensions is on it exactly when the store supports it; nothing here can be configured to
    say otherwise. The agent file may declare it to make it `required`; its other extensions stay as they are. Streaming
    is on it unless the agent file says `AgentCapabilities(streaming=False)`.
    """
    streaming = card.capabilities.streaming is not False
    base = public_url.rstrip("/")
    declared = {extension.uri: extension for extension in card.capabilities.extensions}
    ours = {extension.uri: extension for extension in OURS}
    extensions = [extension for uri, extension in declared.items() if uri not in ours]
    for uri, supported in (
        (IDEMPOTENCY_EXTENSION_URI, store.supports_idempotency()),
        (RESUME_EXTENSION_URI, streaming and store.supports_event_log()),
    ):
        if supported:
            extensions.append(declared.get(uri) or ours[uri])
    capabilities = AgentCapabilities(
        streaming=streaming, push_notifications=sends_push, extended_agent_card=False, extensions=extensions
    )
    return card.model_copy(
        update={
            "supported_interfaces": [
                AgentInterface(url=url, protocol_binding=binding, protocol_version=PROTOCOL_VERSION)
                for url, binding in ((base, "HTTP+JSON"), (f"{base}/rpc", "JSONRPC"))
            ],
            "capabilities": capabilities,
            "default_input_modes": card.default_input_modes or list(DEFAULT_MODES),
            "default_output_modes": card.default_output_modes or list(DEFAULT_MODES),
        }
    )
