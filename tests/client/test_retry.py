"""When the client tries again, and how long it waits: against a peer that answers by script."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.client import A2AClient, AmbiguousSendError, RetryPolicy, StreamEvent
from app.client.errors import InvalidPeerResponseError, retry_after
from app.protocol import Message, Part, Role, Task, TaskState
from app.protocol.errors import (
    A2AError,
    InternalError,
    LogTruncatedError,
    TaskNotFoundError,
    UnavailableError,
    UnsupportedOperationError,
    http_body,
)
from app.protocol.idempotency import new_key, set_key
from tests.asgi import TIMEOUT

AT_ONCE = RetryPolicy(attempts=4, initial=0.0)
TASK: dict[str, Any] = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}

finite = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
policies = st.builds(RetryPolicy, attempts=st.integers(1, 10_000), initial=finite, maximum=finite)
tries = st.integers(1, 10_000)


@given(policies, tries)
def test_a_wait_is_between_nothing_and_the_bounds(policy: RetryPolicy, tried: int) -> None:
    wait = policy.delay(tried)
    assert 0 <= wait <= policy.maximum
    if tried == 1:
        assert wait <= policy.initial


@given(policies, tries, finite)
def test_a_wait_is_never_shorter_than_the_peer_asked(policy: RetryPolicy, tried: int, asked: float) -> None:
    assert asked <= policy.delay(tried, asked) <= max(asked, policy.maximum)


@given(st.integers(1, 30))
def test_the_bound_of_the_waits_doubles(tried: int) -> None:
    policy = RetryPolicy(initial=1.0, maximum=float("inf"))
    assert policy.delay(tried) <= 2 ** (tried - 1)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7), ("0", 0), (None, 0), ("soon", 0), ("-1", 0), ("1.5", 0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0)],
)
def test_retry_after_is_read_in_seconds(value: str | None, seconds: int) -> None:
    assert retry_after(httpx.Response(503, headers={} if value is None else {"Retry-After": value})) == seconds


def test_retry_after_may_be_a_date() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert 85 < retry_after(httpx.Response(503, headers={"Retry-After": date})) <= 90


class ScriptedPeer:
    """Answers each request with the next of its answers, and closes the connection."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[bytes] = []
        self.requests: list[tuple[str, httpx.Headers]] = []
        self.times: list[float] = []

    def will(self, status: int, body: Any = b"", *, kind: str = "application/json", **headers: str) -> None:
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        fields = {"content_type": kind, "content_length": str(len(content)), "connection": "close", **headers}
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
        self.answers.append(f"HTTP/1.1 {status} x\r\n{head}\r\n".encode() + content)

    def will_stream(self, *frames: str) -> None:
        """A stream of these frames that then breaks off."""
        self.will(200, "".join(frames).encode(), kind="text/event-stream", content_length="1000000")

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.times.append(time.monotonic())
        line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = httpx.Headers([(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)])
        await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append((line.removesuffix(" HTTP/1.1"), headers))
        writer.write(self.answers.pop(0))
        await writer.drain()
        writer.close()


@pytest.fixture
async def peer() -> AsyncIterator[ScriptedPeer]:
    made = ScriptedPeer()
    async with await asyncio.start_server(made.handle, "127.0.0.1", 0) as server:
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield made
    assert made.answers == [], "the client asked less often than the script says"


@pytest.fixture(params=["HTTP+JSON", "JSONRPC"])
def binding(request: pytest.FixtureRequest) -> str:
    made: str = request.param
    return made


@asynccontextmanager
async def client_of(
    peer: ScriptedPeer, binding: str, retry: RetryPolicy | None = AT_ONCE, *, honours: bool = True
) -> AsyncIterator[A2AClient]:
    client = A2AClient(peer.url, binding=binding, retry=retry, peer_honours_idempotency=honours)
    async with client, asyncio.timeout(TIMEOUT):
        yield client


def result(binding: str, body: Any) -> Any:
    """A good answer of this binding."""
    return body if binding == "HTTP+JSON" else {"jsonrpc": "2.0", "id": 1, "result": body}


def fault(binding: str, error: A2AError) -> Any:
    """An error of this binding."""
    if binding == "HTTP+JSON":
        return http_body(error)
    body = {"code": error.code, "message": error.message, "data": error.details()}
    return {"jsonrpc": "2.0", "id": 1, "error": body}


def frame(body: Any, event_id: int | None = None) -> str:
    return ("" if event_id is None else f"id: {event_id}\n") + f"data: {orjson.dumps(body).decode()}\n\n"


def status(state: TaskState) -> Any:
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": state}}}


def message(*, keyed: bool) -> Message:
    made = Message(message_id=new_key(), role=Role.USER, parts=[Part(text="hello")])
    if keyed:
        set_key(made, new_key())
    return made


async def collect(events: AsyncGenerator[StreamEvent, None]) -> list[StreamEvent]:
    return [event async for event in events]


@pytest.mark.parametrize("code", [429, 502, 503, 504])
async def test_a_read_is_repeated_when_the_peer_cannot_answer_now(peer: ScriptedPeer, binding: str, code: int) -> None:
    peer.will(code, fault(binding, UnavailableError()))
    peer.will(code, b"<html>busy</html>", kind="text/html")
    peer.will(code, {"detail": "busy"})
    peer.will(200, result(binding, TASK))
    async with client_of(peer, binding) as client:
        assert (await client.get_task("t")).id == "t"
    assert len(peer.requests) == 4


