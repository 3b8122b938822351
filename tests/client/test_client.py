"""The client against our server: every operation, retries, cuts."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from app.client import A2AClient, AmbiguousSendError, ConnectionFailedError, RetryPolicy, StreamEvent, delegate
from app.client.errors import InvalidPeerResponseError
from app.protocol import Message, Part, Role, Task, TaskState, fold
from app.protocol.errors import (
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from app.protocol.idempotency import key_of, new_key, set_key
from app.protocol.push import TaskPushNotificationConfig
from app.protocol.requests import ListTasksRequest, SendMessageConfiguration
from tests.asgi import TIMEOUT
from tests.server import Server, free_port, running_server
from tests.tcp_proxy import CuttingProxy, cutting_proxy

FAST = RetryPolicy(attempts=5, initial=0.01, maximum=0.05)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running_server(tmp_path, agent="tests.sdk_agent", store_url="memory://") as started:
        yield started


@pytest.fixture
async def client(server: Server) -> AsyncIterator[A2AClient]:
    async with await A2AClient.from_card(server.url) as made:
        yield made


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[CuttingProxy]:
    url = urlsplit(server.url)
    async with cutting_proxy(url.hostname or "", url.port or 0) as made:
        yield made


def message(text: str, *, key: str | None = None, task_id: str | None = None) -> Message:
    made = Message(message_id=new_key(), role=Role.USER, parts=[Part(text=text)], task_id=task_id)
    if key is not None:
        set_key(made, key)
    return made


async def task_of(client: A2AClient, text: str, **members: str) -> Task:
    result = await client.send_message(message(text, **members))
    assert isinstance(result, Task)
    return result


async def test_every_operation_of_a_task(client: A2AClient) -> None:
    assert client.honours_idempotency
    task = await task_of(client, "ask")
    assert task.status.state is TaskState.INPUT_REQUIRED
    done = await task_of(client, "one two", task_id=task.id)
    assert done.status.state is TaskState.COMPLETED
    assert await client.get_task(task.id) == done
    assert (await client.get_task(task.id, history_length=0)).history == []
    page = await client.list_tasks(ListTasksRequest(page_size=1, status=TaskState.COMPLETED, include_artifacts=True))
    assert page.tasks == [done]
    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task(task.id)
    waiting = await client.send_message(message("wait"), SendMessageConfiguration(return_immediately=True))
    assert isinstance(waiting, Task)
    assert (await client.cancel_task(waiting.id)).status.state is TaskState.CANCELED


async def test_errors_are_typed(client: A2AClient) -> None:
    with pytest.raises(TaskNotFoundError):
        await client.get_task("nowhere")
    with pytest.raises(TaskNotFoundError):
        async for _ in client.subscribe_to_task("nowhere"):
            pass
    with pytest.raises(UnsupportedOperationError):
        await client.get_extended_agent_card()
    for refused in (
        client.create_task_push_notification_config(TaskPushNotificationConfig(task_id="t", url="https://x.example")),
        client.get_task_push_notification_config("t", "c"),
        client.list_task_push_notification_configs("t"),
        client.delete_task_push_notification_config("t", "c"),
    ):
        with pytest.raises(PushNotificationNotSupportedError):
            await refused
    with pytest.raises(InvalidParamsError) as refusal:
        await client.list_tasks(ListTasksRequest(page_token="garbage"))
    assert refusal.value.violations[0].field == "pageToken"


async def test_nobody_there_is_a_failed_connection() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ConnectionFailedError):
        await A2AClient.from_card(url)
    async with A2AClient(url) as lonely:
        with pytest.raises(ConnectionFailedError):
            await lonely.send_message(message("hello"))


async def test_a_page_that_is_no_card_is_said_to_be_none(server: Server) -> None:
    with pytest.raises(InvalidPeerResponseError):
        await A2AClient.from_card(f"{server.url}/openapi.json")


async def collect(events: AsyncIterator[StreamEvent]) -> list[StreamEvent]:
    async with asyncio.timeout(TIMEOUT):
        return [event async for event in events]


def folded(events: list[StreamEvent]) -> Task:
    task: Task | None = None
    for item in events:
        assert not isinstance(item.event, Message)
        if isinstance(item.event, Task):
            task = item.event.model_copy(deep=True)
        else:
            assert task is not None
            task = fold(task, item.event)
    assert task is not None
    return task


@pytest.mark.parametrize("cuts", [[700], [900, 300], [1500, 0, 400]])
async def test_a_stream_that_is_cut_goes_on_without_a_hole(proxy: CuttingProxy, cuts: list[int]) -> None:
    async with A2AClient(f"http://127.0.0.1:{proxy.port}", retry=FAST) as client:
        proxy.cut_answers_after = list(cuts)
        events = await collect(client.send_streaming_message(message("a b c d e f g h i j")))
        assert proxy.connections == len(cuts) + 1
        assert [event.id for event in events] == [str(number) for number in range(1, 14)]
        assert not any(event.reset for event in events)
        # A connection that showed nothing is not seen to have been cut.
        assert 1 <= sum(event.resumed for event in events) <= len(cuts)
        assert folded(events) == await client.get_task(folded(events).id)


async def test_a_send_cut_on_the_way_is_not_repeated_unless_it_is_keyed(proxy: CuttingProxy, server: Server) -> None:
    url = f"http://127.0.0.1:{proxy.port}"
    async with A2AClient(url, retry=FAST, peer_honours_idempotency=True) as client:
        proxy.cut_answers_after = [0]
        with pytest.raises(AmbiguousSendError):
            await client.send_message(message("unkeyed"))
    async with A2AClient(url, retry=FAST) as client:
        proxy.cut_answers_after = [0]
        with pytest.raises(AmbiguousSendError):
            await client.send_message(message("keyed, but who knows the peer", key=new_key()))
    async with A2AClient(url, peer_honours_idempotency=True) as client:
        proxy.cut_answers_after = [0]
        with pytest.raises(AmbiguousSendError):
            await client.send_message(message("keyed, but no policy", key=new_key()))
    assert proxy.connections == 3


async def test_a_keyed_send_cut_on_the_way_is_repeated_and_runs_once(proxy: CuttingProxy) -> None:
    async with A2AClient(f"http://127.0.0.1:{proxy.port}", retry=FAST, peer_honours_idempotency=True) as client:
        proxy.cut_answers_after = [0, 0]
        task = await client.send_message(message("hello", key=new_key()))
        assert isinstance(task, Task)
        assert proxy.connections == 3
        assert (await client.list_tasks()).total_size == 1
        proxy.cut_answers_after = [0, 0]
        events = await collect(client.send_streaming_message(message("hello", key=new_key())))
        assert folded(events).status.state is TaskState.COMPLETED
        assert (await client.list_tasks()).total_size == 2


async def test_a_read_is_repeated(proxy: CuttingProxy) -> None:
    async with A2AClient(f"http://127.0.0.1:{proxy.port}", retry=FAST) as client:
        proxy.cut_answers_after = [0, 0]
        assert (await client.list_tasks()).total_size == 0
        assert proxy.connections == 3


async def test_a_subscription_resumes_from_a_position(client: A2AClient) -> None:
    task = await task_of(client, "a b c")
    events = await collect(client.subscribe_to_task(task.id, last_event_id="3"))
    assert [event.id for event in events] == ["4", "5", "6"]


async def test_delegating_adds_a_key_only_where_the_peer_honours_it(client: A2AClient, server: Server) -> None:
    async with delegate(client, message("one two")) as child:
        task = await child.result()
    assert isinstance(task, Task)
    assert child.idempotency_key is not None
    assert child.task_id == task.id
    assert key_of(task.history[0]) == child.idempotency_key
    own = new_key()
    async with delegate(client, message("one", key=own)) as child:
        await child.result()
    assert child.idempotency_key == own
    async with A2AClient(server.url) as unknown, delegate(unknown, message("one")) as child:
        await child.result()
    assert child.idempotency_key is None


async def test_leaving_a_delegation_by_cancellation_cancels_the_child(client: A2AClient) -> None:
    begun = asyncio.Event()
    ids: list[str] = []

    async def parent() -> None:
        async with delegate(client, message("wait")) as child:
            async for _ in child.events():
                ids.append(child.task_id or "")
                begun.set()

    running = asyncio.ensure_future(parent())
    async with asyncio.timeout(TIMEOUT):
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert (await client.get_task(ids[0])).status.state is TaskState.CANCELED


async def test_the_callers_http_client_is_used_and_left_open(server: Server) -> None:
    async with httpx.AsyncClient(headers={"X-Trace": "1"}) as http:
        async with A2AClient(server.url, http=http) as client:
            await client.list_tasks()
        assert not http.is_closed


@pytest.mark.parametrize("binding", ["HTTP+JSON", "JSONRPC"])
async def test_numbers_arrive_and_come_back_as_they_are(server: Server, binding: str) -> None:
    sent = message("x")
    sent.parts = [Part(text="x", metadata={"n": [2**64, -(10**300), 0.1, None]})]
    async with await A2AClient.from_card(server.url, binding=binding) as client:
        task = await client.send_message(sent)
        assert isinstance(task, Task)
        assert task.history[0].parts == sent.parts
        sent.metadata = {"n": float("nan")}
        with pytest.raises(ValueError, match="NaN"):
            await client.send_message(sent)


async def test_the_card_is_fetched_again_under_a_policy(proxy: CuttingProxy) -> None:
    url = f"http://127.0.0.1:{proxy.port}"
    proxy.cut_answers_after = [0, 20]
    async with await A2AClient.from_card(url, retry=FAST) as client:
        assert client.honours_idempotency
    assert proxy.connections == 3
    proxy.cut_answers_after = [0]
    with pytest.raises(ConnectionFailedError):
        await A2AClient.from_card(url)
    assert proxy.connections == 4
