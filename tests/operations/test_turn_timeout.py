"""A turn that takes too long is stopped, and its task FAILED with the reason (A2A_TURN_TIMEOUT)."""

import asyncio
from typing import Any

import pytest

from app.bootstrap import build_app
from app.handler import Agent
from app.settings import Settings
from tests.agents import CARD, Script
from tests.asgi import serving
from tests.conftest import Api
from tests.operations.conftest import on_every_store


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"turn_timeout": 0.25})


@pytest.mark.setting("turn_timeout")
@on_every_store
async def test_a_handler_that_hangs_is_stopped(api: Api) -> None:
    task = await api.send("hold g")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert task["status"]["message"]["parts"] == [{"text": "The agent did not finish within 0.25 seconds."}]
    assert await api.task(task["id"]) == task


async def test_a_handler_that_ignores_it_is_abandoned(api: Api) -> None:
    task = await api.send("stubborn g")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert "0.25 seconds" in task["status"]["message"]["parts"][0]["text"]


async def test_a_handler_that_is_stopped_is_cancelled_where_it_waits(api: Api) -> None:
    await api.send("hold g")
    assert api.script.cancelled == 1


async def test_the_agent_file_may_say_how_long(settings: Settings, script: Script) -> None:
    async def handle(turn: Any) -> None:
        await asyncio.Future()

    agent = Agent(card=CARD, handle=handle, turn_timeout=0.01)
    async with serving(build_app(settings, agent=agent)) as http:
        task = await Api(http, script).send("x")
    assert "within 0.01 seconds" in task["status"]["message"]["parts"][0]["text"]