async def test_the_wait_is_as_long_as_the_peer_asks(peer: ScriptedPeer, binding: str) -> None:
    peer.will(503, fault(binding, UnavailableError()), retry_after="1")
    peer.will(200, result(binding, {"task": TASK}))
    async with client_of(peer, binding) as client:
        await client.send_message(message(keyed=True))
    first, second = peer.times
    assert second - first >= 1.0


async def test_without_a_policy_nothing_is_repeated(peer: ScriptedPeer, binding: str) -> None:
    peer.will(503, fault(binding, UnavailableError()), retry_after="7")
    async with client_of(peer, binding, None) as client:
        with pytest.raises(UnavailableError) as refusal:
            await client.get_task("t")
    assert refusal.value.retry_after == 7


async def test_the_last_try_says_what_went_wrong(peer: ScriptedPeer, binding: str) -> None:
    for _ in range(AT_ONCE.attempts):
        peer.will(429, b"slow down", kind="text/plain")
    async with client_of(peer, binding) as client:
        with pytest.raises(UnavailableError, match="HTTP 429"):
            await client.list_tasks()
    assert len(peer.requests) == AT_ONCE.attempts


@pytest.mark.parametrize(("keyed", "honours"), [(False, True), (True, False)])
async def test_a_send_that_might_run_twice_is_not_repeated(
    peer: ScriptedPeer, binding: str, keyed: bool, honours: bool
) -> None:
    peer.will(503, fault(binding, UnavailableError()))
    peer.will(503, fault(binding, UnavailableError()))
    async with client_of(peer, binding, honours=honours) as client:
        with pytest.raises(UnavailableError):
            await client.send_message(message(keyed=keyed))
        with pytest.raises(UnavailableError):
            await collect(client.send_streaming_message(message(keyed=keyed)))


async def test_a_keyed_stream_is_begun_again_when_the_peer_cannot_answer_now(peer: ScriptedPeer, binding: str) -> None:
    peer.will(503, fault(binding, UnavailableError()))
    peer.will_stream(frame(result(binding, {"task": TASK})), frame(result(binding, status(TaskState.COMPLETED))))
    async with client_of(peer, binding) as client:
        events = await collect(client.send_streaming_message(message(keyed=True)))
    assert [event.state for event in events] == [TaskState.WORKING, TaskState.COMPLETED]


async def test_a_refusal_is_not_argued_with(peer: ScriptedPeer, binding: str) -> None:
    peer.will(404, fault(binding, TaskNotFoundError()))
    peer.will(500, fault(binding, InternalError()))
    async with client_of(peer, binding) as client:
        with pytest.raises(TaskNotFoundError):
            await client.get_task("t")
        with pytest.raises(InternalError):
            await client.get_task("t")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'"x"', b"null", b'{"error": "x"}'])
async def test_an_answer_that_is_not_a2a_is_said_to_be_none(peer: ScriptedPeer, binding: str, body: bytes) -> None:
    peer.will(200, body)
    async with client_of(peer, binding) as client:
        with pytest.raises((InvalidPeerResponseError, InternalError)):
            await client.get_task("t")


async def test_a_keep_alive_is_no_event(peer: ScriptedPeer, binding: str) -> None:
    done = frame(result(binding, status(TaskState.COMPLETED)), 2)
    peer.will_stream(": ping\n\n", frame(result(binding, {"task": TASK}), 1), ": ping\n\n", done, ": ping\n\n")
    async with client_of(peer, binding) as client:
        events = await collect(client.send_streaming_message(message(keyed=False)))
    assert [event.id for event in events] == ["1", "2"]


@pytest.mark.parametrize("error", [UnavailableError(), LogTruncatedError()])
async def test_a_stream_that_the_peer_gives_up_for_now_is_resumed(
    peer: ScriptedPeer, binding: str, error: A2AError
) -> None:
    peer.will_stream(frame(result(binding, {"task": TASK}), 1), frame(fault(binding, error)))
    peer.will(503, fault(binding, UnavailableError()))
    peer.will_stream(frame(result(binding, {"task": TASK}), 8), frame(result(binding, status(TaskState.COMPLETED)), 9))
    async with client_of(peer, binding, None) as client:
        events = await collect(client.send_streaming_message(message(keyed=False)))
    assert [(event.id, event.reset) for event in events] == [("1", False), ("8", True), ("9", False)]
    assert [headers.get("last-event-id") for _, headers in peer.requests] == [None, "1", "1"]


async def test_a_stream_goes_on_after_an_authorization_that_came_out_of_band(peer: ScriptedPeer, binding: str) -> None:
    states = [TaskState.AUTH_REQUIRED, TaskState.WORKING]
    peer.will_stream(
        frame(result(binding, {"task": TASK}), 1),
        *(frame(result(binding, status(state)), number) for number, state in enumerate(states, 2)),
    )
    peer.will_stream(frame(result(binding, status(TaskState.COMPLETED)), 4))
    async with client_of(peer, binding) as client:
        events = await collect(client.send_streaming_message(message(keyed=False)))
    assert [event.id for event in events] == ["1", "2", "3", "4"]


async def test_a_stream_that_cannot_be_joined_again_is_no_end_of_the_task(peer: ScriptedPeer, binding: str) -> None:
    peer.will_stream(frame(result(binding, {"task": TASK})))
    for _ in range(AT_ONCE.attempts - 1):
        peer.will(400, fault(binding, UnsupportedOperationError()))
        peer.will(200, result(binding, TASK))
    async with client_of(peer, binding) as client:
        stream = client.send_streaming_message(message(keyed=False))
        assert (await anext(stream)).event == Task.model_validate(TASK)
        with pytest.raises(AmbiguousSendError, match="does not let it be resumed"):
            await anext(stream)
