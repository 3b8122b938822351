"""An agent whose first runs wait for a file, so that a test decides when a turn ends."""

import asyncio
from pathlib import Path

from app.handler import Turn
from app.protocol import AgentCard

card = AgentCard(name="Shutdown", description="Waits for the file it is told of.", version="1", skills=[])
recovery = "restart"


async def handle(turn: Turn) -> None:
    await turn.artifact("begun", f"attempt {turn.attempt}")
    while turn.attempt == 1 and not Path(turn.text).exists():  # noqa: ASYNC110, ASYNC240 - seen from outside
        await asyncio.sleep(0.01)
    await turn.artifact("done", f"attempt {turn.attempt}")
