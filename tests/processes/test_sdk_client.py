"""The official client drives a really started server over both bindings."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors as sdk_errors
from google.protobuf import json_format

from tests.receiver import receiving
from tests.server import running_server

AGENT = "tests.sdk_agent"


@pytest.fixture(params=["HTTP+JSON", "JSONRPC"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    async with (
        running_server(tmp_path, agent=AGENT, store_url="memory://", push="on", push_allow="127.0.0.1") as server,
        httpx.AsyncClient(timeout=10.0) as http,
    ):
        card = await A2ACardResolver(http, server.url).get_agent_card()
        config = ClientConfig(httpx_client=http, supported_protocol_bindings=[request.param])
        yield ClientFactory(config).create(card)


def message(text: str, **members: Any) -> pb.SendMessageRequest:
    parts = [pb.Part(text=text)]
    return pb.SendMessageRequest(message=pb.Message(message_id="m", role=pb.ROLE_USER, parts=parts, **members))


async def test_the_client_streams_a_task_to_its_end(client: Any) -> None:
    events = [event async for event in client.send_message(message("one two three"))]
    kinds = [event.WhichOneof("payload") for event in events]
    assert kinds == ["task", "status_update", *["artifact_update"] * 3, "status_update"]
    assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED


async def test_the_client_gets_lists_and_continues_tasks(client: Any) -> None:
    events = [event async for event in client.send_message(message("ask"))]
    task = events[0].task
    assert events[-1].status_update.status.state == pb.TASK_STATE_INPUT_REQUIRED
    async for event in client.send_message(message("go on", task_id=task.id, context_id=task.context_id)):
        last = event
    assert last.status_update.status.state == pb.TASK_STATE_COMPLETED
    shown = await client.get_task(pb.GetTaskRequest(id=task.id))
    assert shown.status.state == pb.TASK_STATE_COMPLETED
    assert [message.parts[0].text for message in shown.history] == ["ask", "What?", "go on"]
    assert "".join(part.text for part in shown.artifacts[0].parts) == "go on "
    listing = await client.list_tasks(pb.ListTasksRequest(page_size=10))
    assert [listed.id for listed in listing.tasks] == [task.id]
    assert listing.total_size == 1


async def test_the_client_subscribes_and_cancels(client: Any) -> None:
    stream = client.send_message(message("wait"))
    task_id = (await anext(stream)).task.id
    subscription = client.subscribe(pb.SubscribeToTaskRequest(id=task_id))
    assert (await anext(subscription)).task.id == task_id
    canceled = await client.cancel_task(pb.CancelTaskRequest(id=task_id))
    assert canceled.status.state == pb.TASK_STATE_CANCELED
    for events in (subscription, stream):
        assert [event.status_update.status.state async for event in events][-1] == pb.TASK_STATE_CANCELED


async def test_the_client_gets_the_errors_it_knows(client: Any) -> None:
    with pytest.raises(sdk_errors.TaskNotFoundError):
        await client.get_task(pb.GetTaskRequest(id="nowhere"))
    async for event in client.send_message(message("done")):
        last = event
    with pytest.raises(sdk_errors.TaskNotCancelableError):
        await client.cancel_task(pb.CancelTaskRequest(id=last.status_update.task_id))


async def test_the_client_configures_push_notifications_and_they_come(client: Any) -> None:
    async with receiving() as receiver:
        authentication = pb.AuthenticationInfo(scheme="Bearer", credentials="secret")
        inline = pb.TaskPushNotificationConfig(id="inline", url=receiver.url, authentication=authentication)
        request = message("ask")
        request.configuration.task_push_notification_config.CopyFrom(inline)
        events = [event async for event in client.send_message(request)]
        task = events[0].task
        config = pb.TaskPushNotificationConfig(task_id=task.id, id="mine", url=receiver.url, token="t")
        created = await client.create_task_push_notification_config(config)
        assert (created.task_id, created.id, created.url) == (task.id, "mine", receiver.url)
        one = pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id="mine")
        assert await client.get_task_push_notification_config(one) == created
        listing = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
        listed = await client.list_task_push_notification_configs(listing)
        assert [found.id for found in listed.configs] == ["inline", "mine"]
        gone = pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="mine")
        for _ in range(2):
            await client.delete_task_push_notification_config(gone)
        with pytest.raises(sdk_errors.TaskNotFoundError):
            await client.get_task_push_notification_config(one)
        async for _ in client.send_message(message("one", task_id=task.id, context_id=task.context_id)):
            pass
        told = await receiver.until(lambda request: request.state == "TASK_STATE_COMPLETED")
        assert [notification.kind for notification in told][:2] == ["task", "statusUpdate"]
        for notification in told:
            assert notification.headers["authorization"] == "Bearer secret"
            json_format.Parse(notification.body, pb.StreamResponse())
