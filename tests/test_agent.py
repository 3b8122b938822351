"""Your agent, rehearsed without a server. Rewrite this file with `app/agent.py`."""

from app.agent import handle
from app.handler import rehearse
from app.protocol import TaskState


async def test_the_agent_repeats_what_it_is_told() -> None:
    task = await rehearse(handle, "hello world")
    assert task.status.state is TaskState.COMPLETED
    assert "".join(part.text or "" for part in task.artifacts[0].parts) == "hello world "


async def test_the_agent_asks_when_there_is_nothing_to_repeat() -> None:
    task = await rehearse(handle, " ")
    assert task.status.state is TaskState.INPUT_REQUIRED
    task = await rehearse(handle, "hello", task=task)
    assert task.status.state is TaskState.COMPLETED
