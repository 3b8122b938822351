"""The operations on push notification configurations, over both bindings (A2A 3.1.7 to 3.1.10, 4.3, 13.2)."""

from dataclasses import dataclass
from typing import Any

import pytest

from app.settings import Settings
from tests.conftest import Api
from tests.operations.conftest import on_every_store
from tests.requirements import requirement

pytestmark = on_every_store

URL = "https://example.com/hook"
CLOSED = "http://127.0.0.1:9/hook"
"""Where nobody answers; for what will be called."""


@dataclass
class RefusedError(Exception):
    """An error, as either binding says it."""

    message: str
    reason: str | None
    fields: set[str]


@dataclass
class Configs:
    """The four operations over one binding."""

    api: Api
    binding: str

    async def create(self, task_id: str, **config: Any) -> dict[str, Any]:
        config = {"url": URL, **config}
        if self.binding == "rest":
            return await self._rest("POST", f"/tasks/{task_id}/pushNotificationConfigs", json=config)
        return await self._rpc("CreateTaskPushNotificationConfig", {"taskId": task_id, **config})

    async def get(self, task_id: str, config_id: str) -> dict[str, Any]:
        if self.binding == "rest":
            return await self._rest("GET", f"/tasks/{task_id}/pushNotificationConfigs/{config_id}")
        return await self._rpc("GetTaskPushNotificationConfig", {"taskId": task_id, "id": config_id})

    async def list(self, task_id: str, **page: Any) -> dict[str, Any]:
        if self.binding == "rest":
            return await self._rest("GET", f"/tasks/{task_id}/pushNotificationConfigs", params=page)
        return await self._rpc("ListTaskPushNotificationConfigs", {"taskId": task_id, **page})

    async def delete(self, task_id: str, config_id: str) -> dict[str, Any]:
        if self.binding == "rest":
            return await self._rest("DELETE", f"/tasks/{task_id}/pushNotificationConfigs/{config_id}")
        return await self._rpc("DeleteTaskPushNotificationConfig", {"taskId": task_id, "id": config_id})

    async def _rest(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        response = await self.api.http.request(method, self.api.path(path), **options)
        answer: dict[str, Any] = response.json()
        if response.status_code != 200:
            raise _refusal(answer["error"]["message"], answer["error"]["details"])
        return answer

    async def _rpc(self, method: str, params: Any) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer: dict[str, Any] = (await self.api.http.post(self.api.path("/rpc"), json=body)).json()
        if "error" in answer:
            raise _refusal(answer["error"]["message"], answer["error"]["data"])
        result: dict[str, Any] = answer["result"]
        return result


def _refusal(message: str, details: Any) -> RefusedError:
    detail = details[0]
    return RefusedError(message, detail.get("reason"), {found["field"] for found in detail.get("fieldViolations", ())})


@pytest.fixture
def settings(store_url: str) -> Settings:
    return Settings(
        _env_file=None,
        store_url=store_url,
        push="on",
        push_allow="127.0.0.1",
        max_push_configs_per_task=4,
        shutdown_grace=0.05,
    )


@pytest.fixture(params=["rest", "jsonrpc"])
def configs(api: Api, request: pytest.FixtureRequest) -> Configs:
    return Configs(api, request.param)


@requirement("push.create", "push.get", "push.delete")
async def test_a_configuration_lives_from_its_creation_to_its_deletion(configs: Configs) -> None:
    task = await configs.api.send("hello")
    created = await configs.create(task["id"], id="mine")
    assert created == {"id": "mine", "taskId": task["id"], "url": URL}, "on a task that has ended, too"
    assert await configs.get(task["id"], "mine") == created
    assert await configs.list(task["id"]) == {"configs": [created]}
    assert await configs.delete(task["id"], "mine") == {}
    assert await configs.delete(task["id"], "mine") == {}
    assert await configs.list(task["id"]) == {}
    with pytest.raises(RefusedError) as refusal:
        await configs.get(task["id"], "mine")
    assert refusal.value.reason == "TASK_NOT_FOUND"


@requirement("push.secrets")
async def test_credentials_are_taken_and_never_shown(configs: Configs) -> None:
    task = await configs.api.send("ask")
    authentication = {"scheme": "Bearer", "credentials": "very-secret"}
    created = await configs.create(task["id"], token="very-secret", authentication=authentication)
    for shown in (created, await configs.get(task["id"], created["id"]), await configs.list(task["id"])):
        assert "very-secret" not in str(shown)
        assert "Bearer" in str(shown)
    assert len(created["id"]) > 16, "an id is made where none is given"


async def test_an_id_that_is_there_is_replaced_and_belongs_to_its_task(configs: Configs) -> None:
    one, other = await configs.api.send("ask"), await configs.api.send("ask")
    await configs.create(one["id"], id="c")
    await configs.create(other["id"], id="c")
    await configs.create(one["id"], id="c", url=URL + "/new")
    assert [found["url"] for found in (await configs.list(one["id"]))["configs"]] == [URL + "/new"]
    assert (await configs.get(other["id"], "c"))["url"] == URL


@requirement("push.list")
async def test_a_list_comes_in_pages(configs: Configs) -> None:
    task, other = await configs.api.send("ask"), await configs.api.send("ask")
    for name in "cabd":
        await configs.create(task["id"], id=name)
    first = await configs.list(task["id"], pageSize=2)
    assert [found["id"] for found in first["configs"]] == ["a", "b"]
    await configs.delete(task["id"], "b")
    rest = await configs.list(task["id"], pageSize=2, pageToken=first["nextPageToken"])
    assert [found["id"] for found in rest["configs"]] == ["c", "d"], "a deleted row never invalidates a token"
    assert "nextPageToken" not in rest
    for of_task, page, field in (
        (other["id"], {"pageToken": first["nextPageToken"]}, "pageToken"),
        (task["id"], {"pageToken": "bm9uZQ"}, "pageToken"),
        (task["id"], {"pageToken": "!"}, "pageToken"),
        (task["id"], {"pageSize": 101}, "pageSize"),
        (task["id"], {"pageSize": -1}, "pageSize"),
    ):
        with pytest.raises(RefusedError) as refusal:
            await configs.list(of_task, **page)
        assert refusal.value.fields == {field}


@requirement("push.scope")
async def test_a_task_that_is_not_there_and_one_of_others_are_the_same_answer(configs: Configs) -> None:
    task = await configs.api.send("ask")
    await configs.create(task["id"], id="c")
    stranger = Configs(Api(configs.api.http, configs.api.script, tenant="other"), configs.binding)
    answers = set()
    for asked, task_id in ((configs, "nowhere"), (stranger, task["id"])):
        for call in (
            asked.create(task_id, id="c"),
            asked.get(task_id, "c"),
            asked.list(task_id),
            asked.delete(task_id, "c"),
        ):
            with pytest.raises(RefusedError) as refusal:
                await call
            answers.add((refusal.value.message, refusal.value.reason))
    with pytest.raises(RefusedError) as refusal:
        await configs.get(task["id"], "no such config")
    answers.add((refusal.value.message, refusal.value.reason))
    assert len(answers) == 1
    assert (await configs.get(task["id"], "c"))["url"] == URL


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"url": "ftp://example.com/"}, "url"),
    ({"url": "http://127.0.0.2/"}, "url"),
    ({"url": "http://0x7f000001/"}, "url"),
    ({"url": "https://user:password@example.com/"}, "url"),
    ({"url": "not a url"}, "url"),
    ({"id": "a\r\nb"}, "id"),
    ({"token": "a\r\nX-Injected: 1"}, "token"),
    ({"token": ""}, "token"),
    ({"token": "schl\u00fcssel"}, "token"),
    ({"token": "x" * 1025}, "token"),
    ({"authentication": {"scheme": "Bearer", "credentials": "a\nb"}}, "authentication.credentials"),
    ({"authentication": {"scheme": "Bearer", "credentials": "x" * 4097}}, "authentication.credentials"),
    ({"authentication": {"scheme": "Bearer x", "credentials": "a"}}, "authentication.scheme"),
    ({"authentication": {"scheme": ""}}, "authentication.scheme"),
]


