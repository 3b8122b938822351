"""An agent that never stops writing in its first run, and says which process it is."""

import asyncio
import os

from app.handler import Turn
from app.protocol import AgentCard

card = AgentCard(name="Fencing", description="Writes its process id.", version="1", skills=[])
recovery = "restart"


async def handle(turn: Turn) -> None:
    if turn.text == "quick":
        return
    async with turn.artifact("pids") as out:
        await out.write(str(os.getpid()))
        while turn.attempt == 1:
            await asyncio.sleep(0.005)
            await out.write(str(os.getpid()))
