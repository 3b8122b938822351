"""Clients that speak another version, or do not say which (A2A 3.6)."""

import pytest

from app.settings import Settings
from tests.conftest import Api
from tests.operations.bindings import REST, invoke, on_both_bindings, served, total

OPERATIONS = ["SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask"]


@on_both_bindings
@pytest.mark.parametrize("operation", [*OPERATIONS, "GetExtendedAgentCard"])
async def test_a_request_that_names_no_version_is_one_of_0_3_and_is_told_what_is_spoken(
    api: Api, binding: str, operation: str
) -> None:
    del api.http.headers["A2A-Version"]
    params = {"message": api.message("x")} if operation.startswith("Send") else {"id": "t"}
    refused = await invoke(api, binding, operation, params)
    assert (refused.code, refused.status) == ((None, 400) if binding == REST else (-32009, 200))
    assert refused.reason == "VERSION_NOT_SUPPORTED"
    assert refused.details[0]["metadata"] == {"supportedVersions": "1.0"}
    assert "1.0" in refused.message
    assert api.script.runs == 0


@pytest.mark.parametrize("method", ["message/send", "message/stream", "tasks/get", "tasks/resubscribe"])
async def test_a_method_of_0_3_is_told_of_its_version_and_not_that_it_is_unknown(api: Api, method: str) -> None:
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"id": "t"}}
    answer = (await api.http.post("/rpc", json=body, headers={"A2A-Version": ""})).json()
    assert (answer["id"], answer["error"]["code"]) == (7, -32009)
    answer = (await api.http.post("/rpc", json=body)).json()
    assert answer["error"]["code"] == -32601


@pytest.mark.parametrize("path", ["/v1/message:send", "/v1/message:stream", "/v1/tasks/t:cancel"])
async def test_a_path_of_0_3_is_told_of_its_version(api: Api, path: str) -> None:
    refused = await api.http.post(path, json={"message": api.message("x")}, headers={"A2A-Version": ""})
    assert refused.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"


@pytest.mark.setting("require_version")
@on_both_bindings
async def test_the_lenient_server_takes_no_version_for_1_0_and_refuses_another_all_the_same(
    settings: Settings, binding: str
) -> None:
    async with served(settings, require_version=False) as api:
        del api.http.headers["A2A-Version"]
        params = {"message": api.message("x")}
        for headers in ({}, {"A2A-Version": ""}, {"A2A-Version": "1.0"}):
            assert not (await invoke(api, binding, "SendMessage", params, **headers)).failed
        for version in ("0.3", "0.3.0", "2.0"):
            refused = await invoke(api, binding, "SendMessage", params, **{"A2A-Version": version})
            assert (refused.reason, version in refused.message) == ("VERSION_NOT_SUPPORTED", True)
        assert await total(api) == 3
