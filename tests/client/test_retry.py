"""When the client tries again, and how long it waits: against a peer that answers by script."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.client import A2AClient, RetryPolicy
from app.client.errors import retry_after
from app.protocol import Message, Part, Role
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
        given = {"content-type": kind, "content-length": str(len(content)), "connection": "close", **headers}
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items())
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


Connect = Callable[..., Any]


@pytest.fixture(params=["HTTP+JSON", "JSONRPC"])
def connect(request: pytest.FixtureRequest, peer: ScriptedPeer) -> Connect:
    """Makes a client of the peer."""

    @asynccontextmanager
    async def made(retry: RetryPolicy | None = AT_ONCE, *, honours: bool = True) -> AsyncIterator[A2AClient]:
        client = A2AClient(peer.url, binding=request.param, retry=retry, peer_honours_idempotency=honours)
        async with client, asyncio.timeout(TIMEOUT):
            yield client

    made.binding = request.param  # type: ignore[attr-defined]
    return made


def result(connect: Connect, body: Any) -> Any:
    """The body of a good answer in the client's binding."""
    return body if connect.binding == "HTTP+JSON" else {"jsonrpc": "2.0", "id": 1, "result": body}  # type: ignore[attr-defined]


def message(*, keyed: bool) -> Message:
    made = Message(message_id=new_key(), role=Role.USER, parts=[Part(text="hello")])
    if keyed:
        set_key(made, new_key())
    return made
