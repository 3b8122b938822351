"""The client against the official SDK's server: another code base, no keys, no event ids."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import pytest

from app.client import A2AClient, AmbiguousSendError, RetryPolicy, StreamEvent, delegate
from app.protocol import Message, Part, Role, Task, TaskState, fold
from app.protocol.errors import (
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from app.protocol.idempotency import new_key, set_key
from app.protocol.lifecycle import copy_task
from app.protocol.push import TaskPushNotificationConfig
from app.protocol.requests import ListTasksRequest, SendMessageConfiguration
from tests.asgi import TIMEOUT
from tests.client.official_server import PADDING, official_server
from tests.tcp_proxy import CuttingProxy, cutting_proxy

FAST = RetryPolicy(attempts=5, initial=0.01, maximum=0.05)
IN_THE_PADDING = 1500
"""Bytes of answer after which a stream of `… long` is cut: some frames have passed, the artifact has not."""


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with official_server(tmp_path_factory.mktemp("official"), "full") as url:
        yield url


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with official_server(tmp_path_factory.mktemp("official"), "plain") as url:
        yield url


@pytest.fixture(params=["HTTP+JSON", "JSONRPC"])
def binding(request: pytest.FixtureRequest) -> str:
    made: str = request.param
    return made


@pytest.fixture
async def client(full: str, binding: str) -> AsyncIterator[A2AClient]:
    async with await A2AClient.from_card(full, binding=binding, retry=FAST) as made:
        yield made


@pytest.fixture
async def proxy(full: str) -> AsyncIterator[CuttingProxy]:
    url = urlsplit(full)
    async with cutting_proxy(url.hostname or "", url.port or 0) as made:
        yield made


@pytest.fixture
async def cut(proxy: CuttingProxy, client: A2AClient, binding: str) -> AsyncIterator[A2AClient]:
    """A client behind the proxy that knows of the peer what its card says."""
    path = "/rest" if binding == "HTTP+JSON" else "/rpc"
    async with A2AClient(
        f"http://127.0.0.1:{proxy.port}{path}",
        binding=binding,
        peer_honours_idempotency=client.honours_idempotency,
        retry=FAST,
    ) as made:
        yield made


def message(text: str, *, task: Task | None = None, key: str | None = None, context_id: str | None = None) -> Message:
    made = Message(
        message_id=new_key(),
        role=Role.USER,
        parts=[Part(text=text)],
        task_id=task.id if task else None,
        context_id=task.context_id if task else context_id,
    )
    if key is not None:
        set_key(made, key)
    return made


async def task_of(client: A2AClient, text: str, task: Task | None = None, *, wait: bool = True) -> Task:
    result = await client.send_message(message(text, task=task), SendMessageConfiguration(return_immediately=not wait))
    assert isinstance(result, Task)
    return result


async def collect(events: AsyncIterator[StreamEvent]) -> list[StreamEvent]:
    async with asyncio.timeout(TIMEOUT):
        return [event async for event in events]


async def until(client: A2AClient, task_id: str, state: TaskState) -> Task:
    """The task, when it is in this state and what was said before is stored."""
    async with asyncio.timeout(TIMEOUT):
        while (task := await client.get_task(task_id)).status.state is not state or not task.artifacts:  # noqa: ASYNC110
            await asyncio.sleep(0)
    return task


def folded(events: list[StreamEvent]) -> Task:
    task: Task | None = None
    for item in events:
        assert not isinstance(item.event, Message)
        if isinstance(item.event, Task):
            task = copy_task(item.event)
        else:
            assert task is not None
            task = fold(task, item.event)
    assert task is not None
    return task


def said(task: Task) -> str:
    return "".join(part.text or "" for artifact in task.artifacts for part in artifact.parts)


async def test_its_card_says_that_it_does_not_honour_keys(client: A2AClient) -> None:
    assert not client.honours_idempotency


async def test_a_task_is_sent_read_continued_and_listed(client: A2AClient) -> None:
    asked = await task_of(client, "ask")
    assert asked.status.state is TaskState.INPUT_REQUIRED
    done = await task_of(client, "one two", asked)
    assert done.id == asked.id
    assert done.status.state is TaskState.COMPLETED
    assert said(done) == "one two "
    assert await client.get_task(done.id) == done
    assert len((await client.get_task(done.id, history_length=1)).history) == 1
    wanted = ListTasksRequest(context_id=done.context_id, status=TaskState.COMPLETED, include_artifacts=True)
    page = await client.list_tasks(wanted)
    # Not equal member by member: it lists empty strings where it otherwise leaves the members out.
    assert [(task.id, said(task), len(task.history)) for task in page.tasks] == [
        (done.id, "one two ", len(done.history))
    ]
    assert page.total_size == 1


async def test_a_list_has_pages(client: A2AClient) -> None:
    context_id = new_key()
    ids = set()
    for _ in range(3):
        task = await client.send_message(message("one", context_id=context_id))
        assert isinstance(task, Task)
        ids.add(task.id)
    wanted = ListTasksRequest(context_id=context_id, page_size=2)
    first = await client.list_tasks(wanted)
    second = await client.list_tasks(wanted.model_copy(update={"page_token": first.next_page_token}))
    assert [len(first.tasks), len(second.tasks)] == [2, 1]
    assert {task.id for task in [*first.tasks, *second.tasks]} == ids


async def test_an_answer_may_be_a_message(client: A2AClient) -> None:
    reply = await client.send_message(message("reply"))
    assert isinstance(reply, Message)
    assert reply.parts == [Part(text="no task")]
    events = await collect(client.send_streaming_message(message("reply")))
    assert [event.event for event in events] == [reply]
    async with delegate(client, message("reply")) as child:
        assert await child.result() == reply


async def test_a_stream_folds_to_the_task(client: A2AClient) -> None:
    events = await collect(client.send_streaming_message(message("one\u2028two three")))
    assert not any(event.id or event.reset for event in events)
    task = folded(events)
    assert task.status.state is TaskState.COMPLETED
    assert await client.get_task(task.id) == task


async def test_a_stream_ends_where_the_agent_asks(client: A2AClient) -> None:
    events = await collect(client.send_streaming_message(message("ask")))
    assert events[-1].state is TaskState.INPUT_REQUIRED
    done = await collect(client.send_streaming_message(message("two", task=folded(events))))
    assert done[-1].state is TaskState.COMPLETED


async def test_a_subscription_shows_the_task_and_its_cancellation(client: A2AClient) -> None:
    task = await task_of(client, "wait long", wait=False)
    await until(client, task.id, TaskState.WORKING)
    events: list[StreamEvent] = []
    async with asyncio.timeout(TIMEOUT):
        async for event in client.subscribe_to_task(task.id):
            if not events:
                assert isinstance(event.event, Task)
                assert event.event.id == task.id
                assert not event.reset
                canceled = await client.cancel_task(task.id)
                assert canceled.status.state is TaskState.CANCELED
            events.append(event)
    assert events[-1].state is TaskState.CANCELED
    assert folded(events).status.state is (await client.get_task(task.id)).status.state


async def test_push_notification_configs_are_kept(client: A2AClient) -> None:
    task = await task_of(client, "ask")
    config = TaskPushNotificationConfig(task_id=task.id, id="c", url="http://127.0.0.1:9/hook", token="t")
    assert await client.create_task_push_notification_config(config) == config
    assert await client.get_task_push_notification_config(task.id, "c") == config
    assert (await client.list_task_push_notification_configs(task.id)).configs == [config]
    await client.delete_task_push_notification_config(task.id, "c")
    assert (await client.list_task_push_notification_configs(task.id)).configs == []
    with pytest.raises(TaskNotFoundError):
        await client.get_task_push_notification_config(task.id, "c")


async def test_the_extended_card_is_read(client: A2AClient) -> None:
    assert (await client.get_extended_agent_card()).name == "Official"


async def test_errors_of_tasks_are_typed(client: A2AClient) -> None:
    with pytest.raises(TaskNotFoundError):
        await client.get_task("nowhere")
    with pytest.raises(TaskNotFoundError):
        await client.cancel_task("nowhere")
    with pytest.raises(TaskNotFoundError):
        await collect(client.subscribe_to_task("nowhere"))
    done = await task_of(client, "one")
    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task(done.id)
    with pytest.raises(UnsupportedOperationError):
        await collect(client.subscribe_to_task(done.id))
    with pytest.raises(TaskNotFoundError):
        await collect(client.send_streaming_message(message("two", task=done.model_copy(update={"id": "nowhere"}))))


async def test_a_refusal_names_the_field(client: A2AClient) -> None:
    empty = message("x").model_copy(update={"message_id": ""})
    with pytest.raises(InvalidParamsError) as refusal:
        await client.send_message(empty)
    assert [violation.field for violation in refusal.value.violations] == ["message.message_id"]


async def test_what_it_does_not_offer_is_refused_by_type(plain: str, binding: str) -> None:
    async with await A2AClient.from_card(plain, binding=binding) as client:
        task = await task_of(client, "ask")
        for refused in (
            client.create_task_push_notification_config(
                TaskPushNotificationConfig(task_id=task.id, url="http://127.0.0.1:9/hook")
            ),
            client.get_task_push_notification_config(task.id, "c"),
            client.list_task_push_notification_configs(task.id),
            client.delete_task_push_notification_config(task.id, "c"),
        ):
            with pytest.raises(PushNotificationNotSupportedError):
                await refused
        with pytest.raises(UnsupportedOperationError):
            await client.get_extended_agent_card()


async def test_a_keyed_send_that_is_cut_on_the_way_is_not_repeated(
    cut: A2AClient, proxy: CuttingProxy, client: A2AClient
) -> None:
    context_id = new_key()
    proxy.cut_answers_after = [0]
    with pytest.raises(AmbiguousSendError):
        await cut.send_message(message("one", key=new_key(), context_id=context_id))
    assert proxy.connections == 1
    proxy.cut_answers_after = [0]
    with pytest.raises(AmbiguousSendError):
        await collect(cut.send_streaming_message(message("one", key=new_key(), context_id=context_id)))
    assert proxy.connections == 2
    # Which is right: it has them both, and would have run them again.
    assert (await client.list_tasks(ListTasksRequest(context_id=context_id))).total_size == 2


async def test_a_delegation_to_it_adds_no_key(client: A2AClient) -> None:
    async with delegate(client, message("one")) as child:
        task = await child.result()
    assert child.idempotency_key is None
    assert isinstance(task, Task)
    assert task.status.state is TaskState.COMPLETED
    assert await client.get_task(task.id) == task


async def test_a_read_that_is_cut_is_repeated(cut: A2AClient, proxy: CuttingProxy) -> None:
    proxy.cut_answers_after = [0, 0]
    await cut.list_tasks()
    assert proxy.connections == 3


async def test_a_stream_that_is_cut_begins_anew_from_the_task(
    cut: A2AClient, proxy: CuttingProxy, client: A2AClient
) -> None:
    proxy.cut_answers_after = [IN_THE_PADDING]
    events: list[StreamEvent] = []
    async with asyncio.timeout(TIMEOUT):
        async for event in cut.send_streaming_message(message("wait long")):
            if not events:
                await until(client, folded([event]).id, TaskState.WORKING)
            events.append(event)
            if event.reset:
                assert said(folded([event])) == PADDING
                await client.cancel_task(folded([event]).id)
    assert proxy.connections >= 2
    resets = [number for number, event in enumerate(events) if event.reset]
    assert resets[0] == 2  # after the task and WORKING
    assert events[-1].state is TaskState.CANCELED
    task = folded(events)
    assert (said(task), task.status.state) == (PADDING, TaskState.CANCELED)


async def test_a_stream_that_is_cut_while_the_task_ends_shows_the_end(
    cut: A2AClient, proxy: CuttingProxy, client: A2AClient
) -> None:
    proxy.cut_answers_after = [IN_THE_PADDING]
    events: list[StreamEvent] = []
    async with asyncio.timeout(TIMEOUT):
        async for event in cut.send_streaming_message(message("wait long")):
            events.append(event)
            if len(events) == 1:
                task_id = folded(events).id
                await until(client, task_id, TaskState.WORKING)
                await client.cancel_task(task_id)
    assert [event.reset for event in events] == [False, False, True]
    assert events[-1].event == await client.get_task(task_id)
    assert events[-1].state is TaskState.CANCELED


async def test_a_stream_that_is_cut_while_the_agent_asks_ends_with_the_question(
    cut: A2AClient, proxy: CuttingProxy, client: A2AClient
) -> None:
    """The subscription that it resumes by stays open while the task waits; the turn is over all the same."""
    proxy.cut_answers_after = [IN_THE_PADDING]
    events: list[StreamEvent] = []
    async with asyncio.timeout(TIMEOUT):
        async for event in cut.send_streaming_message(message("ask long")):
            events.append(event)
            if len(events) == 1:
                await until(client, folded(events).id, TaskState.INPUT_REQUIRED)
    assert events[-1].reset
    assert events[-1].state is TaskState.INPUT_REQUIRED
    assert said(folded(events)) == PADDING
