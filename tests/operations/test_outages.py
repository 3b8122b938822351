"""An outage of the database: turns wait out a short one, the recovery policy settles a long one (DESIGN 7)."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.bootstrap import build_app
from app.handler import Recovery
from app.settings import Settings
from app.store import engine_postgresql
from app.worker.recovery import LOST_TEXT
from tests.agents import Script
from tests.asgi import TIMEOUT, serving
from tests.conftest import Api
from tests.tcp_proxy import OutageProxy, outage_proxy

LEASE_TTL = 2.4


@pytest.fixture
async def line(postgres_url: str) -> AsyncIterator[OutageProxy]:
    """The line from the server to its database."""
    parts = urlsplit(postgres_url)
    async with outage_proxy(parts.hostname or "", parts.port or 0) as proxy:
        yield proxy


@pytest.fixture
def store_url(postgres_url: str, line: OutageProxy) -> str:
    parts = urlsplit(postgres_url)
    return postgres_url.replace(f":{parts.port}/", f":{line.port}/") + "?connect_timeout=1"


@pytest.fixture
def recovery() -> Recovery:
    return "fail"


@pytest.fixture
async def api(script: Script, settings: Settings, recovery: Recovery) -> AsyncIterator[Api]:
    settings = settings.model_copy(update={"lease_ttl": LEASE_TTL})
    async with serving(build_app(settings, agent=replace(script.agent(), recovery=recovery))) as http:
        yield Api(http, script)
        for gate in list(script.gates.values()):
            gate.set()


async def given_up(script: Script) -> None:
    """Return when the handler was told that the turn is no longer its own."""
    async with asyncio.timeout(TIMEOUT):
        while not script.cancelled:  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.01)


async def states(api: Api, task_id: str) -> list[str]:
    """The states that the log tells of, in order."""
    entries = (await api.get(f"/tasks/{task_id}/events")).json()["events"]
    members: list[dict[str, Any]] = [member for entry in entries for member in entry["event"].values()]
    return [member["status"]["state"].removeprefix("TASK_STATE_") for member in members if "status" in member]


async def test_a_turn_goes_on_after_an_outage_of_half_its_lease(api: Api, line: OutageProxy) -> None:
    task_id = await api.held("g")
    stream = api.events(f"/tasks/{task_id}:subscribe")
    await anext(stream)
    line.refuse()
    api.script.gates["g"].set()
    await asyncio.sleep(LEASE_TTL / 2)
    assert (await api.get(f"/tasks/{task_id}")).status_code == 503
    line.restore()
    async with asyncio.timeout(TIMEOUT):
        assert [event.state for event in [event async for event in stream]] == [None, "TASK_STATE_COMPLETED"]
    assert (api.script.runs, api.script.cancelled) == (1, 0)
    assert await states(api, task_id) == ["SUBMITTED", "WORKING", "COMPLETED"]


@pytest.mark.parametrize("away", ["refuse", "fall_silent"])
async def test_a_turn_fails_once_after_an_outage_longer_than_its_lease(
    api: Api, line: OutageProxy, away: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_postgresql, "COMMAND_TIMEOUT", 1.0)
    task_id = await api.held("g")
    stream = api.events(f"/tasks/{task_id}:subscribe")
    await anext(stream)
    began = asyncio.get_running_loop().time()
    getattr(line, away)()
    await given_up(api.script)
    # Before the lease was over: whoever takes the turn next does not run beside this handler.
    assert asyncio.get_running_loop().time() - began < LEASE_TTL
    assert (await api.get(f"/tasks/{task_id}")).status_code == 503
    line.restore()
    async with asyncio.timeout(3 * TIMEOUT):
        (failed,) = [event async for event in stream]
    assert failed.state == "TASK_STATE_FAILED"
    assert failed.data["statusUpdate"]["status"]["message"]["parts"] == [{"text": LOST_TEXT}]
    api.script.gates["g"].set()
    assert await states(api, task_id) == ["SUBMITTED", "WORKING", "FAILED"]
    assert (await api.task(task_id))["status"]["state"] == "TASK_STATE_FAILED"
    assert api.script.runs == 1
    assert (await api.send("hello"))["status"]["state"] == "TASK_STATE_COMPLETED"


class TestRestart:
    """With `recovery = "restart"`."""

    @pytest.fixture
    def recovery(self) -> Recovery:
        return "restart"

    async def test_a_turn_runs_again_after_an_outage_longer_than_its_lease(self, api: Api, line: OutageProxy) -> None:
        task_id = await api.held("g")
        stream = api.events(f"/tasks/{task_id}:subscribe")
        await anext(stream)
        line.refuse()
        await given_up(api.script)
        api.script.gates["g"].set()
        line.restore()
        async with asyncio.timeout(3 * TIMEOUT):
            last = [event async for event in stream][-1]
        assert last.state == "TASK_STATE_COMPLETED"
        assert [turn.attempt for turn in api.script.turns] == [1, 2]
        task = await api.task(task_id)
        assert [(artifact["name"], len(artifact["parts"])) for artifact in task["artifacts"]] == [
            ("before", 1),
            ("after", 1),
        ]
        assert (await states(api, task_id))[-1] == "COMPLETED"

    async def test_a_handler_that_does_not_stop_does_not_keep_its_task(self, api: Api, line: OutageProxy) -> None:
        task_id = await api.start("stubborn g")
        await api.script.reached["g"].wait()
        line.refuse()
        await given_up(api.script)
        line.restore()
        async with asyncio.timeout(3 * TIMEOUT):
            while len(api.script.turns) < 2:  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0.01)
        assert [turn.attempt for turn in api.script.turns] == [1, 2]
        api.script.gates["g"].set()
        await api.wait_for(task_id, "TASK_STATE_COMPLETED")
        assert api.script.runs == 2
