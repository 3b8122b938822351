"""Your agent: who it is and how it answers. This is the one file to rewrite."""

from app.handler import Turn
from app.protocol import AgentCard, AgentSkill

card = AgentCard(
    name="Echo agent",
    description="Says again what it is told, word by word.",
    version="1.0.0",
    skills=[AgentSkill(id="echo", name="Echo", description="Repeats a text.", tags=["example"], examples=["hello"])],
)


async def handle(turn: Turn) -> None:
    if not turn.text.strip():
        await turn.require_input("What shall I say?")
        return
    async with turn.artifact("answer") as out:
        for word in turn.text.split():
            await out.write(word + " ")
