"""An in-process client whose responses stream: `httpx.ASGITransport` buffers, so live streams need this."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from tests.jsonrpc_transport import JsonRpcTransport

TIMEOUT = 5.0
"""Seconds that any wait in a test may take."""

Around = Callable[[Coroutine[Any, Any, None]], Awaitable[None]]


def _as_it_is(request: Coroutine[Any, Any, None]) -> Awaitable[None]:
    return request


class _Body(httpx.AsyncByteStream):
    def __init__(self, queue: "asyncio.Queue[bytes | None]", gone: asyncio.Event, task: "asyncio.Task[None]") -> None:
        self._queue = queue
        self._gone = gone
        self._task = task

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await self._queue.get()) is not None:
            yield chunk

    async def aclose(self) -> None:
        self._gone.set()
        async with asyncio.timeout(TIMEOUT):
            await asyncio.gather(self._task, return_exceptions=True)


class StreamingTransport(httpx.AsyncBaseTransport):
    """Runs each request as a task and hands its body over piece by piece; closing a response is a disconnect."""

    def __init__(self, app: FastAPI, state: dict[str, Any], around: Around) -> None:
        self._app = app
        self._state = state
        self._around = around

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=16)
        started: asyncio.Future[tuple[int, list[tuple[bytes, bytes]]]] = asyncio.get_running_loop().create_future()
        gone = asyncio.Event()
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if not sent:
                sent = True
                return {"type": "http.request", "body": body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                started.set_result((message["status"], list(message.get("headers", []))))
            elif not gone.is_set():
                if message.get("body"):
                    await queue.put(message["body"])
                if not message.get("more_body"):
                    await queue.put(None)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "query_string": request.url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": ("127.0.0.1", 1),
            "server": (request.url.host, request.url.port or 80),
            "state": dict(self._state),
        }

        async def run() -> None:
            try:
                await self._around(self._app(scope, receive, send))
            except Exception as error:
                if not started.done():
                    started.set_exception(error)
            finally:
                if not started.done():
                    started.set_exception(httpx.ReadError("the request was dropped"))
                if not gone.is_set():
                    await queue.put(None)

        task = asyncio.create_task(run())
        try:
            async with asyncio.timeout(TIMEOUT * 2):
                status, headers = await asyncio.shield(started)
        except BaseException:
            gone.set()
            task.cancel()
            raise
        return httpx.Response(status, headers=headers, stream=_Body(queue, gone, task))


@asynccontextmanager
async def serving(
    app: FastAPI, around: Around = _as_it_is, binding: str = "HTTP+JSON"
) -> AsyncIterator[httpx.AsyncClient]:
    """The app with its lifespan running, and a client that speaks A2A 1.0 to it, over REST as it is written or not.

    `around` goes around each request.
    """
    async with app.router.lifespan_context(app) as state:
        transport: httpx.AsyncBaseTransport = StreamingTransport(app, dict(state or {}), around)
        if binding == "JSONRPC":
            transport = JsonRpcTransport(transport)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://agent.test", headers={"A2A-Version": "1.0"}, timeout=TIMEOUT * 2
        ) as client:
            yield client
