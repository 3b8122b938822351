"""What can go wrong with a peer: its A2A errors by their classes, and what never became an answer."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx
import orjson

from app.protocol import errors as protocol
from app.protocol.errors import A2AError, FieldViolation, InternalError, InvalidParamsError, UnavailableError


class ConnectionFailedError(Exception):
    """No connection could be made: the peer has seen nothing of the request."""


class AmbiguousSendError(Exception):
    """The connection broke after the request was on its way: the peer may or may not have acted on it."""


class InvalidPeerResponseError(Exception):
    """The peer's answer is not A2A."""


def _subclasses(base: type[A2AError]) -> list[type[A2AError]]:
    return [found for child in base.__subclasses__() for found in (child, *_subclasses(child))]


PASSING: Final = frozenset({429, 502, 503, 504})
"""HTTP statuses of a peer, or of somebody on the way to it, that cannot answer now."""

A2A_CODES: Final = range(-32099, -32000)
"""JSON-RPC codes that A2A defines for itself."""

_BY_REASON: Final[Mapping[str, type[A2AError]]] = {
    found.reason: found for found in reversed(_subclasses(A2AError)) if found.__module__ == protocol.__name__
}
_BY_CODE: Final[Mapping[int, type[A2AError]]] = {
    code: found
    for found in reversed(_subclasses(A2AError))
    if (code := found.code) in A2A_CODES and found.__module__ == protocol.__name__
}


def error_of_rest(response: httpx.Response) -> A2AError:
    """The error of an HTTP+JSON answer, whatever shape its body has."""
    try:
        error = orjson.loads(response.content)["error"]
        message, details = str(error["message"]), error.get("details")
    except (ValueError, KeyError, TypeError):
        message, details = f"HTTP {response.status_code}", []
    return _typed(message, details if isinstance(details, list) else [], None, response)


def error_of_jsonrpc(error: Any, response: httpx.Response) -> A2AError:
    """The error of a JSON-RPC answer, or of a frame."""
    if not isinstance(error, dict):
        return _typed(str(error), [], None, response)
    code = error.get("code")
    data = error.get("data")
    details = data if isinstance(data, list) else []
    return _typed(str(error.get("message", "")), details, code if isinstance(code, int) else None, response)


def retry_after(response: httpx.Response) -> int:
    """`Retry-After` in seconds, given as such or as a date (RFC 9110 10.2.3); 0 if there is none."""
    value = response.headers.get("retry-after", "")
    if value.isascii() and value.isdigit():
        return int(value)
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return 0
    wait = until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)
    return max(0, math.ceil(wait.total_seconds()))


def _typed(message: str, details: list[Any], code: int | None, response: httpx.Response) -> A2AError:
    reasons = [str(detail.get("reason")) for detail in details if isinstance(detail, dict)]
    found = next((_BY_REASON[reason] for reason in reasons if reason in _BY_REASON), None)
    if found is None and code is not None:
        found = _BY_CODE.get(code)
    if found is UnavailableError or (found is None and response.status_code in PASSING):
        return UnavailableError(message, retry_after=retry_after(response))
    violations = _violations(details)
    if found is InvalidParamsError or (
        found is None and (violations or response.status_code in {400, 422} or code in {-32600, -32602})
    ):
        return InvalidParamsError(message, violations=violations)
    if found is None and response.status_code == httpx.codes.NOT_FOUND:
        found = protocol.NotFoundError
    return (found or InternalError)(message)


def _violations(details: list[Any]) -> list[FieldViolation]:
    return [
        FieldViolation(str(violation.get("field")), str(violation.get("description")))
        for detail in details
        if isinstance(detail, dict)
        for violation in detail.get("fieldViolations") or []
        if isinstance(violation, dict)
    ]
