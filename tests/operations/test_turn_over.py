"""When a turn is over, nothing of it is left: not what its handler left running, and no garbage."""

import asyncio
import gc

import pytest

from app.bootstrap import build_app
from app.handler import Agent, Turn, TurnEndedError
from app.protocol import Message, Task
from app.service.turns import BegunTurn
from app.settings import Settings
from app.worker.running_turn import RunningTurn
from tests.agents import CARD, Script
from tests.asgi import serving
from tests.conftest import Api


async def test_what_a_handler_left_running_cannot_write_any_more(settings: Settings, script: Script) -> None:
    left: list[Turn] = []

    async def handle(turn: Turn) -> None:
        left.append(turn)
        await turn.require_input("Which one?")

    async with serving(build_app(settings, agent=Agent(card=CARD, handle=handle))) as http:
        api = Api(http, script)
        task = await api.send("x")
        async with asyncio.timeout(5):
            while True:
                try:
                    await left[0].durable()
                except TurnEndedError:
                    break
                await asyncio.sleep(0)
        for attempt in (left[0].working("late"), left[0].artifact("late", "late"), left[0].room()):
            with pytest.raises(TurnEndedError):
                await attempt
        assert await api.task(task["id"]) == task


async def test_a_turn_leaves_nothing_to_the_garbage_collector(settings: Settings, script: Script) -> None:
    async def handle(turn: Turn) -> None:
        await turn.artifact("answer", turn.text)

    async with serving(build_app(settings, agent=Agent(card=CARD, handle=handle))) as http:
        api = Api(http, script)
        await api.send("hello")
        gc.collect()
        gc.disable()
        try:
            gc.set_debug(gc.DEBUG_SAVEALL)
            for _ in range(5):
                await api.send("hello")
            gc.collect()
            found = {type(item) for item in gc.garbage}
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert not found & {Turn, RunningTurn, BegunTurn, Task, Message}
