"""A small TCP proxy that can be told to cut: for connections that break at a chosen moment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tests.asgi import TIMEOUT

P = TypeVar("P", bound="CuttingProxy")


class CuttingProxy:
    """Forwards bytes both ways; cuts a connection after so many bytes of its answer.

    Lets go of both sides when either does: a server that outlives the test would keep its side open.
    """

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.port = 0
        self.connections = 0
        self.cut_answers_after: list[int] = []
        """For each connection to come, the bytes of answer after which it is cut; 0 lets no answer through."""
        self._handlers: set[asyncio.Task[Any]] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        assert handler is not None
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)
        self.connections += 1
        limit = self.cut_answers_after.pop(0) if self.cut_answers_after else None
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        async with asyncio.TaskGroup() as group:
            forward = group.create_task(self._pump(reader, upstream_writer, None))
            await self._pump(upstream_reader, writer, limit)
            forward.cancel()
        for side in (writer, upstream_writer):
            side.transport.abort()

    async def closed(self) -> None:
        """Return when no connection is left."""
        async with asyncio.timeout(TIMEOUT):
            await asyncio.gather(*self._handlers)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None) -> None:
        passed = 0
        try:
            while chunk := await reader.read(65_536):
                if limit is not None and passed + len(chunk) > limit:
                    writer.write(chunk[: limit - passed])
                    await writer.drain()
                    return
                passed += len(chunk)
                writer.write(chunk)
                await writer.drain()
        except OSError:
            return
        finally:
            writer.transport.abort()


@asynccontextmanager
async def listening(proxy: P) -> AsyncIterator[P]:
    """The proxy, on a free loopback port."""
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    async with server:
        yield proxy
        server.close()
    await proxy.closed()


@asynccontextmanager
async def cutting_proxy(host: str, port: int) -> AsyncIterator[CuttingProxy]:
    """A proxy before a server."""
    async with listening(CuttingProxy(host, port)) as proxy:
        yield proxy


class StatementProxy:
    """Forwards a PostgreSQL connection, and can break it just when a transaction is being committed."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self.port = 0
        self.cuts = 0
        self._armed: bool | None = None
        self._open: set[asyncio.StreamWriter] = set()

    def cut_at_commit(self, *, forward: bool) -> None:
        """Break the connection of the next COMMIT: after it was forwarded, its answer unheard, or before."""
        self._armed = forward

    def cut_all(self) -> None:
        """Break every connection there is."""
        for writer in list(self._open):
            writer.transport.abort()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, upstream_writer}
        try:
            async with asyncio.TaskGroup() as group:
                answers = group.create_task(self._answers(upstream_reader, writer))
                await self._requests(reader, upstream_reader, upstream_writer, answers)
                answers.cancel()
        finally:
            for side in (writer, upstream_writer):
                self._open.discard(side)
                side.transport.abort()

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        answer: asyncio.StreamReader,
        upstream: asyncio.StreamWriter,
        answers: "asyncio.Task[None]",
    ) -> None:
        try:
            while chunk := await reader.read(65_536):
                if self._armed is not None and b"COMMIT" in chunk:
                    forward, self._armed = self._armed, None
                    self.cuts += 1
                    answers.cancel()
                    if forward:
                        await asyncio.gather(answers, return_exceptions=True)
                        upstream.write(chunk)
                        # Once the server has answered, the transaction is committed.
                        await answer.read(1)
                    return
                upstream.write(chunk)
                await upstream.drain()
        except OSError:
            return

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(65_536):
                writer.write(chunk)
                await writer.drain()
        except OSError:
            return
        writer.transport.abort()


@asynccontextmanager
async def statement_proxy(host: str, port: int) -> AsyncIterator[StatementProxy]:
    """A proxy on a free loopback port before a PostgreSQL server."""
    proxy = StatementProxy(host, port)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    async with server:
        yield proxy
        proxy.cut_all()
        server.close()
