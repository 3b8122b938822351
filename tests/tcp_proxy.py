"""A small TCP proxy that can be told to cut: for connections that break at a chosen moment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CuttingProxy:
    """Forwards bytes both ways; cuts a connection after so many bytes of its answer."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self.port = 0
        self.connections = 0
        self.cut_answers_after: list[int] = []
        """For each connection to come, the bytes of answer after which it is cut; 0 lets no answer through."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        limit = self.cut_answers_after.pop(0) if self.cut_answers_after else None
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        async with asyncio.TaskGroup() as group:
            forward = group.create_task(self._pump(reader, upstream_writer, None))
            await self._pump(upstream_reader, writer, limit)
            forward.cancel()
        for side in (writer, upstream_writer):
            side.transport.abort()

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


@asynccontextmanager
async def cutting_proxy(host: str, port: int) -> AsyncIterator[CuttingProxy]:
    """A proxy on a free loopback port before a server."""
    proxy = CuttingProxy(host, port)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    async with server:
        yield proxy
        server.close()
