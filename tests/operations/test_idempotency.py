"""Sends that carry a key (DESIGN 6): of identical ones, one runs."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from app.protocol.extensions import IDEMPOTENCY_EXTENSION_URI
from app.protocol.idempotency import IDEMPOTENCY_KEY_METADATA, new_key
from app.settings import Settings
from tests.conftest import Api
from tests.operations.conftest import everywhere, is_at_end
from tests.requirements import requirement

pytestmark = everywhere

KEY = "0123456789abcdef"


def keyed(api: Api, text: str, key: object = KEY, **members: Any) -> dict[str, Any]:
    return {"message": api.message(text, metadata={IDEMPOTENCY_KEY_METADATA: key}, **members)}


async def test_a_retry_gets_the_task_of_the_first_send_and_the_agent_runs_once(api: Api) -> None:
    body = keyed(api, "hello")
    first = await api.post("/message:send", body)
    second = await api.post("/message:send", body)
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert first.json() == second.json()
    assert api.script.runs == 1


async def test_a_retry_waits_for_the_turn_as_any_send_does(api: Api) -> None:
    body = keyed(api, "hold g")
    first = asyncio.create_task(api.post("/message:send", body))
    await api.script.reached["g"].wait()
    second = asyncio.create_task(api.post("/message:send", body))
    at_once = await api.post("/message:send", {**body, "configuration": {"returnImmediately": True}})
    assert at_once.json()["task"]["status"]["state"] == "TASK_STATE_WORKING"
    assert not second.done()
    api.script.gates["g"].set()
    assert (await first).json() == (await second).json()
    assert api.script.runs == 1


@requirement("keys.conflict")
async def test_a_key_used_for_another_message_is_a_conflict(api: Api) -> None:
    await api.post("/message:send", keyed(api, "hello"))
    response = await api.post("/message:send", keyed(api, "hello"))
    assert response.status_code == 400
    violation = response.json()["error"]["details"][0]["fieldViolations"][0]
    assert violation["field"] == f"message.metadata.{IDEMPOTENCY_KEY_METADATA}"
    assert "another message" in violation["description"]
    assert api.script.runs == 1


@requirement("keys.streams")
async def test_a_retried_stream_is_the_stream_of_the_first_turn(api: Api, binding: str) -> None:
    body = keyed(api, "chunks 5")
    whole = await api.stream("/message:stream", body)
    assert await api.stream("/message:stream", body) == whole
    assert await api.stream("/message:stream", body, headers={"Last-Event-ID": "4"}) == whole[4:]
    at_end = await api.post("/message:stream", body, headers={"Last-Event-ID": str(len(whole))})
    assert is_at_end(at_end, binding)
    assert api.script.runs == 1


async def test_a_retry_is_of_its_turn_even_when_later_turns_exist(api: Api) -> None:
    first = keyed(api, "ask")
    whole = await api.stream("/message:stream", first)
    task_id = whole[0].data["task"]["id"]
    follow_up = keyed(api, "chunks 2", new_key(), taskId=task_id)
    later = await api.stream("/message:stream", follow_up)
    assert await api.stream("/message:stream", first) == whole
    replayed = await api.stream("/message:stream", follow_up)
    assert [event.id for event in replayed] == [event.id for event in later]
    assert replayed[1:] == later[1:]
    assert api.script.runs == 2


async def test_a_follow_up_that_is_retried_runs_once(api: Api) -> None:
    task = await api.send("ask")
    body = keyed(api, "hello", taskId=task["id"])
    first = await api.post("/message:send", body)
    second = await api.post("/message:send", body)
    assert first.json() == second.json()
    assert second.headers["idempotency-replayed"] == "true"
    assert api.script.runs == 2


@requirement("keys.once")
async def test_identical_sends_at_once_run_once(api: Api) -> None:
    body = keyed(api, "chunks 3")
    responses = await asyncio.gather(*(api.post("/message:send", body) for _ in range(32)))
    assert {response.status_code for response in responses} == {200}
    assert len({response.json()["task"]["id"] for response in responses}) == 1
    assert sum("idempotency-replayed" in response.headers for response in responses) == 31
    assert api.script.runs == 1


@requirement("keys.freed")
async def test_a_refused_follow_up_leaves_its_key_free(api: Api) -> None:
    task_id = await api.held("g")
    body = keyed(api, "hello", taskId=task_id)
    assert (await api.post("/message:send", body)).status_code == 400
    api.script.gates["g"].set()
    done = await api.send("hello")
    body["message"].pop("taskId")
    assert (await api.post("/message:send", body)).json()["task"]["id"] not in {task_id, done["id"]}


@pytest.mark.parametrize("spelling", [KEY, f'"{KEY}"'])
async def test_the_header_is_a_second_spelling_and_leaves_the_message_as_it_was(api: Api, spelling: str) -> None:
    body = {"message": api.message("hello")}
    first = await api.post("/message:send", body, headers={"Idempotency-Key": spelling})
    second = await api.post("/message:send", body, headers={"Idempotency-Key": KEY})
    assert first.json() == second.json()
    assert first.json()["task"]["history"] == [body["message"]]
    assert second.headers["idempotency-replayed"] == "true"


async def test_two_different_spellings_are_refused(api: Api) -> None:
    response = await api.post("/message:send", keyed(api, "hello"), headers={"Idempotency-Key": new_key()})
    assert response.status_code == 400
    assert api.script.runs == 0


@pytest.mark.parametrize("key", ["short", "a" * 15, "a" * 256, "a" * 16 + " ", "a" * 16 + "\n", "ä" * 20, 7, {}, []])
async def test_a_malformed_key_is_named_and_nothing_runs(api: Api, key: object) -> None:
    response = await api.post("/message:send", keyed(api, "hello", key))
    assert response.status_code == 400
    field = response.json()["error"]["details"][0]["fieldViolations"][0]["field"]
    assert field == f"message.metadata.{IDEMPOTENCY_KEY_METADATA}"
    assert api.script.runs == 0


@requirement("keys.scope")
async def test_the_same_key_of_another_tenant_is_another_key(api: Api) -> None:
    acme = Api(api.http, api.script, tenant="acme")
    body = keyed(api, "hello")
    first = (await api.post("/message:send", body)).json()["task"]
    second = (await acme.post("/message:send", body)).json()["task"]
    assert first["id"] != second["id"]
    assert api.script.runs == 2


async def test_the_extension_is_on_the_card(api: Api) -> None:
    card = (await api.get("/.well-known/agent-card.json")).json()
    assert IDEMPOTENCY_EXTENSION_URI in {extension["uri"] for extension in card["capabilities"]["extensions"]}


async def test_every_entry_replays_a_turn_before_the_last(api: Api, binding: str) -> None:
    first = keyed(api, "ask")
    asked = await api.post("/message:send", first)
    task_id = asked.json()["task"]["id"]
    follow_up = keyed(api, "hold g", new_key(), taskId=task_id)
    running = asyncio.create_task(api.post("/message:send", follow_up))
    await api.script.reached["g"].wait()
    # That turn is over, so nothing is waited for; the task is what it is now.
    for configuration in ({}, {"returnImmediately": True}):
        answer = await api.post("/message:send", {**first, "configuration": configuration})
        assert answer.headers["idempotency-replayed"] == "true"
        assert answer.json()["task"]["status"]["state"] == "TASK_STATE_WORKING"
    whole = await api.stream("/message:stream", first)
    assert whole[-1].state == "TASK_STATE_INPUT_REQUIRED"
    assert await api.stream("/message:stream", first, headers={"Last-Event-ID": "1"}) == whole[1:]
    at_end = await api.post("/message:stream", first, headers={"Last-Event-ID": whole[-1].id or ""})
    assert is_at_end(at_end, binding)
    if at_end.status_code == 204:
        assert at_end.headers["idempotency-replayed"] == "true"
    api.script.gates["g"].set()
    assert (await running).json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert api.script.runs == 2


@pytest.mark.parametrize("spelling", ["metadata", "header"])
async def test_the_message_is_stored_as_it_was_sent(api: Api, spelling: str) -> None:
    body = keyed(api, "hello") if spelling == "metadata" else {"message": api.message("hello", metadata={"a": None})}
    headers = {} if spelling == "metadata" else {"Idempotency-Key": KEY}
    task = (await api.post("/message:send", body, headers=headers)).json()["task"]
    assert task["history"] == [body["message"]]
    assert (await api.task(task["id"]))["history"] == [body["message"]]


async def test_json_rpc_keeps_keys_as_rest_does(api: Api) -> None:
    params = keyed(api, "chunks 3")

    async def call(method: str, params: Any, **headers: str) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await api.post("/rpc", body, headers=headers)

    first, second = await call("SendMessage", params), await call("SendMessage", params)
    assert first.json() == second.json()
    assert ("idempotency-replayed" in first.headers, second.headers["idempotency-replayed"]) == (False, "true")
    over_rest = await api.post("/message:send", params)
    assert over_rest.json() == first.json()["result"]
    stream = await call("SendStreamingMessage", params, **{"Last-Event-ID": "3"})
    assert stream.headers["idempotency-replayed"] == "true"
    assert stream.text.startswith("id: 4\n")
    at_end = await call("SendStreamingMessage", params, **{"Last-Event-ID": "6"})
    assert at_end.json()["error"]["code"] == -32004
    conflict = await call("SendMessage", keyed(api, "chunks 3"))
    assert conflict.json()["error"]["code"] == -32602
    assert "another message" in conflict.json()["error"]["data"][0]["fieldViolations"][0]["description"]
    malformed = await call("SendStreamingMessage", keyed(api, "x", "short"))
    assert malformed.json()["error"]["code"] == -32602
    assert api.script.runs == 1


class TestTruncatedLog:
    """Replays of a turn whose entries were dropped."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"max_events_per_task": 2})

    @pytest.mark.parametrize("end", ["COMPLETED", "INPUT_REQUIRED"])
    async def test_the_task_stands_for_what_was_dropped(self, api: Api, end: str) -> None:
        body = keyed(api, "chunks 9" if end == "COMPLETED" else "chunks then ask 9")
        first = await api.post("/message:send", body)
        task = first.json()["task"]
        assert task["status"]["state"] == f"TASK_STATE_{end}"
        page = (await api.get(f"/tasks/{task['id']}/events")).json()
        assert page["earliestSeq"] > 2
        assert (await api.post("/message:send", body)).json() == first.json()
        for headers in ({}, {"Last-Event-ID": "1"}):
            response = await api.post("/message:stream", body, headers=headers)
            assert response.headers["a2a-resume"] == "snapshot"
            assert response.headers["idempotency-replayed"] == "true"
            frame = json.loads(response.text.partition("data: ")[2])
            assert frame == {"task": task}
        assert api.script.runs == 1

    async def test_a_turn_that_still_runs_is_waited_for(self, api: Api) -> None:
        body = keyed(api, "chunks then hold 9")
        first = asyncio.create_task(api.post("/message:send", body))
        await api.script.reached["9"].wait()
        retry = asyncio.create_task(api.post("/message:send", body))
        stream = api.events("/message:stream", body)
        shown = await anext(stream)
        assert (shown.kind, shown.state) == ("task", "TASK_STATE_WORKING")
        assert not retry.done()
        api.script.gates["9"].set()
        assert [event.state async for event in stream][-1] == "TASK_STATE_COMPLETED"
        assert (await first).json() == (await retry).json()
        assert api.script.runs == 1
