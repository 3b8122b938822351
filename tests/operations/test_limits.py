"""Limits on what clients send and agents say: what is at a limit passes, one more is refused and leaves nothing."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.handler import FAILURE_TEXT, Agent, TaskLimitError, Turn, TurnEndedError
from app.protocol import Artifact, Part, TaskArtifactUpdateEvent
from app.protocol.events import update_of
from app.protocol.limits import LimitError
from app.settings import Settings
from tests.agents import CARD
from tests.conftest import Api
from tests.operations.bindings import REST, Outcome, invoke, on_both_bindings, served, total
from tests.operations.conftest import on_every_store
from tests.requirements import requirement


def text_of(task: dict[str, Any]) -> str:
    text: str = task["status"]["message"]["parts"][0]["text"]
    return text


async def sent(api: Api, binding: str, operation: str = "SendMessage", /, **members: Any) -> Outcome:
    return await invoke(api, binding, operation, {"message": api.message("hello", **members)})


def agent(handle: Callable[[Turn], Awaitable[None]]) -> Agent:
    return Agent(card=CARD, handle=handle)


# -- what a client sends


@requirement("security.limits")
@pytest.mark.setting("max_body_bytes")
@on_both_bindings
@pytest.mark.parametrize("says_its_length", [True, False])
async def test_a_body_of_the_largest_size_is_read_and_a_byte_more_is_refused(
    settings: Settings, binding: str, *, says_its_length: bool
) -> None:
    async with served(settings, max_body_bytes=2_000) as api:
        params = {"message": api.message("hello")}
        body: Any = (
            params if binding == REST else {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
        )
        path = "/message:send" if binding == REST else "/rpc"
        headers = {"Content-Type": "application/json"} | ({} if says_its_length else {"Content-Length": ""})
        content = json.dumps(body).encode()
        largest = content + b" " * (2_000 - len(content))
        refused = await api.http.post(path, content=largest + b" ", headers=headers)
        assert refused.status_code == 413
        error = refused.json()["error"]
        assert (error["details"] if binding == REST else error["data"])[0]["reason"] == "PAYLOAD_TOO_LARGE"
        assert (await total(api), api.script.runs) == (0, 0)
        assert (await api.http.post(path, content=largest, headers=headers)).status_code == 200
        assert await total(api) == 1


@pytest.mark.setting("max_metadata_bytes")
@on_both_bindings
@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
@pytest.mark.parametrize("place", ["message.metadata", "metadata"])
async def test_metadata_may_be_so_large_and_no_larger(
    settings: Settings, binding: str, operation: str, place: str
) -> None:
    async with served(settings, max_metadata_bytes=1_000) as api:

        async def with_metadata(size: int) -> Outcome:
            metadata = {"é": "x" * (size - len('{"é":""}'.encode()))}
            params: dict[str, Any] = {"message": api.message("hello")}
            (params if place == "metadata" else params["message"])["metadata"] = metadata
            return await invoke(api, binding, operation, params)

        refused = await with_metadata(1_001)
        assert refused.fields == [place]
        assert refused.code in {None, -32602}
        assert (await total(api), api.script.runs) == (0, 0)
        assert not (await with_metadata(1_000)).failed


@pytest.mark.setting("max_parts_per_message")
@on_both_bindings
@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
async def test_a_message_has_so_many_parts_and_no_more(settings: Settings, binding: str, operation: str) -> None:
    async with served(settings, max_parts_per_message=3) as api:
        refused = await sent(api, binding, operation, parts=[{"text": "x"}] * 4)
        assert refused.fields == ["message.parts"]
        assert (await total(api), api.script.runs) == (0, 0)
        assert not (await sent(api, binding, operation, parts=[{"text": "x"}] * 3)).failed


@pytest.mark.setting("max_id_length")
@on_both_bindings
async def test_ids_are_so_long_and_no_longer(settings: Settings, binding: str) -> None:
    long = "x" * 64
    async with served(settings, max_id_length=64) as api:
        for name in ("messageId", "contextId", "taskId"):
            assert (await sent(api, binding, **{name: long + "x"})).fields == [f"message.{name}"]
        refused = await sent(api, binding, referenceTaskIds=["x", long + "x"])
        assert refused.fields == ["message.referenceTaskIds[1]"]
        assert (await total(api), api.script.runs) == (0, 0)
        accepted = await sent(api, binding, messageId=long, contextId=long, referenceTaskIds=[long])
        assert accepted.result["task"]["contextId"] == long
        assert (await sent(api, binding, taskId=long)).reason == "TASK_NOT_FOUND"


@on_both_bindings
async def test_ids_of_1024_characters_are_taken_by_default(api: Api, binding: str) -> None:
    long = "x" * 1_024
    accepted = await sent(api, binding, messageId=long, contextId=long)
    assert accepted.result["task"]["history"][0]["messageId"] == accepted.result["task"]["contextId"] == long
    assert (await sent(api, binding, contextId=long + "x")).fields[0].endswith("message.contextId")


# -- what an agent writes


@pytest.mark.setting("max_event_bytes")
@pytest.mark.parametrize("catches", [True, False])
async def test_an_event_may_be_so_large_and_no_larger(settings: Settings, *, catches: bool) -> None:
    limit = 16_384
    refused: list[str] = []

    async def handle(turn: Turn) -> None:
        empty = TaskArtifactUpdateEvent(
            task_id=turn.task.id,
            context_id=turn.task.context_id,
            artifact=Artifact(artifact_id="a", name="a", parts=[Part(text="")]),
            last_chunk=True,
        )
        room = limit - len(update_of(empty).data)
        await turn.artifact("a", "x" * room)
        for too_much in (
            lambda: turn.artifact("b", "x" * (room + 1)),
            lambda: turn.working("x" * limit),
            lambda: turn.complete("x" * limit),
        ):
            try:
                await too_much()
            except LimitError as error:
                refused.append(str(error))
                if not catches:
                    raise
        await turn.artifact("c", "instead")

    async with served(settings, agent(handle), max_event_bytes=limit) as api:
        task = await api.send("go")
        ids = [artifact["artifactId"] for artifact in task["artifacts"]]
        assert refused[0] == "the event has 16385 bytes and may have 16384; write it in pieces"
        if catches:
            assert len(refused) == 3
            assert (ids, task["status"]["state"]) == (["a", "c"], "TASK_STATE_COMPLETED")
        else:
            assert (ids, task["status"]["state"]) == (["a"], "TASK_STATE_FAILED")
            assert text_of(task) == FAILURE_TEXT
        assert task == await api.task(task["id"])


@pytest.mark.setting("max_artifacts_per_task")
async def test_a_task_has_so_many_artifacts_and_no_more_over_all_its_turns(settings: Settings) -> None:
    refused: list[str] = []

    async def handle(turn: Turn) -> None:
        await turn.artifact("one", "1")
        async with turn.artifact("two") as out:
            await out.write("2")
            if len(turn.task.artifacts) == 4:
                try:
                    await turn.artifact("five", "5")
                except LimitError as error:
                    refused.append(str(error))
            await out.write("still")
        await turn.require_input()

    async with served(settings, agent(handle), max_artifacts_per_task=4) as api:
        task = await api.send("go")
        task = await api.send("go on", taskId=task["id"])
        ids = [artifact["artifactId"] for artifact in task["artifacts"]]
        assert (ids, refused) == (["one", "two", "one-t2", "two-t2"], ["a task has at most 4 artifacts"])
        assert [part["text"] for part in task["artifacts"][3]["parts"]] == ["2", "still"]
        task = await api.send("go on", taskId=task["id"])
        assert (task["status"]["state"], text_of(task)) == ("TASK_STATE_FAILED", FAILURE_TEXT)
        assert len(task["artifacts"]) == 4


async def test_an_artifact_can_be_replaced_where_no_other_may_be_added(settings: Settings) -> None:
    async def handle(turn: Turn) -> None:
        for text in ("old", "new"):
            turn.emit_artifact(Artifact(artifact_id="a", parts=[Part(text=text)]), append=False, last_chunk=True)

    async with served(settings, agent(handle), max_artifacts_per_task=1) as api:
        assert [artifact["parts"] for artifact in (await api.send("go"))["artifacts"]] == [[{"text": "new"}]]


async def test_an_artifact_id_may_be_so_long_and_no_longer(settings: Settings) -> None:
    async def handle(turn: Turn) -> None:
        await turn.artifact("x" * 64, "fits")
        with pytest.raises(LimitError, match="at most 64 characters"):
            await turn.artifact("y" * 65, "does not")

    async with served(settings, agent(handle), max_id_length=64) as api:
        task = await api.send("go")
        assert (task["status"]["state"], len(task["artifacts"])) == ("TASK_STATE_COMPLETED", 1)


async def chunks(turn: Turn) -> None:
    """As many pieces as the message says."""
    async with turn.artifact("answer") as out:
        for _ in range(int(turn.text)):
            await out.write("piece")


EVENTS_TEXT = "The task failed because it has more than 8 events, the most that this server keeps of one."


@pytest.mark.setting("fail_after_events")
@on_every_store
async def test_a_task_with_too_many_events_fails_and_its_last_entry_says_why(settings: Settings) -> None:
    async with served(settings, agent(chunks), fail_after_events=8) as api:
        # The Task, WORKING, six pieces; and the end, which comes in addition.
        at_the_limit = await api.stream_of("6")
        assert (at_the_limit[-1].id, at_the_limit[-1].state) == ("9", "TASK_STATE_COMPLETED")
        beyond = await api.stream_of("7")
        assert [event.id for event in beyond] == [str(number) for number in range(1, 10)]
        assert (beyond[-1].state, beyond[-1].kind) == ("TASK_STATE_FAILED", "statusUpdate")
        assert beyond[-1].data["statusUpdate"]["status"]["message"]["parts"] == [{"text": EVENTS_TEXT}]
        task = await api.task(beyond[0].data["task"]["id"])
        assert (task["status"]["state"], text_of(task)) == ("TASK_STATE_FAILED", EVENTS_TEXT)
        assert len(task["artifacts"][0]["parts"]) == 6
        log = (await api.get(f"/tasks/{task['id']}/events")).json()
        assert (len(log["events"]), log["lastSeq"]) == (9, 9)


async def test_what_was_dropped_from_the_log_counts_as_well(settings: Settings) -> None:
    async with served(settings, agent(chunks), fail_after_events=8, max_events_per_task=2) as api:
        assert (await api.send("6"))["status"]["state"] == "TASK_STATE_COMPLETED"
        task = await api.send("7")
        assert text_of(task) == EVENTS_TEXT
        log = (await api.get(f"/tasks/{task['id']}/events")).json()
        assert log["lastSeq"] == 9
        assert log["earliestSeq"] > 1


async def test_a_handler_that_goes_on_after_the_limit_says_nothing_more(settings: Settings) -> None:
    seen: list[type[Exception]] = []

    async def handle(turn: Turn) -> None:
        for _ in range(12):
            try:
                await turn.working("still at it")
            except TurnEndedError as error:
                seen.append(type(error))

    async with served(settings, agent(handle), fail_after_events=8) as api:
        task = await api.send("go")
        assert (task["status"]["state"], text_of(task)) == ("TASK_STATE_FAILED", EVENTS_TEXT)
        assert seen == [TaskLimitError] + [TurnEndedError] * 4


@pytest.mark.setting("fail_after_bytes")
@on_every_store
async def test_the_bytes_of_all_turns_of_a_task_count(settings: Settings) -> None:
    async def handle(turn: Turn) -> None:
        await turn.artifact("answer", "x" * 500)
        await (turn.require_input() if turn.text == "first" else turn.complete())

    async def two_turns(api: Api) -> tuple[dict[str, Any], list[bytes]]:
        first = await api.send("first", messageId="m-1")
        task = await api.send("second", messageId="m-2", taskId=first["id"])
        async with api.http.stream("GET", f"/tasks/{task['id']}:subscribe?lastEventId=0") as response:
            body = await response.aread()
        return task, [line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: ")]

    async with served(settings, agent(handle)) as api:
        task, entries = await two_turns(api)
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    needed = sum(map(len, entries[:-1]))
    async with served(settings, agent(handle), fail_after_bytes=needed) as api:
        task, _ = await two_turns(api)
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    async with served(settings, agent(handle), fail_after_bytes=needed - 1) as api:
        task, entries = await two_turns(api)
        reason = f"more than {needed - 1} bytes of events"
        assert (task["status"]["state"], reason in text_of(task)) == ("TASK_STATE_FAILED", True)
        assert len(task["artifacts"]) == 1
        assert json.loads(entries[-1])["statusUpdate"]["status"] == task["status"]


async def test_a_task_that_waits_at_its_limit_fails_with_its_next_turn(settings: Settings) -> None:
    async def handle(turn: Turn) -> None:
        await turn.require_input("again?")

    async with served(settings, agent(handle), fail_after_events=3) as api:
        task = await api.send("go")
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        task = await api.send("on", taskId=task["id"])
        assert task["status"]["state"] == "TASK_STATE_FAILED"
        assert "more than 3 events" in text_of(task)


# -- streams


@pytest.mark.setting("max_streams")
@on_both_bindings
@pytest.mark.parametrize("operation", ["SendStreamingMessage", "SubscribeToTask"])
async def test_so_many_streams_are_open_and_one_more_is_told_to_come_back(
    settings: Settings, binding: str, operation: str
) -> None:
    async with served(settings, max_streams=1) as api:
        task_id = await api.held("one")

        async def open_stream() -> Outcome:
            params = {"id": task_id} if operation == "SubscribeToTask" else {"message": api.message("hello")}
            return await invoke(api, binding, operation, params)

        async with api.http.stream("POST", f"/tasks/{task_id}:subscribe") as response:
            assert response.status_code == 200
            refused = await open_stream()
            assert (refused.status, refused.reason) == (503, "UNAVAILABLE")
            assert int(refused.headers["retry-after"]) > 0
            assert (await total(api), api.script.runs) == (1, 1)
        # A reader that leaves makes room; so does a stream that ends, and one that was refused.
        for _ in range(2):
            assert (await invoke(api, binding, "SubscribeToTask", {"id": "nowhere"})).reason == "TASK_NOT_FOUND"
        api.script.gates["one"].set()
        if operation == "SubscribeToTask":
            await api.wait_for(task_id, "TASK_STATE_COMPLETED")
            assert (await open_stream()).reason == "UNSUPPORTED_OPERATION"
        else:
            for _ in range(2):
                assert not (await open_stream()).failed


async def test_streams_that_come_at_once_do_not_pass_the_limit_together(settings: Settings) -> None:
    async with served(settings, max_streams=3) as api:

        async def hold() -> int:
            async with api.http.stream("POST", "/message:stream", json={"message": api.message("hold x")}) as response:
                if response.status_code == 200:
                    await api.script.gates["x"].wait()
                return response.status_code

        streams = [asyncio.create_task(hold()) for _ in range(12)]
        await asyncio.wait(streams, return_when=asyncio.FIRST_COMPLETED)
        async with asyncio.timeout(5):
            while sum(stream.done() for stream in streams) < 9:  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0)
        api.script.gates["x"].set()
        statuses = await asyncio.gather(*streams)
        assert sorted(statuses) == [200] * 3 + [503] * 9
        assert await total(api) == 3
