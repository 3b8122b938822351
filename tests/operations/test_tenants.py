"""Tenants by path and by field: each sees its own, and nothing else is there."""

import pytest

from tests.conftest import Api
from tests.operations.conftest import on_both_bindings
from tests.requirements import requirement

pytestmark = on_both_bindings


@requirement("list.visible", "errors.not-found", "security.scope")
async def test_a_task_is_seen_by_its_tenant_only(api: Api) -> None:
    acme = Api(api.http, api.script, tenant="acme")
    other = Api(api.http, api.script, tenant="other")
    task = await acme.send("ask")
    missing = await api.get("/tasks/nowhere")
    for stranger in (api, other):
        for method, path in (
            ("GET", f"/tasks/{task['id']}"),
            ("GET", f"/tasks/{task['id']}/events"),
            ("GET", f"/tasks/{task['id']}:subscribe"),
            ("POST", f"/tasks/{task['id']}:cancel"),
        ):
            for headers in ({}, {"Last-Event-ID": "1"}):
                response = await api.http.request(method, stranger.path(path), headers=headers)
                assert (response.status_code, response.content) == (404, missing.content), path
        body = {"message": stranger.message("x", taskId=task["id"])}
        for path in ("/message:send", "/message:stream"):
            response = await stranger.post(path, body)
            assert (response.status_code, response.content) == (404, missing.content)
        assert (await stranger.get("/tasks")).json()["totalSize"] == 0
    assert await acme.task(task["id"]) == task


async def test_the_tenant_may_stand_in_the_body_or_the_query(api: Api) -> None:
    response = await api.post("/message:send", {"tenant": "acme", "message": api.message("ask")})
    task = response.json()["task"]
    assert (await api.get(f"/tasks/{task['id']}", tenant="acme")).json() == task
    assert (await api.get(f"/acme/tasks/{task['id']}")).json() == task
    assert (await api.get(f"/tasks/{task['id']}")).status_code == 404


async def test_two_tenants_in_one_request_are_refused(api: Api) -> None:
    for response in (
        await api.post("/acme/message:send", {"tenant": "other", "message": api.message("x")}),
        await api.get("/acme/tasks", tenant="other"),
    ):
        assert response.status_code == 400
        assert response.json()["error"]["details"][0]["fieldViolations"][0]["field"] == "tenant"
    assert api.script.runs == 0


@pytest.mark.parametrize("name", ["tasks", "rpc", "docs", ".well-known", "message:send", "healthz"])
async def test_the_servers_own_names_are_no_tenants(api: Api, name: str) -> None:
    response = await api.post("/message:send", {"tenant": name, "message": api.message("x")})
    assert response.status_code == 400
    assert (await api.get(f"/{name}/tasks")).status_code in {400, 404, 405}
