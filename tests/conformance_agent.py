"""The agent that conformance kits and foreign clients talk to: `A2A_AGENT=tests.conformance_agent`.

The official kit chooses a behaviour by the beginning of the message id, whoever cannot choose ids by the first word.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from app.handler import Turn
from app.protocol import AgentCard, AgentSkill, Part

Behaviour = Callable[[Turn], Awaitable[None]]

card = AgentCard(
    name="Conformance agent",
    description="Does what the message's id or its first word asks for.",
    version="1.0.0",
    skills=[AgentSkill(id="behave", name="Behave", description="Behaves as told.", tags=["conformance"])],
    default_input_modes=["text/plain", "application/json"],
    default_output_modes=["text/plain", "application/json"],
)

may_reply = True

FILE: Final = {"filename": "output.txt", "media_type": "text/plain"}
SLOW: Final = 4.0
"""Seconds of work that a kit has time to subscribe to."""


async def complete(turn: Turn) -> None:
    await turn.complete("Hello from TCK")


async def ask(turn: Turn) -> None:
    await turn.require_input("Which one?")


async def authorize(turn: Turn) -> None:
    await turn.require_auth("Sign in first.")


async def reject(turn: Turn) -> None:
    await turn.reject("rejected")


async def fail(turn: Turn) -> None:
    raise RuntimeError("this agent fails when it is told to")


async def reply(turn: Turn) -> None:
    await turn.reply("Direct message response")


async def slow(turn: Turn) -> None:
    """`slow 1` for one second."""
    seconds = turn.text.removeprefix("slow ")
    await turn.working("working")
    await asyncio.sleep(int(seconds) if seconds.isdigit() else SLOW)
    await turn.complete("done")


async def wait(turn: Turn) -> None:
    """Until it is cancelled."""
    await turn.working("waiting")
    await asyncio.Event().wait()


async def chunks(turn: Turn) -> None:
    async with turn.artifact("text") as out:
        await out.write("chunk-1 ")
        await out.write("chunk-2", last=True)


async def echo(turn: Turn) -> None:
    await turn.artifact("echo", turn.text.partition(" ")[2] or turn.text)


def artifact(*content: str | Part) -> Behaviour:
    """Writes one artifact whole."""

    async def write(turn: Turn) -> None:
        await turn.artifact("output", *content)

    return write


text = artifact("Generated text content")
file = artifact(Part(raw=b"output", **FILE))
file_url = artifact(Part(url="https://example.com/output.txt", **FILE))
data = artifact(Part(data={"key": "value", "count": 42}))

BY_MESSAGE_ID: Final[Mapping[str, Behaviour]] = {
    "tck-complete-task": complete,
    "tck-input-required": ask,
    "tck-reject-task": reject,
    "tck-message-response": reply,
    "tck-artifact-text": text,
    "tck-artifact-file": file,
    "tck-artifact-file-url": file_url,
    "tck-artifact-data": data,
    "tck-stream-001": artifact("Stream hello from TCK"),
    "tck-stream-002": reply,
    "tck-stream-003": artifact("Stream task lifecycle"),
    "tck-stream-ordering-001": artifact("Ordered output"),
    "tck-stream-artifact-text": artifact("Streamed text content"),
    "tck-stream-artifact-file": file,
    "tck-stream-artifact-chunked": chunks,
    "test-resubscribe-message-id": slow,
}

BY_WORD: Final[Mapping[str, Behaviour]] = {
    behaviour.__name__: behaviour for behaviour in (ask, authorize, chunks, echo, fail, reject, reply, slow, wait)
} | {"data": data, "file": file, "url": file_url}


async def handle(turn: Turn) -> None:
    await behaviour(turn.message.message_id, turn.text)(turn)


def behaviour(message_id: str, said: str) -> Behaviour:
    """The one with the longest prefix of the id, else that of the first word, else prompt completion."""
    prefixes = [prefix for prefix in BY_MESSAGE_ID if message_id.startswith(prefix)]
    if prefixes:
        return BY_MESSAGE_ID[max(prefixes, key=len)]
    return BY_WORD.get(said.partition(" ")[0], complete)
