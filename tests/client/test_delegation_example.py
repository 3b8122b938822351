"""The delegating agent of `docs/examples/` before another agent: two started servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from app.client import A2AClient, RetryPolicy, delegate
from app.handler import rehearse
from app.protocol import Message, Part, Role, Task, TaskState
from app.protocol.idempotency import key_of, new_key, set_key
from app.protocol.requests import ListTasksRequest
from app.protocol.types import TaskArtifactUpdateEvent
from docs.examples.delegating_agent import handle
from tests.asgi import TIMEOUT
from tests.client.official_server import official_server
from tests.server import free_port, running_server
from tests.tcp_proxy import CuttingProxy, listening

URL_VARIABLE = "CHILD_AGENT_URL"


# One pair of servers for all tests, on one loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def child_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    folder = tmp_path_factory.mktemp("child")
    async with running_server(folder, agent="tests.sdk_agent", store_url="memory://") as started:
        yield started.url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parent_url(tmp_path_factory: pytest.TempPathFactory, child_url: str) -> AsyncIterator[str]:
    folder = tmp_path_factory.mktemp("parent")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(URL_VARIABLE, child_url)
        server = running_server(folder, agent="docs.examples.delegating_agent", store_url="memory://")
        async with server as started:
            yield started.url


@dataclass
class Peer:
    """A client of one server, and what that server had before the test."""

    client: A2AClient
    had: set[str]

    async def new_tasks(self) -> list[Task]:
        page = await self.client.list_tasks(ListTasksRequest(page_size=100))
        return [await self.client.get_task(task.id) for task in page.tasks if task.id not in self.had]

    async def only_task(self) -> Task:
        [task] = await self.new_tasks()
        return task


@asynccontextmanager
async def peer(url: str) -> AsyncIterator[Peer]:
    async with await A2AClient.from_card(url, retry=RetryPolicy()) as client:
        made = Peer(client, set())
        made.had = {task.id for task in await made.new_tasks()}
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def child(child_url: str) -> AsyncIterator[Peer]:
    async with peer(child_url) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def parent(parent_url: str) -> AsyncIterator[Peer]:
    async with peer(parent_url) as made:
        yield made


HOLD = -1


class HoldingProxy(CuttingProxy):
    """Holds the answer of a connection where it is told to cut it after `HOLD` bytes."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.holds = asyncio.Event()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None) -> None:
        if limit != HOLD:
            await super()._pump(reader, writer, limit)
            return
        while await reader.read(65_536):
            self.holds.set()


def message(text: str, task: Task | None = None) -> Message:
    return Message(message_id=new_key(), role=Role.USER, parts=[Part(text=text)], task_id=task.id if task else None)


def said(task: Task) -> str:
    return "".join(part.text or "" for artifact in task.artifacts for part in artifact.parts)


async def task_of(client: A2AClient, text: str, task: Task | None = None) -> Task:
    async with asyncio.timeout(TIMEOUT):
        result = await client.send_message(message(text, task))
    assert isinstance(result, Task)
    return result


async def test_the_childs_artifact_is_streamed_on(parent: Peer, child: Peer) -> None:
    async with asyncio.timeout(TIMEOUT):
        events = [event async for event in parent.client.send_streaming_message(message("one two three"))]
    pieces = [
        (item.event.artifact.parts[0].text, item.event.append)
        for item in events
        if isinstance(item.event, TaskArtifactUpdateEvent)
    ]
    assert pieces == [("one ", None), ("two ", True), ("three ", True)]
    assert events[-1].state is TaskState.COMPLETED
    delegated = await child.only_task()
    assert said(delegated) == "one two three "
    assert key_of(delegated.history[0]) is not None


async def test_cancelling_the_parent_cancels_the_child(parent: Peer, child: Peer) -> None:
    async with asyncio.timeout(TIMEOUT):
        async for event in parent.client.send_streaming_message(message("wait")):
            if isinstance(event.event, Task):
                task_id = event.event.id
                while not await child.new_tasks():  # noqa: ASYNC110 - seen from outside
                    await asyncio.sleep(0)
                await parent.client.cancel_task(task_id)
    assert event.state is TaskState.CANCELED
    assert (await parent.client.get_task(task_id)).status.state is TaskState.CANCELED
    assert (await child.only_task()).status.state is TaskState.CANCELED


async def test_a_keyed_send_to_the_parent_that_is_retried_runs_both_once(parent: Peer, child: Peer) -> None:
    keyed = message("one two")
    set_key(keyed, new_key())
    async with asyncio.timeout(TIMEOUT):
        answers = await asyncio.gather(*(parent.client.send_message(keyed) for _ in range(8)))
        answers.append(await parent.client.send_message(keyed))
    task = await parent.only_task()
    assert answers == [task] * 9
    assert said(task) == said(await child.only_task()) == "one two "


async def test_a_question_of_the_child_is_asked_and_its_answer_handed_on(parent: Peer, child: Peer) -> None:
    asked = await task_of(parent.client, "ask")
    assert asked.status.state is TaskState.INPUT_REQUIRED
    assert asked.status.message is not None
    assert asked.status.message.parts == [Part(text="What?")]
    assert (await child.only_task()).status.state is TaskState.CANCELED
    done = await task_of(parent.client, "this", asked)
    assert (done.status.state, said(done)) == (TaskState.COMPLETED, "ask this ")


async def test_a_child_that_is_not_there_fails_the_task_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, f"http://127.0.0.1:{free_port()}")
    task = await rehearse(handle, "hello")
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    assert task.status.message.parts == [Part(text="The other agent could not do it: ConnectionFailedError.")]


async def test_the_child_may_be_an_agent_on_another_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with official_server(tmp_path, "plain") as url:
        monkeypatch.setenv(URL_VARIABLE, url)
        task = await rehearse(handle, "one two")
        reply = await rehearse(handle, "reply")
    assert (task.status.state, said(task)) == (TaskState.COMPLETED, "one two ")
    assert (reply.status.state, said(reply)) == (TaskState.COMPLETED, "no task")


async def test_a_child_whose_answer_has_not_come_is_found_by_its_key_and_cancelled(child_url: str, child: Peer) -> None:
    """The answer to the send is held: the child runs, and nobody here knows its task id."""

    async def delegating(client: A2AClient) -> None:
        async with delegate(client, message("wait")) as delegation:
            await delegation.result()

    url = urlsplit(child_url)
    proxy = HoldingProxy(url.hostname or "", url.port or 0)
    proxy.cut_answers_after = [HOLD]
    async with (
        listening(proxy),
        asyncio.timeout(TIMEOUT),
        A2AClient(f"http://127.0.0.1:{proxy.port}", peer_honours_idempotency=True) as client,
    ):
        running = asyncio.ensure_future(delegating(client))
        await proxy.holds.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert (await child.only_task()).status.state is TaskState.CANCELED
