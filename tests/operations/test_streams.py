"""SendStreamingMessage, SubscribeToTask and resume (A2A 3.1.2, 3.1.6, 3.5.2, 11.7; DESIGN 5)."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from app.protocol import Message, StreamResponse, Task, fold, payload, to_dict
from app.service import event_log
from app.settings import Settings
from tests.asgi import TIMEOUT
from tests.conftest import Api, Event, read_events
from tests.operations.conftest import everywhere, is_at_end
from tests.requirements import requirement

pytestmark = everywhere

if TYPE_CHECKING:
    import httpx


def folded(events: list[Event]) -> dict[str, Any]:
    """What a client has that applies the frames in order."""
    task: Task | None = None
    for event in events:
        change = payload(StreamResponse.model_validate(event.data))
        assert not isinstance(change, Message)
        if task is None:
            assert isinstance(change, Task)
            task = change
        else:
            task = fold(task, change)
    assert task is not None
    return to_dict(task)


@requirement("stream.task-first")
async def test_a_stream_begins_with_the_task_and_ends_with_its_final_state(api: Api) -> None:
    events = await api.stream_of("chunks 3")
    assert [event.kind for event in events] == ["task", "statusUpdate", *["artifactUpdate"] * 3, "statusUpdate"]
    assert [event.id for event in events] == ["1", "2", "3", "4", "5", "6"]
    assert events[0].state == "TASK_STATE_SUBMITTED"
    assert events[-1].state == "TASK_STATE_COMPLETED"
    assert [event.data["artifactUpdate"].get("append") for event in events[2:5]] == [None, True, True]


@requirement("stream.immediately")
async def test_return_immediately_changes_nothing_for_a_stream(api: Api) -> None:
    body = {"message": api.message("chunks 2"), "configuration": {"returnImmediately": True}}
    events = await api.stream("/message:stream", body)
    assert [event.kind for event in events] == ["task", "statusUpdate", *["artifactUpdate"] * 2, "statusUpdate"]


@requirement("data.fold", "delivery.order", "get.current")
async def test_applying_the_frames_in_order_gives_the_task(api: Api) -> None:
    events = await api.stream_of("chunks 20")
    task = await api.task(events[0].data["task"]["id"])
    assert folded(events) == task


async def test_applying_the_frames_across_turns_gives_the_task(api: Api) -> None:
    first = await api.send("ask")
    subscription = api.events(f"/tasks/{first['id']}:subscribe")
    events = [await anext(subscription)]
    await api.send("chunks 2", taskId=first["id"])
    events += [event async for event in subscription]
    assert folded(events) == await api.task(first["id"])


async def test_a_follow_up_stream_begins_with_the_task_as_of_its_turn(api: Api) -> None:
    first = await api.send("ask")
    events = await api.stream_of("chunks 2", taskId=first["id"])
    assert events[0].kind == "task"
    assert events[0].state == "TASK_STATE_WORKING"
    assert [message["parts"][0]["text"] for message in events[0].data["task"]["history"]][-1] == "chunks 2"
    ids = [int(event.id or 0) for event in events]
    assert ids == list(range(ids[0], ids[0] + len(ids)))
    assert folded(events) == await api.task(first["id"])


@requirement("rest.stream-end")
async def test_a_stream_ends_when_the_task_asks_for_input(api: Api) -> None:
    events = await api.stream_of("ask")
    assert events[-1].state == "TASK_STATE_INPUT_REQUIRED"


@requirement("stream.live")
async def test_events_come_while_the_turn_runs(api: Api) -> None:
    stream = api.events("/message:stream", {"message": api.message("hold g")})
    kinds = [(await anext(stream)).kind for _ in range(3)]
    assert kinds == ["task", "statusUpdate", "artifactUpdate"]
    api.script.gates["g"].set()
    assert [event.kind async for event in stream] == ["artifactUpdate", "statusUpdate"]


@requirement("delivery.independent")
async def test_a_reader_that_leaves_does_not_touch_the_task(api: Api) -> None:
    body = {"message": api.message("hold g")}
    async with api.http.stream("POST", "/message:stream", json=body) as response:
        first = await anext(read_events(response))
    api.script.gates["g"].set()
    task_id = first.data["task"]["id"]
    rest = await api.stream(f"/tasks/{task_id}:subscribe", headers={"Last-Event-ID": "1"})
    assert rest[-1].state == "TASK_STATE_COMPLETED"


@requirement("resume.exact")
async def test_a_cut_stream_resumes_with_exactly_what_was_missed(api: Api) -> None:
    whole = await api.stream_of("chunks 10")
    task_id = whole[0].data["task"]["id"]
    for cursor in range(len(whole) - 1):
        rest = await api.stream(f"/tasks/{task_id}:subscribe", headers={"Last-Event-ID": str(cursor)})
        assert rest == whole[cursor:]


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_the_cursor_may_stand_in_the_query_and_the_header_wins(api: Api, method: str) -> None:
    whole = await api.stream_of("chunks 4")
    path = f"/tasks/{whole[0].data['task']['id']}:subscribe"
    by_query = await api.stream(path, method=method, params={"lastEventId": "5"})
    assert by_query == whole[5:]
    both = await api.stream(path, method=method, params={"lastEventId": "5"}, headers={"Last-Event-ID": "2"})
    assert both == whole[2:]


async def test_a_resume_while_the_turn_runs_goes_on_to_its_end(api: Api) -> None:
    task_id = await api.held("g")
    stream = api.events(f"/tasks/{task_id}:subscribe", headers={"Last-Event-ID": "1"})
    assert (await anext(stream)).id == "2"
    api.script.gates["g"].set()
    assert [event.id async for event in stream] == ["3", "4", "5"]


async def test_a_resume_says_that_it_replays(api: Api) -> None:
    task_id = (await api.stream_of("x"))[0].data["task"]["id"]
    response = await api.http.get(f"/tasks/{task_id}:subscribe", headers={"Last-Event-ID": "1"})
    assert response.headers["a2a-resume"] == "replay"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"


@requirement("resume.end")
async def test_a_resume_at_the_end_of_a_task_that_has_ended_is_told_so(api: Api, binding: str) -> None:
    events = await api.stream_of("x")
    response = await api.http.get(
        f"/tasks/{events[0].data['task']['id']}:subscribe", headers={"Last-Event-ID": str(events[-1].id)}
    )
    assert is_at_end(response, binding)


@requirement("subscribe.task-first")
async def test_subscribing_begins_with_the_task_as_it_is(api: Api) -> None:
    task_id = await api.held("g")
    stream = api.events(f"/tasks/{task_id}:subscribe")
    first = await anext(stream)
    assert first.data == {"task": await api.task(task_id)}
    api.script.gates["g"].set()
    rest = [event async for event in stream]
    assert [int(event.id or 0) for event in rest] == list(range(int(first.id or 0) + 1, 6))
    assert rest[-1].state == "TASK_STATE_COMPLETED"


@requirement("subscribe.end")
async def test_a_subscription_stays_open_while_the_task_waits_for_input(api: Api) -> None:
    first = await api.send("ask")
    stream = api.events(f"/tasks/{first['id']}:subscribe")
    assert (await anext(stream)).state == "TASK_STATE_INPUT_REQUIRED"
    await api.send("go", taskId=first["id"])
    assert [event.state async for event in stream][-1] == "TASK_STATE_COMPLETED"


@requirement("subscribe.terminal")
async def test_subscribing_to_a_task_that_has_ended_is_refused(api: Api) -> None:
    task = await api.send("x")
    for method in ("GET", "POST"):
        response = await api.http.request(method, f"/tasks/{task['id']}:subscribe")
        assert response.status_code == 400
        assert response.json()["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"


@requirement("subscribe.unknown")
async def test_subscribing_to_an_unknown_task_is_the_plain_not_found(api: Api) -> None:
    unknown = await api.http.get("/tasks/nowhere")
    for headers in ({}, {"Last-Event-ID": "3"}):
        response = await api.http.get("/tasks/nowhere:subscribe", headers=headers)
        assert (response.status_code, response.content) == (404, unknown.content)


@requirement("resume.wrong")
@pytest.mark.parametrize("cursor", ["7", "99999999", "-1", "abc", "1.5", "", " ", "٣", "1" * 40])
async def test_a_cursor_that_is_no_position_of_the_log_is_refused(api: Api, cursor: str) -> None:
    task_id = (await api.stream_of("chunks 3"))[0].data["task"]["id"]
    response = await api.http.get(f"/tasks/{task_id}:subscribe", params={"lastEventId": cursor})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["details"][0]["fieldViolations"][0]["field"] == "Last-Event-ID"


async def test_a_cursor_on_a_new_send_without_a_key_is_refused_and_nothing_runs(api: Api) -> None:
    response = await api.post("/message:stream", {"message": api.message("x")}, headers={"Last-Event-ID": "1"})
    assert response.status_code == 400
    assert ":subscribe" in response.json()["error"]["message"]
    assert api.script.runs == 0


@requirement("delivery.equal")
async def test_several_streams_of_a_task_get_equal_events_in_equal_order(api: Api) -> None:
    task_id = await api.held("g")

    async def follow() -> list[Event]:
        return await api.stream(f"/tasks/{task_id}:subscribe", headers={"Last-Event-ID": "1"})

    following = [asyncio.create_task(follow()) for _ in range(5)]
    async with api.http.stream("GET", f"/tasks/{task_id}:subscribe") as leaving:
        await anext(read_events(leaving))
    api.script.gates["g"].set()
    streams = await asyncio.gather(*following)
    assert all(events == streams[0] for events in streams)
    assert streams[0][-1].state == "TASK_STATE_COMPLETED"


async def test_line_ends_in_a_text_neither_break_nor_forge_a_frame(api: Api) -> None:
    body = {"message": api.message("lines")}
    response: httpx.Response = await api.post("/message:stream", body)
    events = [event async for event in read_events(response)]
    text = events[2].data["artifactUpdate"]["artifact"]["parts"][0]["text"]
    assert text == "a\u2028b\rc\nd\r\n\ne\u0085f: g\ndata: {}\n\n"
    assert len(response.text.splitlines()) == len(response.content.split(b"\n")) - 1


async def test_history_length_trims_task_frames_only(api: Api) -> None:
    body = {"message": api.message("chunks 1"), "configuration": {"historyLength": 0}}
    events = await api.stream("/message:stream", body)
    assert "history" not in events[0].data["task"]
    assert [event.id for event in events] == ["1", "2", "3", "4"]


async def test_the_events_endpoint_reads_the_log_by_position(api: Api) -> None:
    events = await api.stream_of("chunks 3")
    task_id = events[0].data["task"]["id"]
    page = (await api.get(f"/tasks/{task_id}/events", after=1, limit=2)).json()
    assert page == {
        "events": [{"seq": 2, "event": events[1].data}, {"seq": 3, "event": events[2].data}],
        "earliestSeq": 1,
        "lastSeq": 6,
    }
    assert (await api.get(f"/tasks/{task_id}/events", after=6)).json()["events"] == []
    unknown = await api.get("/tasks/nowhere/events")
    assert (unknown.status_code, unknown.content) == (404, (await api.get("/tasks/nowhere")).content)


@requirement("stream.refusals")
async def test_a_stream_is_refused_for_what_a_send_is_refused_for(api: Api) -> None:
    ended = await api.send("x")
    for task_id, context_id, reason in (
        ("nowhere", None, "TASK_NOT_FOUND"),
        (ended["id"], None, "UNSUPPORTED_OPERATION"),
        ((await api.send("ask"))["id"], "another", "INVALID_PARAMS"),
    ):
        body = {"message": api.message("x", taskId=task_id, contextId=context_id)}
        for path in ("/message:send", "/message:stream"):
            response = await api.post(path, body)
            assert response.json()["error"]["details"][-1]["reason"] == reason
    assert api.script.runs == 2


class TestTruncation:
    """With `A2A_MAX_EVENTS_PER_TASK` the log keeps its newest entries only."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"max_events_per_task": 10})

    @requirement("resume.snapshot")
    async def test_a_resume_below_what_the_log_keeps_begins_with_a_snapshot(self, api: Api) -> None:
        task_id = await api.start("chunks 40")
        await api.wait_for(task_id, "TASK_STATE_COMPLETED")
        response = await api.http.get(f"/tasks/{task_id}:subscribe", headers={"Last-Event-ID": "2"})
        assert response.headers["a2a-resume"] == "snapshot"
        events = [event async for event in read_events(response)]
        assert [(event.id, event.kind) for event in events] == [("43", "task")]
        assert folded(events) == await api.task(task_id)

    @pytest.mark.setting("max_events_per_task")
    async def test_the_log_says_how_far_back_it_reaches(self, api: Api) -> None:
        task_id = (await api.send("chunks 40"))["id"]
        page = (await api.get(f"/tasks/{task_id}/events")).json()
        assert page["lastSeq"] == 43
        assert page["earliestSeq"] == page["events"][0]["seq"] > 30
        assert len(page["events"]) <= 13

    async def test_a_resume_within_what_the_log_keeps_is_exact(self, api: Api) -> None:
        task_id = (await api.send("chunks 40"))["id"]
        earliest = (await api.get(f"/tasks/{task_id}/events")).json()["earliestSeq"]
        events = await api.stream(f"/tasks/{task_id}:subscribe", headers={"Last-Event-ID": str(earliest - 1)})
        assert [int(event.id or 0) for event in events] == list(range(earliest, 44))

    async def test_a_reader_that_is_overtaken_gets_an_error_frame_and_its_resume_the_snapshot(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A slow reader is served from memory for as long as it can; shorter, so that fewer events overtake it.
        monkeypatch.setattr(event_log, "TAIL_ENTRIES", 50)
        stream = api.events("/message:stream", {"message": api.message("chunks 2000")})
        task_id = (await anext(stream)).data["task"]["id"]
        async with asyncio.timeout(2 * TIMEOUT):
            # It does not read on until the task has ended.
            while not (await api.get("/tasks", status="TASK_STATE_COMPLETED")).json()["tasks"]:  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0.02)
        *seen, last = [event async for event in stream]
        assert [int(event.id or 0) for event in seen] == list(range(2, len(seen) + 2))
        assert last.id is None
        error = last.data["error"]
        assert (error.get("details") or error["data"])[0]["reason"] == "EVENT_LOG_TRUNCATED"
        position = seen[-1].id if seen else "1"
        response = await api.http.get(f"/tasks/{task_id}:subscribe", headers={"Last-Event-ID": str(position)})
        assert response.headers["a2a-resume"] == "snapshot"
        (snapshot,) = [event async for event in read_events(response)]
        assert (snapshot.id, snapshot.data) == ("2003", {"task": await api.task(task_id)})
