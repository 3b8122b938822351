"""Agents that tests drive by what they say to them."""

import asyncio
from collections import defaultdict

from app.handler import Agent, Turn
from app.protocol import JSON_NULL, AgentCard, AgentSkill, Part

CARD = AgentCard(
    name="Test agent",
    description="Does what the first word says.",
    version="0.0.1",
    skills=[AgentSkill(id="test", name="Test", description="Tests.", tags=["test"])],
)


class Script:
    """An agent whose first word is a command; `gates` let a test hold a handler at a known place."""

    def __init__(self, *, may_reply: bool = False) -> None:
        self.may_reply = may_reply
        self.gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.reached: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.runs = 0
        self.cancelled = 0
        self.turns: list[Turn] = []

    def agent(self) -> Agent:
        return Agent(card=CARD, handle=self.handle, may_reply=self.may_reply)

    async def handle(self, turn: Turn) -> None:  # noqa: PLR0912 - one case a command
        self.runs += 1
        self.turns.append(turn)
        command, _, rest = turn.text.partition(" ")
        match command:
            case "chunks" if rest.startswith("then "):
                # `chunks then hold 9`: so many entries in the log, then the other command.
                _, then, name = rest.split(" ")
                for _ in range(int(name)):
                    await turn.working()
                if then == "ask":
                    await turn.require_input("Which one?")
                else:
                    self.reached[name].set()
                    await self.gates[name].wait()
            case "chunks":
                async with turn.artifact("answer") as out:
                    for number in range(int(rest)):
                        await out.write(f"chunk {number} ")
            case "ask":
                await turn.require_input("Which one?")
            case "reply":
                await turn.reply(rest)
            case "reply-at":
                self.reached[rest].set()
                await self.gates[rest].wait()
                await turn.reply("here")
            case "reply-late":
                await turn.working("on it")
                await turn.reply(rest)
            case "auth":
                await turn.require_auth("Sign in.")
                self.reached[rest].set()
                await self.gates[rest].wait()
                await turn.artifact("answer", "signed in")
            case "signin":
                await turn.require_auth("Sign in.")
            case "hold":
                await turn.working("holding")
                async with turn.artifact("before") as out:
                    await out.write("before the gate")
                self.reached[rest].set()
                try:
                    await self.gates[rest].wait()
                except asyncio.CancelledError:
                    self.cancelled += 1
                    raise
                await turn.artifact("after", "after the gate")
            case "stubborn":
                self.reached[rest].set()
                while not self.gates[rest].is_set():
                    try:
                        await self.gates[rest].wait()
                    except asyncio.CancelledError:
                        self.cancelled += 1
            case "raise":
                raise RuntimeError("secret detail")
            case "reject":
                await turn.reject("no")
            case "fail":
                await turn.fail("it broke")
            case "complete":
                await turn.complete("done")
            case "data":
                await turn.artifact("data", Part(data={"a": [1, None, "x"]}), Part(data=JSON_NULL))
            case "twice":
                await turn.artifact("same", "one")
                await turn.artifact("same", "two")
            case "nul":
                await turn.artifact("bad", "a\0b")
            case "lines":
                await turn.artifact("lines", "a\u2028b\rc\nd\r\n\ne\u0085f: g\ndata: {}\n\n")
            case "silent":
                return
            case _:
                await turn.artifact("echo", turn.text)
