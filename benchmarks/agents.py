"""The agent that our server is measured with; `sdk_server` holds its equal."""

from app.handler import Turn
from app.protocol import AgentCard, AgentSkill
from benchmarks.script import ARTIFACT, chunk, chunks_asked, echo

card = AgentCard(
    name="Benchmark agent",
    description="Echoes a text, or streams as many chunks as it is told.",
    version="1.0.0",
    skills=[AgentSkill(id="echo", name="Echo", description="Echoes or streams.", tags=["benchmark"])],
)


async def handle(turn: Turn) -> None:
    """Stream N chunks when told "chunks N", else echo."""
    count = chunks_asked(turn.text)
    if count is None:
        await turn.artifact(ARTIFACT, echo(turn.text))
        return
    async with turn.artifact(ARTIFACT) as out:
        for number in range(count):
            await out.write(chunk(number))
