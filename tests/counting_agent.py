"""An agent that counts its runs where they outlive its process: one line each, in the working folder."""

import asyncio
from pathlib import Path

from app.handler import Turn
from app.protocol import AgentCard

RUNS = Path("runs.txt")

card = AgentCard(name="Counting", description="Counts its runs.", version="1.0.0", skills=[])


def count(message_id: str) -> None:
    with RUNS.open("a") as runs:
        runs.write(message_id + "\n")


async def handle(turn: Turn) -> None:
    count(turn.message.message_id)
    if turn.text == "wait":
        await asyncio.Event().wait()
    async with turn.artifact("answer") as out:
        for word in turn.text.split():
            await out.write(word + " ")
