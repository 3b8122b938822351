"""Limits that only a real connection meets: heads that do not end, bodies that do not come."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.asgi import TIMEOUT
from tests.server import running_server

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
LIMIT = 1_024


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    async with asyncio.timeout(TIMEOUT):
        status = int((await reader.readline()).split()[1])
        headers = {}
        while line := (await reader.readline()).strip():
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        return status, headers, await reader.readexactly(int(headers["content-length"]))


def head(size: int) -> bytes:
    """A request of so many bytes of URL, names and values."""
    used = len("/healthz") + len("Host") + len("a") + len("X-Padding")
    return b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Padding: %b\r\n\r\n" % (b"x" * (size - used))


@pytest.mark.setting("max_header_bytes", "body_timeout")
async def test_a_connection_is_held_to_its_limits(tmp_path: Path) -> None:
    settings = {"store_url": "memory://", "max_header_bytes": str(LIMIT), "body_timeout": "300ms"}
    async with running_server(tmp_path, **settings) as server:
        await heads_are_so_long_and_no_longer(server.url)
        await a_head_that_does_not_end_is_cut(server.url)
        for path in ("/message:send", "/message:stream", "/rpc"):
            await a_body_that_does_not_come_is_not_waited_for(server.url, path)
        await a_body_that_comes_in_drops_is_not_waited_for_either(server.url)
        await a_sender_that_leaves_within_its_body_is_no_fault(server.url)
        async with server.client() as client:
            assert (await client.get("/tasks")).json()["totalSize"] == 0
        assert await server.stop() == 0
        assert "Traceback" not in server.log.read_text()


async def heads_are_so_long_and_no_longer(url: str) -> None:
    async with connected(url) as (reader, writer):
        for _ in range(3):
            writer.write(head(LIMIT))
            assert (await answer(reader))[0] == 200
        writer.write(head(LIMIT + 1))
        status, headers, body = await answer(reader)
        assert (status, headers["connection"]) == (431, "close")
        error = json.loads(body)["error"]
        assert (error["code"], error["details"][0]["reason"]) == (431, "HEAD_TOO_LARGE")
        assert await reader.read() == b""
    async with connected(url) as (reader, writer):
        writer.write(b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % (b"x" * LIMIT))
        assert (await answer(reader))[0] == 431
    async with connected(url) as (reader, writer):
        writer.write(b"no HTTP at all\r\n\r\n")
        assert (await answer(reader))[0] == 400


async def a_head_that_does_not_end_is_cut(url: str) -> None:
    async with connected(url) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Padding: ")
        sent = 0
        async with asyncio.timeout(TIMEOUT):
            try:
                while sent < 100_000_000 and not reader.at_eof():
                    writer.write(b"x" * 65_536)
                    await writer.drain()
                    sent += 65_536
                    await asyncio.sleep(0)
            except ConnectionError:
                pass
        # What the sockets buffer comes on top of what the server took.
        assert sent < 50_000_000


async def a_body_that_does_not_come_is_not_waited_for(url: str, path: str) -> None:
    async with connected(url) as (reader, writer):
        writer.write(
            b"POST %b HTTP/1.1\r\nHost: a\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n"
            b'Content-Length: 1000\r\n\r\n{"message"' % path.encode()
        )
        status, headers, body = await answer(reader)
        assert (status, headers["connection"]) == (408, "close")
        assert b"REQUEST_TIMEOUT" in body
        async with asyncio.timeout(TIMEOUT):
            assert await reader.read() == b""


async def a_body_that_comes_in_drops_is_not_waited_for_either(url: str) -> None:
    async with connected(url) as (reader, writer):
        writer.write(
            b"POST /message:send HTTP/1.1\r\nHost: a\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000\r\n\r\n"
        )
        reply = asyncio.create_task(answer(reader))
        drops = 0
        while not reply.done() and drops < 1_000:
            writer.write(b" ")
            await asyncio.wait([reply], timeout=0.02)
            drops += 1
        assert (await reply)[0] == 408


async def a_sender_that_leaves_within_its_body_is_no_fault(url: str) -> None:
    for path in (b"/message:send", b"/rpc"):
        async with connected(url) as (_, writer):
            writer.write(
                b"POST %b HTTP/1.1\r\nHost: a\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n"
                b"Content-Length: 1000\r\n\r\n{" % path
            )
            await writer.drain()
