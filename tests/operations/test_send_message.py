"""SendMessage (A2A 3.1.1, 3.2.2, 3.4)."""

import asyncio

import pytest

from tests.conftest import Api
from tests.operations.conftest import everywhere
from tests.requirements import requirement

pytestmark = everywhere


@requirement("send.task", "results.artifacts")
async def test_send_message_answers_with_the_completed_task(api: Api) -> None:
    task = await api.send("hello")
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"] == [{"artifactId": "echo", "name": "echo", "parts": [{"text": "hello"}]}]
    assert [message["parts"] for message in task["history"]] == [[{"text": "hello"}]]
    assert await api.task(task["id"]) == task


@requirement("send.blocking")
async def test_send_message_waits_for_the_turn_to_end(api: Api) -> None:
    sending = asyncio.create_task(api.send("hold g"))
    await api.script.reached["g"].wait()
    assert not sending.done()
    api.script.gates["g"].set()
    task = await sending
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [artifact["name"] for artifact in task["artifacts"]] == ["before", "after"]


@requirement("send.immediately")
async def test_send_message_with_return_immediately_answers_while_the_turn_runs(api: Api) -> None:
    task = await api.send("hold g", {"returnImmediately": True})
    assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
    await api.script.reached["g"].wait()
    assert (await api.task(task["id"]))["status"]["state"] == "TASK_STATE_WORKING"


@requirement("send.interrupted")
@pytest.mark.parametrize(
    ("text", "state", "says"),
    [
        ("silent", "TASK_STATE_COMPLETED", None),
        ("complete", "TASK_STATE_COMPLETED", "done"),
        ("fail", "TASK_STATE_FAILED", "it broke"),
        ("reject", "TASK_STATE_REJECTED", "no"),
        ("ask", "TASK_STATE_INPUT_REQUIRED", "Which one?"),
        ("raise", "TASK_STATE_FAILED", "The agent failed to handle this message."),
        ("nul", "TASK_STATE_FAILED", "The agent failed to handle this message."),
    ],
)
async def test_the_way_a_handler_ends_is_the_state_of_its_task(
    api: Api, text: str, state: str, says: str | None
) -> None:
    status = (await api.send(text))["status"]
    assert status["state"] == state
    assert status.get("message", {}).get("parts") == (None if says is None else [{"text": says}])


@requirement("security.safe-failures")
async def test_an_exception_of_the_agent_shows_nothing_of_itself_to_the_caller(api: Api) -> None:
    assert "secret detail" not in str(await api.send("raise"))


@requirement("turns.continue", "context.inferred")
async def test_a_message_with_the_task_id_continues_a_task_that_asked_for_input(api: Api) -> None:
    first = await api.send("ask")
    second = await api.send("the red one", taskId=first["id"])
    assert second["id"] == first["id"]
    assert second["contextId"] == first["contextId"]
    assert second["status"]["state"] == "TASK_STATE_COMPLETED"
    texts = [message["parts"][0]["text"] for message in second["history"]]
    assert texts == ["ask", "Which one?", "the red one"]
    assert second["artifacts"][0]["artifactId"] == "echo-t2"
    assert api.script.turns[1].text == "the red one"


async def test_an_artifact_name_that_is_opened_again_gets_an_id_of_its_own(api: Api) -> None:
    artifacts = (await api.send("twice"))["artifacts"]
    assert [(artifact["artifactId"], artifact["name"]) for artifact in artifacts] == [
        ("same", "same"),
        ("same-2", "same"),
    ]


async def test_data_parts_keep_any_json_value_null_included(api: Api) -> None:
    assert (await api.send("data"))["artifacts"][0]["parts"] == [{"data": {"a": [1, None, "x"]}}, {"data": None}]


@requirement("context.kept")
async def test_a_context_id_of_the_client_is_kept_and_groups_its_tasks(api: Api) -> None:
    first = await api.send("one", contextId="my context")
    second = await api.send("two", contextId="my context")
    assert first["contextId"] == second["contextId"] == "my context"
    assert first["id"] != second["id"]


@requirement("context.mismatch")
async def test_a_task_id_with_another_context_is_refused(api: Api) -> None:
    first = await api.send("ask")
    response = await api.post("/message:send", {"message": api.message("x", taskId=first["id"], contextId="other")})
    assert response.status_code == 400
    assert response.json()["error"]["details"][0]["fieldViolations"][0]["field"] == "message.contextId"
    assert (await api.task(first["id"])) == first


