"""The agent card at its well-known place, with what a cache needs (A2A 8.2, 8.6)."""

from email.utils import format_datetime
from typing import Final

from fastapi import APIRouter, Request, Response

from app.api.deps import ServicesDep
from app.api.media import media_type

router = APIRouter()

MAX_AGE: Final = 300
"""Seconds for which a client may keep the card without asking."""


@router.get("/.well-known/agent-card.json", operation_id="GetAgentCard", tags=["agent card"], summary="The agent card")
async def get_agent_card(request: Request, services: ServicesDep) -> Response:
    """Who this agent is, what it can do and how to reach it."""
    card = services.card
    headers = {
        "ETag": card.etag,
        "Last-Modified": format_datetime(card.modified, usegmt=True),
        "Cache-Control": f"public, max-age={MAX_AGE}",
        "Vary": "Accept",
    }
    if card.unchanged_for(request):
        return Response(status_code=304, headers=headers)
    return Response(card.body, headers=headers, media_type=media_type(request))
