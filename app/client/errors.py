"""What can go wrong with a peer: its A2A errors by their classes, and what never became an answer."""

from collections.abc import Mapping
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
        message, details = str(error["message"]), error.get("details") or []
    except (ValueError, KeyError, TypeError):
        message, details = f"HTTP {response.status_code}", []
    return _typed(message, details, None, response)


def error_of_jsonrpc(error: Mapping[str, Any], response: httpx.Response) -> A2AError:
    """The error of a JSON-RPC answer."""
    code = error.get("code")
    data = error.get("data")
    details = data if isinstance(data, list) else []
    return _typed(str(error.get("message", "")), details, code if isinstance(code, int) else None, response)


def retry_after(response: httpx.Response) -> int | None:
    """`Retry-After` in seconds, where it is a number."""
    value = response.headers.get("retry-after", "")
    return int(value) if value.isascii() and value.isdigit() else None


def _typed(message: str, details: list[Any], code: int | None, response: httpx.Response) -> A2AError:
    violations = []
    for detail in details:
        if not isinstance(detail, dict):
            continue
        if (found := _BY_REASON.get(str(detail.get("reason")))) is not None and found is not UnavailableError:
            return _made(found, message)
        violations += [
            FieldViolation(str(violation.get("field")), str(violation.get("description")))
            for violation in detail.get("fieldViolations") or []
        ]
    if response.status_code in {429, 502, 503, 504}:
        return UnavailableError(message, retry_after=retry_after(response) or 1)
    if code is not None and code in _BY_CODE:
        return _made(_BY_CODE[code], message)
    if violations or response.status_code in {400, 422} or code in {-32600, -32602}:
        return InvalidParamsError(message, violations=violations)
    if response.status_code == httpx.codes.NOT_FOUND:
        return protocol.NotFoundError(message)
    return InternalError(message)


def _made(found: type[A2AError], message: str) -> A2AError:
    return found(message)
