"""The agent card as it is served, with what a cache needs (A2A 8.6)."""

import hashlib
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from starlette.requests import Request

from app.protocol.agent_card import AgentCard
from app.protocol.protojson import to_json


class CardDocument:
    """The card as it is served: bytes, strong ETag, and the time since which it is so."""

    def __init__(self, card: AgentCard) -> None:
        self.body = to_json(card)
        self.etag = f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'
        self.modified = datetime.now(UTC).replace(microsecond=0)

    def unchanged_for(self, request: Request) -> bool:
        """Whether the client has this very card (RFC 9110 13.2.2: If-None-Match decides where it is given)."""
        known = request.headers.get("if-none-match")
        if known is not None:
            tags = [tag.strip().removeprefix("W/") for tag in known.split(",")]
            return "*" in tags or self.etag in tags
        since = request.headers.get("if-modified-since")
        if since is None:
            return False
        try:
            return self.modified <= parsedate_to_datetime(since)
        except (ValueError, TypeError):
            return False
