"""a2a-proof, a black-box checker by others, holds the server to `contract.yaml` over both bindings."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server import Server

CONTRACT = Path(__file__).parent / "contract.yaml"
CHECKER = Path(sys.executable).parent / "a2a-proof"


@pytest.mark.parametrize("binding", ["HTTP+JSON", "JSONRPC"])
async def test_the_contract_holds(tmp_path: Path, conformance_server: Server, binding: str) -> None:
    contract = tmp_path / "contract.yaml"
    text = CONTRACT.read_text("utf-8")
    contract.write_text(text.replace("http://127.0.0.1:8000", conformance_server.url), "utf-8")
    report = tmp_path / "report.json"
    process = await asyncio.create_subprocess_exec(
        *(str(CHECKER), "run", str(contract), "--transport", binding, "--format", "json", "--output", str(report)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    async with asyncio.timeout(45):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode() + (report.read_text("utf-8") if report.exists() else "")
    scenarios = json.loads(report.read_text("utf-8"))["scenarios"]
    assert len(scenarios) == text.count("- name: ")
