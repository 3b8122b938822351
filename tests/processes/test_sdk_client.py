"""The official client drives a really started server over both bindings."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors as sdk_errors

from tests.server import running_server

AGENT = "tests.sdk_agent"


@pytest.fixture(params=["HTTP+JSON", "JSONRPC"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    async with (
        running_server(tmp_path, agent=AGENT, store_url="memory://") as server,
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
