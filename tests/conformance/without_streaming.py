"""The conformance agent with every optional capability off: profile B."""

from app.protocol import AgentCapabilities
from tests import conformance_agent
from tests.conformance_agent import handle, may_reply

card = conformance_agent.card.model_copy(update={"capabilities": AgentCapabilities(streaming=False)})

__all__ = ["card", "handle", "may_reply"]
