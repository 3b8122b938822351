"""The official JavaScript client, over both bindings, against a really started server."""

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server import ROOT, Server

SOURCE = ROOT / "tests" / "javascript"
INSTALLED = Path(sys.prefix) / "javascript"
OLDEST_NODE = 18
INSTALL_LIMIT = 120.0
"""Seconds that installing two packages may take."""

pytestmark = pytest.mark.timeout(2 * INSTALL_LIMIT)


@pytest.fixture(scope="session")
def node() -> str:
    """Node, if this machine has one that is new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not installed")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < OLDEST_NODE:
        pytest.skip(f"node {version} is older than {OLDEST_NODE}")
    return node


@pytest.fixture(scope="session")
def client_script(node: str) -> Path:
    """The script beside its packages, which are installed into the virtual environment once per lock file."""
    lock = SOURCE / "package-lock.json"
    mark = INSTALLED / "installed-lock.json"
    INSTALLED.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json", "client.mjs"):
        shutil.copy(SOURCE / name, INSTALLED)
    if not mark.exists() or mark.read_bytes() != lock.read_bytes():
        command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(command, cwd=INSTALLED, check=True, capture_output=True, timeout=INSTALL_LIMIT)
        shutil.copy(lock, mark)
    return INSTALLED / "client.mjs"


async def performed(node: str, script: Path, url: str, binding: str) -> dict[str, Any]:
    """What the client got, by operation."""
    process = await asyncio.create_subprocess_exec(
        node, str(script), url, binding, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(30):
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    lines = [json.loads(line) for line in output.splitlines()]
    return {line["operation"]: line["answer"] for line in lines}


@pytest.mark.parametrize("binding", ["HTTP+JSON", "JSONRPC"])
async def test_the_client_performs_its_operations(
    conformance_server: Server, node: str, client_script: Path, binding: str
) -> None:
    got = await performed(node, client_script, conformance_server.url, binding)
    assert got["transport"] == binding
    assert got["send"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert got["send"]["artifacts"] == [{"artifactId": "echo", "name": "echo", "parts": [{"text": "hello"}]}]
    kinds = [next(iter(event)) for event in got["stream"]]
    assert kinds == ["task", "statusUpdate", "artifactUpdate", "artifactUpdate", "statusUpdate"]
    assert got["stream"][-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert got["reply"]["parts"] == [{"text": "Direct message response"}]
    assert got["streamed reply"] == [{"message": got["streamed reply"][0]["message"]}]
    assert got["ask"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert got["follow-up"]["id"] == got["ask"]["id"]
    assert [message["parts"][0]["text"] for message in got["follow-up"]["history"]] == [
        "ask",
        "Which one?",
        "echo again",
    ]
    assert got["get"] == got["send"]
    assert got["list"] == [got["send"]["id"]]
    assert got["subscribe"]["task"]["status"]["state"] == "TASK_STATE_WORKING"
    assert got["cancel"]["status"]["state"] == "TASK_STATE_CANCELED"
    last = got["rest of the subscription"][-1]
    assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert got["unknown task"].endswith("TaskNotFoundError")
