"""Small TCP proxies that can be told to cut, to refuse or to fall silent: for lines that break at a chosen moment."""

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


class OutageProxy:
    """Forwards connections to a server, until it is told that the server is away."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self.port = 0
        self._refusing = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._open: set[asyncio.StreamWriter] = set()

    def refuse(self) -> None:
        """Break every connection, and take no other: as when the server has stopped."""
        self._refusing = True
        for writer in list(self._open):
            writer.transport.abort()

    def fall_silent(self) -> None:
        """Hold back what is sent from here on, both ways: as when the network drops it."""
        self._flowing.clear()

    def restore(self) -> None:
        """Be a good line again; what was held back goes on its way."""
        self._refusing = False
        self._flowing.set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
        pair = {writer, upstream_writer}
        self._open |= pair
        try:
            async with asyncio.TaskGroup() as group:
                answers = group.create_task(self._pump(upstream_reader, writer))
                answers.add_done_callback(lambda _: writer.transport.abort())
                await self._pump(reader, upstream_writer)
                answers.cancel()
        finally:
            self._open -= pair
            for side in pair:
                side.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(65_536):
                await self._flowing.wait()
                writer.write(chunk)
                await writer.drain()
        except OSError:
            return


@asynccontextmanager
async def outage_proxy(host: str, port: int) -> AsyncIterator[OutageProxy]:
    """A proxy on a free loopback port before a server."""
    proxy = OutageProxy(host, port)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    async with server:
        yield proxy
        proxy.restore()
        proxy.refuse()
        server.close()
