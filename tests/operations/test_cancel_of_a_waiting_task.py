"""CancelTask in the moment between a question and the end of the turn that asked it."""

import asyncio

from app.bootstrap import build_app
from app.settings import Settings
from app.store.memory import MemoryTaskStore
from tests.agents import Script
from tests.asgi import serving
from tests.conftest import Api
from tests.requirements import requirement


class SlowToRelease(MemoryTaskStore):
    """A store in which a turn that is over keeps its lease for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()

    async def release_lease(self, task_id: str, epoch: int) -> None:
        await self.released.wait()
        await super().release_lease(task_id, epoch)


@requirement("cancel.waiting")
async def test_a_task_that_has_just_asked_for_input_is_cancelled_too(script: Script, settings: Settings) -> None:
    store = SlowToRelease()
    async with serving(build_app(settings, agent=script.agent(), store=store)) as http:
        api = Api(http, script)
        task = await api.send("ask")
        asyncio.get_running_loop().call_later(0.2, store.released.set)
        response = await api.post(f"/tasks/{task['id']}:cancel")
        assert response.json()["status"]["state"] == "TASK_STATE_CANCELED"
