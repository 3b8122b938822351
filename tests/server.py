"""Really started servers: a process of their own, a free loopback port, ended by its id."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).parent.parent
CONSOLE = Path(sys.executable).parent / "a2a"
START_LIMIT = 60.0
"""Seconds that a server may take to become ready; the machine may be busy."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def environment(**settings: str) -> dict[str, str]:
    """This process's environment without its own settings, and with these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("A2A_")}
    given = {f"A2A_{name.upper()}": value for name, value in settings.items()}
    return {**kept, "PYTHONPATH": str(ROOT), **given}


@dataclass
class Server:
    """A server process."""

    process: asyncio.subprocess.Process
    url: str
    log: Path

    def client(self) -> httpx.AsyncClient:
        """Speaks A2A 1.0 to it."""
        return httpx.AsyncClient(base_url=self.url, headers={"A2A-Version": "1.0"}, timeout=10.0)

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End the process and return its exit code."""
        if self.process.returncode is None:
            self.process.send_signal(how)
        async with asyncio.timeout(20):
            return await self.process.wait()


@asynccontextmanager
async def running_server(
    folder: Path, *, command: Sequence[str] = (str(CONSOLE), "serve"), **settings: str
) -> AsyncIterator[Server]:
    """`a2a serve` with settings, ready, or another command that takes its port so; its working folder is `folder`."""
    port = free_port()
    log = folder / f"server-{port}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            "--port",
            str(port),
            cwd=folder,
            env=environment(**settings),
            stdout=output,
            stderr=output,
        )
    server = Server(process, f"http://127.0.0.1:{port}", log)
    try:
        await _ready(server)
        yield server
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _ready(server: Server) -> None:
    async with httpx.AsyncClient() as client, asyncio.timeout(START_LIMIT):
        while True:
            if server.process.returncode is not None:
                raise RuntimeError(f"the server ended: {server.log.read_text()}")
            try:
                if (await client.get(f"{server.url}/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.02)


async def run_console(folder: Path, *arguments: str, settings: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run `a2a …` to its end: exit code, and what it wrote to both outputs."""
    process = await asyncio.create_subprocess_exec(
        str(CONSOLE),
        *arguments,
        cwd=folder,
        env=environment(**(settings or {})),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(START_LIMIT):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()
