"""The official Python client drives a really started server over both bindings: every operation, and its errors."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors as sdk_errors

from tests.server import Server

BINDINGS = ["HTTP+JSON", "JSONRPC"]


@pytest.fixture(params=BINDINGS)
async def factory(request: pytest.FixtureRequest, conformance_server: Server) -> AsyncIterator[Any]:
    """Makes clients of one binding."""
    async with httpx.AsyncClient(timeout=10.0) as http:
        card = await A2ACardResolver(http, conformance_server.url).get_agent_card()

        def make(**config: Any) -> Any:
            chosen = ClientConfig(httpx_client=http, supported_protocol_bindings=[request.param], **config)
            return ClientFactory(chosen).create(card)

        yield make


@pytest.fixture
def client(factory: Any) -> Any:
    return factory()


def message(text: str, **members: Any) -> pb.SendMessageRequest:
    parts = [pb.Part(text=text)]
    return pb.SendMessageRequest(message=pb.Message(message_id="m", role=pb.ROLE_USER, parts=parts, **members))


async def last(stream: AsyncIterator[Any]) -> Any:
    async for event in stream:
        seen = event
    return seen


async def test_send_message_is_answered_with_the_task(factory: Any) -> None:
    events = [event async for event in factory(streaming=False).send_message(message("echo hello"))]
    assert [event.WhichOneof("payload") for event in events] == ["task"]
    assert events[0].task.status.state == pb.TASK_STATE_COMPLETED
    assert events[0].task.artifacts[0].parts[0].text == "hello"


async def test_send_message_returns_while_the_task_runs_when_it_is_asked_to(factory: Any) -> None:
    client = factory(streaming=False)
    request = message("wait")
    request.configuration.return_immediately = True
    task = (await last(client.send_message(request))).task
    assert task.status.state in (pb.TASK_STATE_SUBMITTED, pb.TASK_STATE_WORKING)
    canceled = await client.cancel_task(pb.CancelTaskRequest(id=task.id))
    assert canceled.status.state == pb.TASK_STATE_CANCELED


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_direct_reply_is_a_message_and_nothing_else(factory: Any, streaming: bool) -> None:
    events = [event async for event in factory(streaming=streaming).send_message(message("reply"))]
    assert [event.WhichOneof("payload") for event in events] == ["message"]
    assert events[0].message.role == pb.ROLE_AGENT
    assert events[0].message.parts[0].text == "Direct message response"


async def test_send_streaming_message_streams_a_task_to_its_end(client: Any) -> None:
    events = [event async for event in client.send_message(message("chunks"))]
    kinds = [event.WhichOneof("payload") for event in events]
    assert kinds == ["task", "status_update", "artifact_update", "artifact_update", "status_update"]
    assert [event.artifact_update.append for event in events[2:4]] == [False, True]
    assert events[3].artifact_update.last_chunk
    assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED


@pytest.mark.parametrize(("word", "kind"), [("file", "raw"), ("url", "url"), ("data", "data")])
async def test_every_kind_of_part_arrives(factory: Any, word: str, kind: str) -> None:
    task = (await last(factory(streaming=False).send_message(message(word)))).task
    part = task.artifacts[0].parts[0]
    assert part.WhichOneof("content") == kind
    if kind == "data":
        assert dict(part.data.struct_value.items()) == {"key": "value", "count": 42}
    else:
        assert (part.filename, part.media_type) == ("output.txt", "text/plain")


async def test_get_task_and_list_tasks_show_a_task_of_two_turns(client: Any) -> None:
    events = [event async for event in client.send_message(message("ask"))]
    task = events[0].task
    assert events[-1].status_update.status.state == pb.TASK_STATE_INPUT_REQUIRED
    end = await last(client.send_message(message("echo on", task_id=task.id, context_id=task.context_id)))
    assert end.status_update.status.state == pb.TASK_STATE_COMPLETED
    shown = await client.get_task(pb.GetTaskRequest(id=task.id))
    assert shown.status.state == pb.TASK_STATE_COMPLETED
    assert [message.parts[0].text for message in shown.history] == ["ask", "Which one?", "echo on"]
    assert [part.text for part in shown.artifacts[0].parts] == ["on"]
    trimmed = await client.get_task(pb.GetTaskRequest(id=task.id, history_length=1))
    assert [message.parts[0].text for message in trimmed.history] == ["echo on"]
    listing = await client.list_tasks(pb.ListTasksRequest(page_size=10, context_id=task.context_id))
    assert [listed.id for listed in listing.tasks] == [task.id]
    assert (listing.total_size, listing.page_size, listing.next_page_token) == (1, 10, "")


async def test_list_tasks_pages(client: Any) -> None:
    ids = set()
    for _ in range(3):
        ids.add((await last(client.send_message(message("echo x", context_id="pages")))).status_update.task_id)
    seen: list[str] = []
    token = ""
    while True:
        page = await client.list_tasks(pb.ListTasksRequest(page_size=2, page_token=token, context_id="pages"))
        seen += [task.id for task in page.tasks]
        if not (token := page.next_page_token):
            break
    assert ids <= set(seen)
    assert len(seen) == len(set(seen)) == page.total_size


async def test_subscribe_to_task_and_cancel_task(client: Any) -> None:
    stream = client.send_message(message("wait"))
    task_id = (await anext(stream)).task.id
    subscription = client.subscribe(pb.SubscribeToTaskRequest(id=task_id))
    assert (await anext(subscription)).task.id == task_id
    canceled = await client.cancel_task(pb.CancelTaskRequest(id=task_id))
    assert canceled.status.state == pb.TASK_STATE_CANCELED
    for events in (subscription, stream):
        assert (await last(events)).status_update.status.state == pb.TASK_STATE_CANCELED


async def test_the_client_gets_the_errors_it_knows(client: Any) -> None:
    for attempt in (
        client.get_task(pb.GetTaskRequest(id="nowhere")),
        client.cancel_task(pb.CancelTaskRequest(id="nowhere")),
        anext(client.subscribe(pb.SubscribeToTaskRequest(id="nowhere"))),
        anext(client.send_message(message("x", task_id="nowhere"))),
    ):
        with pytest.raises(sdk_errors.TaskNotFoundError):
            await attempt
    task_id = (await last(client.send_message(message("done")))).status_update.task_id
    with pytest.raises(sdk_errors.TaskNotCancelableError):
        await client.cancel_task(pb.CancelTaskRequest(id=task_id))
    for attempt in (
        anext(client.subscribe(pb.SubscribeToTaskRequest(id=task_id))),
        anext(client.send_message(message("more", task_id=task_id))),
    ):
        with pytest.raises(sdk_errors.UnsupportedOperationError):
            await attempt
    with pytest.raises(sdk_errors.InvalidParamsError):
        await client.list_tasks(pb.ListTasksRequest(page_size=1000))


async def test_push_notification_configs_are_created_shown_listed_and_deleted(client: Any) -> None:
    task_id = (await last(client.send_message(message("done")))).status_update.task_id
    config = pb.TaskPushNotificationConfig(task_id=task_id, id="mine", url="https://example.com/hook")
    created = await client.create_task_push_notification_config(config)
    assert (created.id, created.task_id, created.url) == ("mine", task_id, "https://example.com/hook")
    named = {"task_id": task_id, "id": "mine"}
    assert await client.get_task_push_notification_config(pb.GetTaskPushNotificationConfigRequest(**named)) == created
    everything = pb.ListTaskPushNotificationConfigsRequest(task_id=task_id)
    assert list((await client.list_task_push_notification_configs(everything)).configs) == [created]
    for _ in range(2):
        await client.delete_task_push_notification_config(pb.DeleteTaskPushNotificationConfigRequest(**named))
    assert list((await client.list_task_push_notification_configs(everything)).configs) == []
    with pytest.raises(sdk_errors.TaskNotFoundError):
        await client.get_task_push_notification_config(pb.GetTaskPushNotificationConfigRequest(**named))


async def test_the_client_asks_for_an_extended_card_only_where_one_is_offered(client: Any) -> None:
    shown = await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest())
    assert shown.name == "Conformance agent"
