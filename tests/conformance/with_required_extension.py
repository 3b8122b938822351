"""The conformance agent with an extension that every request must name: profile C."""

from app.protocol import AgentCapabilities, AgentExtension
from tests import conformance_agent
from tests.conformance_agent import handle, may_reply

REQUIRED = AgentExtension(uri="urn:a2a:tck:required-extension", description="Asked of every request.", required=True)

card = conformance_agent.card.model_copy(update={"capabilities": AgentCapabilities(extensions=[REQUIRED])})

__all__ = ["card", "handle", "may_reply"]
