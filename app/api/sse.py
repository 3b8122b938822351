"""Server-sent events: committed entries as frames, `id:` = position (A2A 11.7)."""

from collections.abc import AsyncIterator, Callable
from typing import Final

import orjson
from sse_starlette import EventSourceResponse, ServerSentEvent

from app.protocol.errors import A2AError, InternalError, http_body
from app.service.streams import EventStream
from app.store.base import LogEntry
from app.telemetry import get_logger

log = get_logger(__name__)

MAX_WRITE: Final = 64 * 1024
"""Bytes of frames joined into one write; one larger frame goes alone."""


class _KeepAlive(ServerSentEvent):
    """One comment line and no blank one: some readers make an event of comment and blank line once they know an id."""

    def encode(self) -> bytes:
        return b": keep-alive\n"


Frame = Callable[[LogEntry], bytes]


def rest_frame(entry: LogEntry) -> bytes:
    """A frame of the REST binding."""
    return b"id: %d\ndata: %b\n\n" % (entry.seq, entry.data)


def rest_frame_without_id(entry: LogEntry) -> bytes:
    """A frame of a stream that cannot be resumed."""
    return b"data: %b\n\n" % entry.data


def rest_error_frame(error: A2AError) -> bytes:
    """The last frame of a stream that broke: no status can be sent any more."""
    return b"event: error\ndata: %b\n\n" % orjson.dumps(http_body(error))


async def _frames(stream: EventStream, frame: Frame, error_frame: Callable[[A2AError], bytes]) -> AsyncIterator[bytes]:
    try:
        async for batch in stream.entries:
            joined: list[bytes] = []
            size = 0
            for entry in batch:
                encoded = frame(entry)
                if joined and size + len(encoded) > MAX_WRITE:
                    yield b"".join(joined)
                    joined, size = [], 0
                joined.append(encoded)
                size += len(encoded)
            yield b"".join(joined)
    except A2AError as error:
        yield error_frame(error)
    except Exception:
        log.exception("a stream broke")
        yield error_frame(InternalError())


class StreamPolicy:
    """How streams behave on the wire."""

    def __init__(self, keep_alive: float, send_timeout: float) -> None:
        self.keep_alive = keep_alive
        """Seconds between comments on a quiet stream."""
        self.send_timeout = send_timeout
        """Seconds that a reader may refuse to read before it is cut."""

    def respond(self, stream: EventStream) -> EventSourceResponse:
        """The response that streams entries of the REST binding."""
        frame = rest_frame if stream.has_ids else rest_frame_without_id
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        if stream.resume is not None:
            headers["A2A-Resume"] = stream.resume
        if stream.replayed:
            headers["Idempotency-Replayed"] = "true"
        return EventSourceResponse(
            _frames(stream, frame, rest_error_frame),
            headers=headers,
            ping=self.keep_alive,
            ping_message_factory=_KeepAlive,
            send_timeout=self.send_timeout,
        )