@requirement("send.terminal-task")
async def test_a_message_for_a_task_that_has_ended_is_refused(api: Api) -> None:
    task = await api.send("hello")
    response = await api.post("/message:send", {"message": api.message("more", taskId=task["id"])})
    assert response.status_code == 400
    assert response.json()["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"


@requirement("send.unknown-task")
async def test_a_message_for_a_task_that_does_not_exist_is_not_found(api: Api) -> None:
    response = await api.post("/message:send", {"message": api.message("x", taskId="nowhere")})
    assert response.status_code == 404
    assert response.json()["error"]["details"][0]["reason"] == "TASK_NOT_FOUND"


async def test_a_message_for_a_task_whose_turn_runs_is_refused_after_a_short_wait(api: Api) -> None:
    task_id = await api.held("g")
    response = await api.post("/message:send", {"message": api.message("x", taskId=task_id)})
    assert response.status_code == 400
    assert response.json()["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"
    assert api.script.runs == 1


async def test_of_messages_sent_at_once_to_a_waiting_task_one_wins(api: Api) -> None:
    task = await api.send("ask")
    bodies = [{"message": api.message("chunks 3", taskId=task["id"])} for _ in range(8)]
    responses = await asyncio.gather(*(api.post("/message:send", body) for body in bodies))
    assert sorted(response.status_code for response in responses) == [200] + [400] * 7
    assert api.script.runs == 2


@requirement("auth-required.streams")
async def test_a_handler_that_goes_on_after_require_auth_moves_the_task_back_to_working(api: Api) -> None:
    task = await api.send("auth g")
    assert task["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
    api.script.gates["g"].set()
    states = [
        event.state
        for event in await api.stream(f"/tasks/{task['id']}:subscribe", headers={"Last-Event-ID": "1"})
        if event.state
    ]
    assert states == [
        "TASK_STATE_WORKING",
        "TASK_STATE_AUTH_REQUIRED",
        "TASK_STATE_WORKING",
        "TASK_STATE_COMPLETED",
    ]


@requirement("history.length", "history.none")
@pytest.mark.parametrize(("length", "texts"), [(0, None), (1, ["c"]), (2, ["Which one?", "c"]), (9, 5)])
async def test_history_length_bounds_the_history_of_the_answer(
    api: Api, length: int, texts: list[str] | int | None
) -> None:
    first = await api.send("ask")
    await api.send("ask", taskId=first["id"])
    task = await api.send("c", {"historyLength": length}, taskId=first["id"])
    if texts is None:
        assert "history" not in task
    elif isinstance(texts, int):
        assert len(task["history"]) == texts
    else:
        assert [message["parts"][0]["text"] for message in task["history"]] == texts
    shown = await api.task(first["id"], historyLength=length)
    assert shown.get("history") == task.get("history")


async def test_a_webhook_in_a_send_is_refused_and_nothing_runs(api: Api) -> None:
    configuration = {"taskPushNotificationConfig": {"url": "https://example.com/hook"}}
    response = await api.post("/message:send", {"message": api.message("x"), "configuration": configuration})
    assert response.status_code == 400
    assert response.json()["error"]["details"][0]["reason"] == "PUSH_NOTIFICATION_NOT_SUPPORTED"
    assert api.script.runs == 0
    assert (await api.get("/tasks")).json()["totalSize"] == 0


@requirement("context.generated", "task-id.unique")
async def test_every_new_task_gets_an_id_and_a_context_of_its_own(api: Api) -> None:
    tasks = [await api.send("hello") for _ in range(3)]
    assert len({task["id"] for task in tasks}) == 3
    assert len({task["contextId"] for task in tasks}) == 3


@requirement("auth-required.state", "auth-required.messages")
async def test_a_task_that_waits_for_authorization_says_why_and_takes_messages(api: Api) -> None:
    task = await api.send("signin")
    assert task["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
    assert task["status"]["message"]["parts"] == [{"text": "Sign in."}]
    assert (await api.send("I did", taskId=task["id"]))["status"]["state"] == "TASK_STATE_COMPLETED"
