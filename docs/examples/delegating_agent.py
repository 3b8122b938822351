"""An agent that hands its work to another agent and passes on what comes back, piece by piece.

`CHILD_AGENT_URL` says where the other agent is: the address of its card, or of its server.
"""

import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import httpx

from app.client import A2AClient, AmbiguousSendError, ConnectionFailedError, Delegation, RetryPolicy, delegate
from app.client.errors import InvalidPeerResponseError
from app.handler import ArtifactWriter, Turn
from app.protocol import AgentCard, AgentSkill, Message, Role, TaskState
from app.protocol.errors import A2AError
from app.protocol.idempotency import new_key
from app.protocol.types import TaskArtifactUpdateEvent

card = AgentCard(
    name="Delegating agent",
    description="Has another agent do its work.",
    version="1.0.0",
    skills=[AgentSkill(id="delegate", name="Delegate", description="Hands a text on.", tags=["example"])],
)


@asynccontextmanager
async def lifespan() -> AsyncIterator[httpx.AsyncClient]:
    """One pool of connections for all turns; credentials for the other agent would go on it."""
    async with httpx.AsyncClient(timeout=httpx.Timeout(60.0, connect=10.0)) as http:
        yield http


async def handle(turn: Turn) -> None:
    """Delegate the turn. A cancelled turn cancels the child: `delegate` sees to it."""
    url = os.environ["CHILD_AGENT_URL"]
    # What the caller has said so far, so that the answer to a question makes sense to a child that is new to it.
    said = [part for message in turn.task.history if message.role is Role.USER for part in message.parts]
    message = Message(message_id=new_key(), role=Role.USER, parts=said)
    try:
        # The card is read anew in each turn, for the other agent may have moved or learned something. It also says
        # whether the other agent honours idempotency keys: only then is a send that was cut on its way tried again.
        child_agent = await A2AClient.from_card(url, http=turn.resources, retry=RetryPolicy())
        async with child_agent, delegate(child_agent, message) as child:
            await pass_on(child, turn)
            await conclude(child, turn)
    except (A2AError, ConnectionFailedError, AmbiguousSendError, InvalidPeerResponseError) as error:
        await turn.fail(f"The other agent could not do it: {type(error).__name__}.")


async def pass_on(child: Delegation, turn: Turn) -> None:
    """Write the child's artifacts to this turn's, as they grow.

    The child's task is always whole, also when its stream was cut and began anew, so what is missing here is what it
    has beyond what was written.
    """
    writers: dict[str, ArtifactWriter] = {}
    written: dict[str, int] = {}
    async with aclosing(child.events()) as events:
        async for item in events:
            event = item.event
            if isinstance(event, TaskArtifactUpdateEvent) and not event.append:
                writers.pop(event.artifact.artifact_id, None)  # begun again, so here as well
            for artifact in child.task.artifacts if child.task is not None else []:
                name = artifact.artifact_id
                if name not in writers:
                    writers[name], written[name] = turn.artifact(artifact.name or name), 0
                if parts := artifact.parts[written[name] :]:
                    written[name] += len(parts)
                    last = isinstance(event, TaskArtifactUpdateEvent) and bool(event.last_chunk)
                    await writers[name].write(*parts, last=last)


async def conclude(child: Delegation, turn: Turn) -> None:
    """End this turn as the child's ended."""
    if child.reply is not None:
        await turn.artifact("answer", *child.reply.parts)
        return
    task = child.task
    if task is not None and task.status.state is TaskState.COMPLETED:
        return
    said = None
    if task is not None and task.status.message is not None:
        said = "".join(part.text or "" for part in task.status.message.parts)
    if task is not None and task.status.state is TaskState.INPUT_REQUIRED:
        await child.cancel()  # the answer goes to a new child, with all that was said before
        await turn.require_input(said)
    else:
        await turn.fail(said or "The other agent did not finish.")
