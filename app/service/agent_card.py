"""The agent card, derived from what is really wired."""

from app.protocol.agent_card import AgentCapabilities, AgentCard, AgentExtension, AgentInterface
from app.protocol.extensions import IDEMPOTENCY_EXTENSION_URI, RESUME_EXTENSION_URI
from app.store.base import TaskStore

PROTOCOL_VERSION = "1.0"
DEFAULT_MODES = ("text/plain",)


def derive_card(card: AgentCard, store: TaskStore, public_url: str, *, sends_push: bool = False) -> AgentCard:
    """The card of the agent file, with interfaces and capabilities as this server has them.

    An extension is on it exactly when the store supports it; nothing here can be configured to say otherwise.
    """
    base = public_url.rstrip("/")
    extensions = list(card.capabilities.extensions)
    if store.supports_idempotency():
        extensions.append(
            AgentExtension(
                uri=IDEMPOTENCY_EXTENSION_URI,
                description="A send that carries a key may be retried; the agent runs once.",
                required=False,
            )
        )
    if store.supports_event_log():
        extensions.append(
            AgentExtension(
                uri=RESUME_EXTENSION_URI,
                description="Streams carry event ids and resume after Last-Event-ID.",
                required=False,
            )
        )
    capabilities = AgentCapabilities(
        streaming=True, push_notifications=sends_push, extended_agent_card=False, extensions=extensions
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
