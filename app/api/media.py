"""Media types: which are read, and which an answer mirrors (A2A 11.1)."""

from typing import Final

from starlette.requests import Request

JSON: Final = "application/json"
A2A_JSON: Final = "application/a2a+json"


def media_type(request: Request) -> str:
    """The media type of an answer: what the client accepts by name, else what it spoke, else `application/json`."""
    accept = request.headers.get("accept", "")
    if A2A_JSON in accept:
        return A2A_JSON
    if JSON in accept:
        return JSON
    return A2A_JSON if A2A_JSON in request.headers.get("content-type", "") else JSON


def is_json(content_type: str) -> bool:
    """Whether a `Content-Type` header names JSON."""
    return content_type.partition(";")[0].strip().lower() in (JSON, A2A_JSON)
