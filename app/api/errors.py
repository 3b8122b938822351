"""Every way out of the REST binding that is not an answer, in the shape of `google.rpc.Status` (A2A 11.6)."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from app.api.media import media_type
from app.protocol.errors import (
    A2AError,
    FieldViolation,
    InternalError,
    InvalidParamsError,
    MethodNotAllowedError,
    NotFoundError,
    ParseError,
    http_body,
)
from app.telemetry import get_logger

log = get_logger(__name__)

MAX_VIOLATIONS: Final = 20
_WORDS: Final[Mapping[str, str]] = {
    "missing": "is required",
    "string_pattern_mismatch": "must not be blank",
    "model_type": "must be an object",
    "json_invalid": "is not valid JSON",
}
_PREFIX: Final = re.compile(r"^(Value error, |Input should be |Input should |Field )")


def violations(errors: Iterable[Mapping[str, Any]], skip: int = 0) -> list[FieldViolation]:
    """Pydantic's findings, by JSON path; `skip` drops leading path items that are not the client's."""
    found = []
    for error in errors:
        path = ""
        for item in error["loc"][skip:]:
            if isinstance(item, int):
                path += f"[{item}]"
            elif "[" not in item and not item.startswith("function-"):
                path += f".{item}" if path else item
        text = _WORDS.get(error["type"]) or _PREFIX.sub("must be ", error["msg"], count=1)
        found.append(
            FieldViolation(path or "body", text.replace("must be must", "must").replace("must be should", "should"))
        )
    return found[:MAX_VIOLATIONS]


def invalid_params(error: ValidationError, skip: int = 0) -> InvalidParamsError:
    """What Pydantic refused, as the protocol says it; `skip` as of `violations`."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    if errors and errors[0]["type"] == "json_invalid":
        return ParseError(errors[0]["msg"])
    return InvalidParamsError(violations=violations(errors, skip))


def respond(request: Request, error: A2AError) -> Response:
    """The answer of the REST binding."""
    return Response(orjson.dumps(http_body(error)), error.http_status, error.headers, media_type(request))


def install(app: FastAPI) -> None:
    """Let no error leave in another shape."""

    async def a2a_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, A2AError)  # noqa: S101 - registered for this class
        return respond(request, error)

    async def request_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class
        # The first path item names the place, `query` or `path`.
        return respond(request, InvalidParamsError(violations=violations(error.errors(), skip=1)))

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
        known: dict[int, A2AError] = {404: NotFoundError(), 405: MethodNotAllowedError()}
        answer = respond(request, known.get(error.status_code) or InvalidParamsError(str(error.detail)))
        answer.headers.update(error.headers or {})
        return answer

    async def fault(request: Request, error: Exception) -> Response:
        log.error("a request failed", path=request.url.path, exc_info=error)
        return respond(request, InternalError())

    app.add_exception_handler(A2AError, a2a_error)
    app.add_exception_handler(RequestValidationError, request_invalid)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, fault)
