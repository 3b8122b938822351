"""The servers under measurement: each a process of its own on a free loopback port, ended with it."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from benchmarks.client import HOST, BenchmarkError, drive, request

Kind = Literal["ours", "sdk", "fastapi", "asgi"]

SDK_STORE_URL = "BENCHMARK_STORE_URL"
"""The environment variable that names the SDK server's store, spelled as our own A2A_STORE_URL."""

ROOT = Path(__file__).resolve().parent.parent
START_LIMIT = 30.0
STOP_LIMIT = 15.0
KEPT_TASKS = 1_000_000
"""More tasks than any run makes, so that the memory store drops none."""

UVICORN = ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning"]


@contextmanager
def running(kind: Kind, store_url: str) -> Iterator[int]:
    """A server, ready, over an empty store; gives its port.

    Raises:
        BenchmarkError: it did not become ready.
    """
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="a2a-benchmark-") as folder:
        log = Path(folder) / "server.log"
        with log.open("wb") as output:
            # The empty folder to work in keeps a developer's .env out.
            process = subprocess.Popen(
                _command(kind, port), cwd=folder, env=_environment(store_url), stdout=output, stderr=output
            )
        try:
            _await_ready(process, kind, port, log)
            yield port
        finally:
            _stop(process)


def _command(kind: Kind, port: int) -> list[str]:
    address = ["--host", HOST, "--port", str(port)]
    uvicorn = [sys.executable, "-m", "uvicorn", *UVICORN, *address]
    match kind:
        case "ours":
            console = Path(sys.executable).parent / "a2a"
            if console.exists():
                return [str(console), "serve", *address]
            # Not installed into this interpreter: what the console script would do.
            return [sys.executable, "-c", "from app.cli import main; main()", "serve", *address]
        case "sdk":
            return [*uvicorn, "benchmarks.sdk_server:app"]
        case "fastapi":
            return [*uvicorn, "--factory", "benchmarks.floors:bare_fastapi"]
        case "asgi":
            return [*uvicorn, "--lifespan", "off", "--factory", "benchmarks.floors:raw_asgi"]


def _environment(store_url: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("A2A_")}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        SDK_STORE_URL: store_url,
        "A2A_STORE_URL": store_url,
        "A2A_AGENT": "benchmarks.agents",
        "A2A_LOG_LEVEL": "warning",
        "A2A_MEMORY_MAX_TASKS": str(KEPT_TASKS),
    }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
    return port


def _await_ready(process: subprocess.Popen[bytes], kind: Kind, port: int, log: Path) -> None:
    path = "/readyz" if kind == "ours" else "/.well-known/agent-card.json"
    limit = time.monotonic() + START_LIMIT
    while time.monotonic() < limit:
        if process.poll() is not None:
            break
        try:
            answer = drive(port, [request("GET", path)], connections=1)[0]
        except BenchmarkError:
            time.sleep(0.02)
            continue
        # The floors have no card; that they answer is enough.
        if answer.status == 200 or kind in {"fastapi", "asgi"}:
            return
        time.sleep(0.02)
    lines = log.read_text(errors="replace").strip().splitlines()
    raise BenchmarkError(f"the {kind} server did not start: {lines[-1] if lines else 'it said nothing'}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
