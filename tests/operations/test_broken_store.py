"""A store that fails in a way nobody expects: the turn is given up whole, and its task settled by the policy."""

from collections.abc import AsyncIterator

import pytest

from app.bootstrap import build_app
from app.settings import Settings
from app.store.base import Commit
from app.store.memory import MemoryTaskStore
from tests.agents import Script
from tests.asgi import serving
from tests.conftest import Api


class BreaksOnce(MemoryTaskStore):
    """Raises in the commit that carries a certain text, once."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = False

    async def commit(self, commit: Commit) -> int:
        if not self.broken and any(b"before the gate" in update.data for update in commit.updates):
            self.broken = True
            raise RuntimeError("the disk is on fire")
        return await super().commit(commit)


@pytest.fixture
async def api(script: Script, settings: Settings) -> AsyncIterator[Api]:
    short = settings.model_copy(update={"lease_ttl": 0.2})
    async with serving(build_app(short, agent=script.agent(), store=BreaksOnce())) as http:
        yield Api(http, script)


async def test_what_follows_a_lost_piece_is_not_stored_either(api: Api) -> None:
    api.script.gates["g"].set()
    task = await api.send("hold g")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert "artifacts" not in task
    events = (await api.get(f"/tasks/{task['id']}/events")).json()["events"]
    assert [entry["seq"] for entry in events] == [1, 2, 3]
