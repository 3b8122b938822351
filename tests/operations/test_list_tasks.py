"""ListTasks (A2A 3.1.4)."""

import pytest

from tests.conftest import Api
from tests.operations.conftest import everywhere
from tests.requirements import requirement

pytestmark = everywhere


@requirement("list.fields")
async def test_a_listing_without_tasks_has_all_four_fields(api: Api) -> None:
    assert (await api.get("/tasks")).json() == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}


@requirement("list.order", "list.artifacts")
async def test_tasks_come_newest_status_first_and_without_artifacts(api: Api) -> None:
    ids = [(await api.send(f"task {number}"))["id"] for number in range(5)]
    tasks = (await api.get("/tasks")).json()["tasks"]
    assert {task["id"] for task in tasks} == set(ids)
    times = [task["status"]["timestamp"] for task in tasks]
    assert times == sorted(times, reverse=True)
    assert all("artifacts" not in task for task in tasks)
    whole = (await api.get("/tasks", includeArtifacts="true")).json()["tasks"]
    assert all(task["artifacts"] for task in whole)


@requirement("list.cursor")
async def test_pages_cover_every_task_once_with_an_equal_total(api: Api) -> None:
    ids = {(await api.send("x"))["id"] for _ in range(11)}
    seen: list[str] = []
    token = ""
    while True:
        page = (await api.get("/tasks", pageSize=4, pageToken=token)).json()
        assert page["totalSize"] == 11
        assert page["pageSize"] == 4
        seen += [task["id"] for task in page["tasks"]]
        token = page["nextPageToken"]
        if not token:
            break
        await api.send("a task that comes while somebody pages")
    assert len(seen) == len(set(seen)) == 11
    assert set(seen) == ids


@requirement("list.filters")
async def test_filters_narrow_the_listing(api: Api) -> None:
    one = await api.send("x", contextId="a")
    two = await api.send("ask", contextId="a")
    await api.send("x", contextId="b")
    assert {task["id"] for task in (await api.get("/tasks", contextId="a")).json()["tasks"]} == {one["id"], two["id"]}
    waiting = (await api.get("/tasks", contextId="a", status="TASK_STATE_INPUT_REQUIRED")).json()
    assert [task["id"] for task in waiting["tasks"]] == [two["id"]]
    assert waiting["totalSize"] == 1
    since = (await api.get("/tasks", statusTimestampAfter=two["status"]["timestamp"])).json()["tasks"]
    assert two["id"] in {task["id"] for task in since}
    assert (await api.get("/tasks", contextId="nowhere")).json()["tasks"] == []
    assert (await api.get("/tasks", statusTimestampAfter="2999-01-01T00:00:00Z")).json()["totalSize"] == 0


async def test_history_length_bounds_each_history(api: Api) -> None:
    await api.send("ask")
    assert "history" not in (await api.get("/tasks", historyLength=0)).json()["tasks"][0]
    assert len((await api.get("/tasks", historyLength=1)).json()["tasks"][0]["history"]) == 1


@requirement("list.parameters", "rest.query")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pageSize", "0"),
        ("pageSize", "101"),
        ("pageSize", "many"),
        ("pageToken", "garbage"),
        ("pageToken", "W10"),
        ("status", "WORKING"),
        ("historyLength", "-1"),
        ("statusTimestampAfter", "yesterday"),
        ("statusTimestampAfter", "2026-01-01T00:00:00"),
        ("includeArtifacts", "perhaps"),
    ],
)
async def test_a_wrong_parameter_is_named(api: Api, name: str, value: str) -> None:
    response = await api.get("/tasks", **{name: value})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["details"][0]["fieldViolations"][0]["field"] == name


async def test_a_page_token_of_other_filters_is_refused(api: Api) -> None:
    for _ in range(3):
        await api.send("x", contextId="a")
    token = (await api.get("/tasks", pageSize=1)).json()["nextPageToken"]
    response = await api.get("/tasks", pageSize=1, pageToken=token, contextId="a")
    assert response.status_code == 400
    assert response.json()["error"]["details"][0]["fieldViolations"][0]["field"] == "pageToken"
