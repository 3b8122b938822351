"""An agent file as a user writes it, for servers that tests start."""

import asyncio

from app.handler import Turn
from app.protocol import AgentCard, AgentSkill

card = AgentCard(
    name="Words",
    description="Says words.",
    version="1.0.0",
    skills=[AgentSkill(id="words", name="Words", description="Says words.", tags=["test"])],
)


async def handle(turn: Turn) -> None:
    match turn.text.split():
        case ["ask"]:
            await turn.require_input("What?")
        case ["wait"]:
            await turn.working("waiting")
            await asyncio.Event().wait()
        case words:
            async with turn.artifact("answer") as out:
                for word in words:
                    await out.write(word + " ")
