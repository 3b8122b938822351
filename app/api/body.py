"""Reading a request body: bounded, JSON, of one model."""

import asyncio
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from app.api.deps import services
from app.api.errors import invalid_params
from app.api.media import is_json
from app.protocol.errors import (
    InvalidParamsError,
    ParseError,
    PayloadTooLargeError,
    RequestTimeoutError,
    UnsupportedMediaTypeError,
)
from app.protocol.protojson import check_json

Model = TypeVar("Model", bound=BaseModel)


async def read_body(request: Request, limit: int, timeout: float) -> bytes:
    """The body, of at most `limit` bytes, read within `timeout` seconds.

    Raises:
        RequestTimeoutError: it has not all arrived by then, or never will: the sender is gone.
        PayloadTooLargeError: it is larger; what the sender still has is not read.
    """
    declared = request.headers.get("content-length")
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise PayloadTooLargeError(f"The request body is larger than {limit} bytes.")
    chunks = []
    size = 0
    try:
        async with asyncio.timeout(timeout):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise PayloadTooLargeError(f"The request body is larger than {limit} bytes.")
                chunks.append(chunk)
    except ClientDisconnect:
        raise RequestTimeoutError("The connection ended before the request body did.") from None
    except TimeoutError:
        raise RequestTimeoutError(f"The request body did not arrive within {timeout:g} seconds.") from None
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def read_json(request: Request, model: type[Model], *, optional: bool = False) -> Model:
    """The body as a `model`; `optional` takes no body for an empty object.

    Raises:
        UnsupportedMediaTypeError: there is a body and its Content-Type is not JSON.
        PayloadTooLargeError: the body is too large.
        RequestTimeoutError: it takes too long to arrive.
        ParseError: it is not JSON, or JSON that cannot be stored.
        InvalidParamsError: it is not a `model`.
    """
    body = await read_body(request, services(request).max_body_bytes, services(request).body_timeout)
    if not body:
        if optional:
            return model.model_construct()
        raise InvalidParamsError.of("body", "is required")
    if not is_json(request.headers.get("content-type", "")):
        raise UnsupportedMediaTypeError
    return parse(model, body)


def parse(model: type[Model], body: bytes) -> Model:
    """Read JSON as a model; raises as `read_json` does."""
    try:
        check_json(body)
    except ValueError as error:
        raise ParseError(str(error)) from None
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise invalid_params(error) from None
