"""Server-sent events: committed entries as frames, `id:` = position (A2A 11.7)."""

import random
from collections.abc import AsyncIterator, Callable
from operator import attrgetter
from types import TracebackType
from typing import Final, NamedTuple, Self

import orjson
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.protocol.errors import A2AError, InternalError, UnavailableError, http_body
from app.service.event_log import StreamPausedError
from app.service.streams import EventStream
from app.store.base import LogEntry
from app.telemetry import get_logger

log = get_logger(__name__)

MAX_WRITE: Final = 64 * 1024
"""Bytes of frames joined into one write; one larger frame goes alone."""
RETRY_AFTER: Final = 5
"""Seconds, for who came when there were too many streams."""


RETRY_MS: Final = (500, 2_000)
"""Milliseconds after which a reader of a stream that pauses shall come back."""


class _KeepAlive(ServerSentEvent):
    """One comment line and no blank one: some readers make an event of comment and blank line once they know an id."""

    def encode(self) -> bytes:
        return b": keep-alive\n"


class Framing(NamedTuple):
    """How a binding writes its frames."""

    data: Callable[[LogEntry], bytes]
    """What follows `data: `; one line."""
    error: Callable[[A2AError], bytes]
    """The whole last frame of a stream that broke: no status can be sent any more."""


def _rest_error(error: A2AError) -> bytes:
    return b"event: error\ndata: %b\n\n" % orjson.dumps(http_body(error))


REST_FRAMING: Final = Framing(attrgetter("data"), _rest_error)


async def _frames(stream: EventStream, framing: Framing) -> AsyncIterator[bytes]:
    data, has_ids = framing.data, stream.has_ids
    try:
        async for batch in stream.entries:
            joined: list[bytes] = []
            size = 0
            for entry in batch:
                frame = b"id: %d\ndata: %b\n\n" % (entry.seq, data(entry)) if has_ids else b"data: %b\n\n" % data(entry)
                if joined and size + len(frame) > MAX_WRITE:
                    yield b"".join(joined)
                    joined, size = [], 0
                joined.append(frame)
                size += len(frame)
            yield b"".join(joined)
    except StreamPausedError:
        # Spread, so that those who were here do not all arrive elsewhere at once.
        yield b"retry: %d\n\n" % random.randint(*RETRY_MS)  # noqa: S311 - nothing secret about it
    except A2AError as error:
        yield framing.error(error)
    except Exception:
        log.exception("a stream broke")
        yield framing.error(InternalError())


class StreamPolicy:
    """How streams behave on the wire, and how many there may be."""

    def __init__(self, keep_alive: float, send_timeout: float, max_streams: int) -> None:
        self.keep_alive = keep_alive
        """Seconds between comments on a quiet stream."""
        self.send_timeout = send_timeout
        """Seconds that a reader may refuse to read before it is cut."""
        self.max_streams = max_streams
        self.open = 0
        """Streams being served, and those about to be."""

    def slot(self) -> "StreamSlot":
        """The place of one more stream; take it before anything is done for the stream.

        Raises:
            UnavailableError: as many are open as may be.
        """
        if self.open >= self.max_streams:
            raise UnavailableError(
                "The server has as many streams open as it serves at a time.", retry_after=RETRY_AFTER
            )
        return StreamSlot(self)


class StreamSlot:
    """One of the streams that may be open. A context: left without a response, the place is free again."""

    __slots__ = ("_policy", "_taken")

    def __init__(self, policy: StreamPolicy) -> None:
        self._policy = policy
        self._taken = True
        policy.open += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.free()

    def free(self) -> None:
        """Give the place back; once more is no error."""
        if self._taken:
            self._taken = False
            self._policy.open -= 1

    def respond(self, stream: EventStream, framing: Framing = REST_FRAMING) -> Response:
        """The response that streams entries, and holds the place until it ends."""
        policy = self._policy
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        if stream.resume is not None:
            headers["A2A-Resume"] = stream.resume
        if stream.replayed:
            headers["Idempotency-Replayed"] = "true"
        response = _Streaming(
            _frames(stream, framing),
            headers=headers,
            ping=policy.keep_alive,
            ping_message_factory=_KeepAlive,
            send_timeout=policy.send_timeout,
        )
        response.slot = self
        return response


class _Streaming(EventSourceResponse):
    slot: StreamSlot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.slot.free()
