"""Starting: what stops it says why in one sentence, and what does not stop it serves."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.server import CONSOLE, START_LIMIT, environment, free_port, run_console, running_server

CARD = """
from app.protocol import AgentCard
card = AgentCard(name="Mine", description="Mine.", version="1.0.0", skills=[])
"""


async def test_an_agent_that_cannot_serve_stops_the_start_with_one_sentence(tmp_path: Path) -> None:
    code, output = await run_console(tmp_path, "serve", "--port", "0", settings={"agent": "mine"})
    assert code == 2
    assert output == "a2a: A2A_AGENT names the module 'mine', which does not exist.\n"


async def test_a_wrong_setting_stops_the_start_with_one_sentence(tmp_path: Path) -> None:
    code, output = await run_console(tmp_path, "serve", settings={"lease_ttl": "soon"})
    assert code == 2
    assert output == "a2a: A2A_LEASE_TTL: must be a duration such as 500ms, 30s, 15m, 24h or 7d\n"


@pytest.mark.setting("agent")
async def test_an_agent_of_the_working_folder_is_served(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CARD + "async def handle(turn):\n    await turn.complete('mine')\n")
    async with running_server(tmp_path, agent="mine", store_url="memory://") as server, server.client() as client:
        card = (await client.get("/.well-known/agent-card.json")).json()
        assert card["name"] == "Mine"
        assert card["supportedInterfaces"][0]["url"] == server.url
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
        task = (await client.post("/message:send", json=body)).json()["task"]
        assert task["status"]["message"]["parts"] == [{"text": "mine"}]
        assert await server.stop() == 0


@pytest.mark.setting("public_url")
async def test_settings_are_read_from_dot_env(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A2A_PUBLIC_URL=https://agent.example.com/base/\nA2A_STORE_URL=memory://\n")
    async with running_server(tmp_path) as server, server.client() as client:
        card = (await client.get("/.well-known/agent-card.json")).json()
        assert card["supportedInterfaces"][0]["url"] == "https://agent.example.com/base"


async def test_sigterm_ends_the_server_with_streams_open(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        CARD + "import asyncio\nasync def handle(turn):\n    await turn.working()\n    await asyncio.sleep(3600)\n"
    )
    settings = {"agent": "mine", "store_url": "memory://", "shutdown_grace": "200ms"}
    async with running_server(tmp_path, **settings) as server, server.client() as client:
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
        async with client.stream("POST", "/message:stream", json=body) as response:
            assert response.status_code == 200
            assert await server.stop(signal.SIGTERM) == 0


@pytest.mark.setting("host", "port", "log_level", "log_format")
async def test_the_process_listens_where_it_is_told_and_logs_as_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        CARD + "async def handle(turn):\n    await turn.complete()\n    assert turn.text == 'go on'\n"
        "    await turn.working('late')\n"
    )
    warning, error = "the handler went on after the end of its task", "the agent's handler raised"
    for level, log_format, logged in (("info", "console", {warning, error}), ("error", "json", {error})):
        port = free_port()
        url = f"http://127.0.0.2:{port}"
        settings = environment(
            agent="mine",
            store_url="memory://",
            host="127.0.0.2",
            port=str(port),
            log_level=level,
            log_format=log_format,
        )
        process = await asyncio.create_subprocess_exec(
            str(CONSOLE), "serve", cwd=tmp_path, env=settings, stderr=asyncio.subprocess.PIPE
        )
        try:
            await ready(url)
            async with httpx.AsyncClient(headers={"A2A-Version": "1.0"}, timeout=START_LIMIT) as client:
                for text in ("go on", "raise"):
                    body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}}
                    assert (await client.post(f"{url}/message:send", json=body)).status_code == 200
                with pytest.raises(httpx.TransportError):
                    await client.get(f"http://127.0.0.1:{port}/readyz")
            process.terminate()
            _, said = await asyncio.wait_for(process.communicate(), START_LIMIT)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        lines = {text: line for line in said.decode().splitlines() for text in (warning, error) if text in line}
        assert set(lines) == logged
        assert lines[error].startswith("{") is (log_format == "json")


async def ready(url: str) -> None:
    async with httpx.AsyncClient() as client, asyncio.timeout(START_LIMIT):
        while True:
            with suppress(httpx.TransportError):
                await client.get(f"{url}/readyz")
                return
            await asyncio.sleep(0.05)
