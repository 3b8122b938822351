"""A webhook receiver on a real socket, that answers as a test tells it."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tests.asgi import TIMEOUT


@dataclass
class Received:
    """A request."""

    method: str
    target: str
    headers: dict[str, str]
    """By lower-case name."""
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(self.body)
        return event

    @property
    def kind(self) -> str:
        return next(iter(self.event))

    @property
    def state(self) -> str | None:
        member = self.event[self.kind]
        return member["status"]["state"] if "status" in member else None


Respond = Callable[[Received], tuple[int, Mapping[str, str]]]


class Receiver:
    """Notes every request, and answers it while `hold` is set."""

    def __init__(self, respond: Respond) -> None:
        self.respond = respond
        self.port = 0
        self.connections = 0
        self.requests: list[Received] = []
        self.hold = asyncio.Event()
        self.hold.set()
        self.endless = False
        self._arrived = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def received(self, count: int, timeout: float = TIMEOUT) -> list[Received]:
        """The requests, when there are so many."""
        async with asyncio.timeout(timeout), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return list(self.requests)

    async def until(self, test: Callable[[Received], bool], timeout: float = TIMEOUT) -> list[Received]:
        """The requests, when there is one that passes."""
        async with asyncio.timeout(timeout), self._arrived:
            await self._arrived.wait_for(lambda: any(map(test, self.requests)))
        return list(self.requests)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                request = await _read(reader)
                status, headers = self.respond(request)
                async with self._arrived:
                    self.requests.append(request)
                    self._arrived.notify_all()
                await self.hold.wait()
                lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers.items())]
                if "Content-Length" not in headers:
                    lines.append("Content-Length: 0")
                writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
                while self.endless:
                    writer.write(b"x" * 1024)
                    await writer.drain()
                await writer.drain()


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Received(method, target, headers, await reader.readexactly(int(headers.get("content-length", 0))))


def _ok(_: Received) -> tuple[int, Mapping[str, str]]:
    return 200, {}


@asynccontextmanager
async def receiving(
    respond: Respond = _ok, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[Receiver]:
    """A receiver on a loopback port; a free one, unless it is to come back where it was."""
    receiver = Receiver(respond)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await receiver.serve(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