async def test_what_cannot_be_sent_on_is_refused_and_named(configs: Configs) -> None:
    task = await configs.api.send("ask")
    for wrong, field in WRONG:
        with pytest.raises(RefusedError) as refusal:
            await configs.create(task["id"], **wrong)
        assert refusal.value.fields == {field}, wrong
        for secret in ("password", "schl", "xxxx"):
            assert secret not in refusal.value.message.replace("a user or a password", "")
    assert await configs.list(task["id"]) == {}


@pytest.mark.setting("max_push_configs_per_task")
async def test_a_task_has_so_many_webhooks_and_no_more(configs: Configs) -> None:
    task = await configs.api.send("ask")
    for number in range(4):
        await configs.create(task["id"], id=str(number))
    with pytest.raises(RefusedError) as refusal:
        await configs.create(task["id"], id="one more")
    assert refusal.value.fields == {"id"}
    assert "4" in refusal.value.message


class TestInASend:
    async def test_it_is_kept_with_the_task(self, configs: Configs) -> None:
        task = await configs.api.send("ask", {"taskPushNotificationConfig": {"url": CLOSED, "id": "mine"}})
        assert await configs.get(task["id"], "mine") == {"id": "mine", "taskId": task["id"], "url": CLOSED}
        inline = {"url": CLOSED, "taskId": task["id"], "token": "t"}
        await configs.api.send("ask", {"taskPushNotificationConfig": inline}, taskId=task["id"])
        assert len((await configs.list(task["id"]))["configs"]) == 2

    async def test_one_that_is_wrong_is_refused_and_nothing_runs(self, configs: Configs) -> None:
        path = "configuration.taskPushNotificationConfig."
        for wrong, field in ({"url": "http://10.0.0.1/"}, "url"), ({"url": URL, "taskId": "another"}, "taskId"):
            body = {
                "message": configs.api.message("x"),
                "configuration": {"taskPushNotificationConfig": wrong},
            }
            response = await configs.api.post("/message:send", body)
            assert response.status_code == 400
            assert response.json()["error"]["details"][0]["fieldViolations"][0]["field"] == path + field
        assert configs.api.script.runs == 0

    async def test_one_too_many_is_refused_and_no_turn_begins(self, configs: Configs) -> None:
        task = await configs.api.send("ask")
        for number in range(4):
            await configs.create(task["id"], id=str(number))
        body = {
            "message": configs.api.message("x", taskId=task["id"]),
            "configuration": {"taskPushNotificationConfig": {"url": URL}},
        }
        response = await configs.api.post("/message:send", body)
        assert response.status_code == 400
        assert await configs.api.task(task["id"]) == task


@requirement("push.declared")
@pytest.mark.setting("push")
async def test_the_card_says_that_notifications_are_sent(configs: Configs) -> None:
    card = (await configs.api.get("/.well-known/agent-card.json")).json()
    assert card["capabilities"]["pushNotifications"] is True
