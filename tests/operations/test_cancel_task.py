"""CancelTask (A2A 3.1.5)."""

import asyncio

from tests.conftest import Api
from tests.operations.conftest import everywhere
from tests.requirements import requirement

pytestmark = everywhere


@requirement("cancel.task")
async def test_cancelling_a_running_task_stops_its_handler(api: Api) -> None:
    task_id = await api.held("g")
    response = await api.post(f"/tasks/{task_id}:cancel")
    assert response.status_code == 200, response.text
    assert response.json()["status"]["state"] == "TASK_STATE_CANCELED"
    assert api.script.cancelled == 1
    assert await api.task(task_id) == response.json()


async def test_cancelling_ends_the_streams_of_the_task(api: Api) -> None:
    task_id = await api.held("g")
    stream = api.events(f"/tasks/{task_id}:subscribe")
    await anext(stream)
    await api.post(f"/tasks/{task_id}:cancel", {})
    assert [event.state async for event in stream] == ["TASK_STATE_CANCELED"]


@requirement("cancel.waiting")
async def test_cancelling_a_waiting_task_ends_it_at_once(api: Api) -> None:
    task = await api.send("ask")
    response = await api.post(f"/tasks/{task['id']}:cancel", {"metadata": {"why": "no longer needed"}})
    assert response.json()["status"]["state"] == "TASK_STATE_CANCELED"
    assert [message["parts"][0]["text"] for message in response.json()["history"]] == ["ask", "Which one?"]


@requirement("cancel.terminal")
async def test_cancelling_a_task_that_has_ended_is_refused(api: Api) -> None:
    task = await api.send("x")
    response = await api.post(f"/tasks/{task['id']}:cancel")
    assert response.status_code == 400
    assert response.json()["error"]["details"][0]["reason"] == "TASK_NOT_CANCELABLE"
    assert await api.task(task["id"]) == task


async def test_cancelling_a_cancelled_task_is_refused(api: Api) -> None:
    task_id = await api.held("g")
    assert (await api.post(f"/tasks/{task_id}:cancel")).status_code == 200
    response = await api.post(f"/tasks/{task_id}:cancel")
    assert response.json()["error"]["details"][0]["reason"] == "TASK_NOT_CANCELABLE"


@requirement("cancel.unknown")
async def test_cancelling_an_unknown_task_is_the_plain_not_found(api: Api) -> None:
    response = await api.post("/tasks/nowhere:cancel")
    assert (response.status_code, response.content) == (404, (await api.get("/tasks/nowhere")).content)


@requirement("cancel.together")
async def test_all_who_cancel_a_running_task_at_once_get_the_task(api: Api) -> None:
    task_id = await api.held("g")
    responses = await asyncio.gather(*(api.post(f"/tasks/{task_id}:cancel") for _ in range(8)))
    assert {response.status_code for response in responses} == {200}
    assert {response.json()["status"]["state"] for response in responses} == {"TASK_STATE_CANCELED"}
    events = (await api.get(f"/tasks/{task_id}/events")).json()["events"]
    assert sum("CANCELED" in str(event) for event in events) == 1


async def test_a_handler_that_swallows_its_cancellation_is_abandoned(api: Api) -> None:
    task_id = await api.start("stubborn g")
    await api.script.reached["g"].wait()
    response = await api.post(f"/tasks/{task_id}:cancel")
    assert response.json()["status"]["state"] == "TASK_STATE_CANCELED"
    api.script.gates["g"].set()
    assert (await api.send("still serving"))["status"]["state"] == "TASK_STATE_COMPLETED"
    assert (await api.task(task_id))["status"]["state"] == "TASK_STATE_CANCELED"


@requirement("cancel.race")
async def test_cancelling_races_with_completing_and_one_of_them_wins(api: Api) -> None:
    for number in range(30):
        gate = f"g{number}"
        task_id = await api.held(gate)
        api.script.gates[gate].set()
        response = await api.post(f"/tasks/{task_id}:cancel")
        task = await api.task(task_id)
        if response.status_code == 200:
            assert task["status"]["state"] == "TASK_STATE_CANCELED"
        else:
            assert response.json()["error"]["details"][0]["reason"] == "TASK_NOT_CANCELABLE"
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
