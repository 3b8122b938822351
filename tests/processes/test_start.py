"""Starting: what stops it says why in one sentence, and what does not stop it serves."""

import signal
from pathlib import Path

from tests.server import run_console, running_server

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
