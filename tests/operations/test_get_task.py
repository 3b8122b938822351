"""GetTask (A2A 3.1.3)."""

from tests.conftest import Api
from tests.operations.conftest import everywhere
from tests.requirements import requirement

pytestmark = everywhere


@requirement("get.current")
async def test_a_running_task_is_shown_as_far_as_it_has_come(api: Api) -> None:
    task_id = await api.held("g")
    task = await api.task(task_id)
    assert task["status"]["state"] == "TASK_STATE_WORKING"
    assert [artifact["name"] for artifact in task["artifacts"]] == ["before"]
    api.script.gates["g"].set()
    task = await api.wait_for(task_id, "TASK_STATE_COMPLETED")
    assert [artifact["name"] for artifact in task["artifacts"]] == ["before", "after"]


@requirement("get.unknown")
async def test_a_task_that_is_not_there_is_not_found(api: Api) -> None:
    response = await api.get("/tasks/nowhere")
    assert response.status_code == 404
    assert response.json()["error"]["details"][0]["reason"] == "TASK_NOT_FOUND"
