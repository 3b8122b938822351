"""The official a2a-sdk server on FastAPI with an agent equal to `agents.py`: `uvicorn benchmarks.sdk_server:app`.

It sends the same events as ours: the task, WORKING, the artifact in its pieces, COMPLETED.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import add_a2a_routes_to_fastapi, create_agent_card_routes, create_rest_routes
from a2a.server.tasks import DatabaseTaskStore, InMemoryTaskStore, TaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, Task, TaskState, TaskStatus
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.script import ARTIFACT, chunk, chunks_asked, echo
from benchmarks.servers import SDK_STORE_URL

DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}


class BenchmarkExecutor(AgentExecutor):
    """Stream N chunks when told "chunks N", else echo."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Answer one message."""
        task_id, context_id, message = context.task_id, context.context_id, context.message
        if task_id is None or context_id is None or message is None:
            raise ValueError("a message, its task and its context are expected")
        # The SDK wants the task itself before any update of it.
        submitted = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
        await event_queue.enqueue_event(Task(id=task_id, context_id=context_id, status=submitted, history=[message]))
        updater = TaskUpdater(event_queue, task_id, context_id)
        await updater.start_work()
        text = context.get_user_input()
        count = chunks_asked(text)
        if count is None:
            parts = [Part(text=echo(text))]
            await updater.add_artifact(parts, artifact_id=ARTIFACT, name=ARTIFACT, last_chunk=True)
        else:
            for number in range(count):
                parts = [Part(text=chunk(number))]
                name = None if number else ARTIFACT
                await updater.add_artifact(parts, artifact_id=ARTIFACT, name=name, append=number > 0)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """No benchmark cancels."""
        raise NotImplementedError


card = AgentCard(
    name="Benchmark agent",
    description="Echoes a text, or streams as many chunks as it is told.",
    version="1.0.0",
    capabilities=AgentCapabilities(streaming=True),
    supported_interfaces=[AgentInterface(url="http://127.0.0.1", protocol_binding="HTTP+JSON", protocol_version="1.0")],
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="echo", name="Echo", description="Echoes or streams.", tags=["benchmark"])],
)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the store and add the routes."""
    scheme, _, rest = os.environ[SDK_STORE_URL].partition("://")
    engine = None
    store: TaskStore = InMemoryTaskStore()
    if scheme != "memory":
        # With SQLite's own 5 s, "database is locked" breaks streams where sixteen run at once.
        patience = {"timeout": 120} if scheme == "sqlite" else {}
        engine = create_async_engine(f"{DRIVERS[scheme]}://{rest}", connect_args=patience)
        database = DatabaseTaskStore(engine)
        await database.initialize()
        store = database
    handler = DefaultRequestHandler(agent_executor=BenchmarkExecutor(), task_store=store, agent_card=card)
    add_a2a_routes_to_fastapi(
        app, agent_card_routes=create_agent_card_routes(card), rest_routes=create_rest_routes(handler)
    )
    yield
    if engine is not None:
        await engine.dispose()


app = FastAPI(lifespan=lifespan)
