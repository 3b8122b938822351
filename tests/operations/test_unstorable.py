"""NUL, lone surrogates and what is no number: answered alike on every store, and never by a fault (DESIGN 11)."""

import pytest

from app.protocol import TaskState
from app.protocol.requests import ListTasksRequest
from app.store.base import Claimed, NotFound
from app.store.memory import MemoryTaskStore
from app.store.sql import SqlTaskStore
from tests.conftest import Api
from tests.operations.conftest import on_every_store
from tests.store.values import a_message, a_task, ended, new_task, new_turn

MESSAGE = '"messageId": "m", "role": "ROLE_USER"'
BODIES = {
    "NUL": '{"message": {' + MESSAGE + ', "parts": [{"text": "a\\u0000b"}]}}',
    "lone surrogate": '{"message": {' + MESSAGE + ', "parts": [{"text": "\\ud800"}]}}',
    "NUL in a task id": '{"message": {' + MESSAGE + ', "taskId": "\\u0000", "parts": [{"text": "x"}]}}',
    "lone surrogate in a context id": '{"message": {' + MESSAGE + ', "contextId": "\\udfff", "parts": []}}',
    "NaN": '{"message": {' + MESSAGE + ', "parts": [{"data": NaN}]}}',
    "Infinity": '{"message": {' + MESSAGE + ', "parts": [{"data": [-Infinity]}]}}',
}
READS = {
    "/tasks/a%00b": 404,
    "/tasks/%ED%A0%80": 404,
    "/tasks/a%00b/events": 404,
    "/tasks/a%00b:subscribe": 404,
    "/tasks?contextId=a%00b": 200,
    "/tasks?contextId=%ED%A0%80": 200,
    "/tasks?pageToken=a%00b": 400,
    "/tasks?statusTimestampAfter=NaN": 400,
    "/a%00b/tasks": 200,
}
ODD = ["a\0b", "\ud800", "\0"]
KEY = "k" * 16


@on_every_store
async def test_requests_with_what_no_store_can_hold_are_answered_alike(api: Api) -> None:
    for name, body in BODIES.items():
        for path in ("/message:send", "/message:stream"):
            response = await api.post(path, content=body, headers={"Content-Type": "application/json"})
            assert response.status_code == 400, name
            assert response.json()["error"]["details"][0]["reason"] == "PARSE_ERROR", name
    found = {path: (await api.http.get(path)).status_code for path in READS}
    assert found == READS
    assert (await api.post("/tasks/a%00b:cancel")).status_code == 404
    assert (await api.get("/tasks")).json()["totalSize"] == 0
    assert (await api.send("hello"))["status"]["state"] == "TASK_STATE_COMPLETED"


@on_every_store
async def test_a_store_that_is_handed_what_it_cannot_hold_says_so_alike(store_url: str) -> None:
    store = MemoryTaskStore() if store_url.startswith("memory") else SqlTaskStore(store_url)
    async with store:
        turn = await ended(store, TaskState.INPUT_REQUIRED)
        await store.release_lease(turn.task.id, turn.epoch)
        assert (await store.list(ListTasksRequest(context_id="a\0b"))).tasks == []
        for text in ODD:
            assert await store.get(text) is None
            assert await store.snapshot(text) is None
            assert await store.read_events(text, 0, 10) == []
            assert await store.last_event_seq(text) == 0
            assert await store.begin_turn(new_turn(text)) == NotFound()
            await store.delete(text)
            await store.release_idempotency_key(text)
            # The same message: its key is free whatever happened to it before.
            for refused in (
                lambda text=text: store.save(a_task(id=text)),
                lambda text=text: store.save(a_task(history=[a_message(text)])),
                lambda text=text: store.insert_if_absent(a_task(context_id=text)),
                lambda text=text: store.create_task(new_task(a_task(history=[a_message(text)]), key=KEY)),
                lambda text=text: store.create_task(new_task(key=text)),
                lambda text=text: store.claim_idempotency_key(text, "m", "t"),
                lambda text=text: store.claim_idempotency_key(KEY, text, "t"),
                lambda text=text: store.claim_idempotency_key(KEY, "m", text),
                lambda text=text: store.begin_turn(new_turn(turn.task.id, text, key=KEY)),
                lambda text=text: store.begin_turn(new_turn("nowhere", key=text)),
            ):
                with pytest.raises(ValueError, match=r"NUL|surrogate|unicode"):
                    await refused()
        assert await store.count() == 1
        assert await store.get(turn.task.id) == turn.task
        begun = await store.begin_turn(new_turn(turn.task.id, key=KEY))
        assert isinstance(begun, Claimed)
        assert begun.first_seq == turn.head + 1
