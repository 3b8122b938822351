"""An agent on the official SDK's own server: `python -m tests.client.official_server PORT plain|full`.

It serves REST under /rest and JSON-RPC at /rpc, knows nothing of idempotency keys, and gives its events no ids.
`full` adds push notification configs and an extended card; `plain` has neither.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import (
    add_a2a_routes_to_fastapi,
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from fastapi import FastAPI

from tests.asgi import TIMEOUT
from tests.server import ROOT, START_LIMIT, environment, free_port

PADDING = "x" * 3000
"""So long that a stream which is cut after 1,500 bytes of answer is cut inside it, after its first frames."""


class Words(AgentExecutor):
    """Says words; `ask` asks back, `wait` waits to be cancelled, `reply` answers with a message; `… long` pads."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        words = context.get_user_input().split()
        if words == ["reply"]:
            await event_queue.enqueue_event(
                pb.Message(message_id="r", role=pb.ROLE_AGENT, parts=[pb.Part(text="no task")])
            )
            return
        task_id, context_id = context.task_id or "", context.context_id or ""
        if context.current_task is None:
            status = pb.TaskStatus(state=pb.TASK_STATE_SUBMITTED)
            history = [context.message]
            await event_queue.enqueue_event(pb.Task(id=task_id, context_id=context_id, status=status, history=history))
        updater = TaskUpdater(event_queue, task_id, context_id)
        await updater.start_work()
        if words[-1:] == ["long"]:
            await updater.add_artifact([pb.Part(text=PADDING)], artifact_id="padding", name="padding")
        match words:
            case ["ask", *_]:
                await updater.requires_input(updater.new_agent_message([pb.Part(text="What?")]))
            case ["wait", *_]:
                await asyncio.Event().wait()
            case _:
                for number, word in enumerate(words):
                    await updater.add_artifact(
                        [pb.Part(text=word + " ")], artifact_id="answer", name="answer", append=number > 0
                    )
                await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


def build_app(url: str, *, full: bool) -> FastAPI:
    """The application as the SDK's documentation puts it together."""
    card = pb.AgentCard(
        name="Official",
        description="Says words.",
        version="1.0.0",
        capabilities=pb.AgentCapabilities(streaming=True, push_notifications=full, extended_agent_card=full),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[pb.AgentSkill(id="words", name="Words", description="Says words.", tags=["test"])],
        supported_interfaces=[
            pb.AgentInterface(protocol_binding="HTTP+JSON", protocol_version="0.3", url=f"{url}/old"),
            pb.AgentInterface(protocol_binding="HTTP+JSON", protocol_version="1.0", url=f"{url}/rest"),
            pb.AgentInterface(protocol_binding="JSONRPC", protocol_version="1.0", url=f"{url}/rpc"),
        ],
    )
    handler = DefaultRequestHandler(
        agent_executor=Words(),
        task_store=InMemoryTaskStore(),
        agent_card=card,
        push_config_store=InMemoryPushNotificationConfigStore() if full else None,
        extended_agent_card=card if full else None,
    )
    app = FastAPI()
    add_a2a_routes_to_fastapi(
        app,
        agent_card_routes=create_agent_card_routes(card),
        jsonrpc_routes=create_jsonrpc_routes(handler, "/rpc"),
        rest_routes=create_rest_routes(handler, path_prefix="/rest"),
    )
    return app


@contextmanager
def official_server(folder: Path, kind: str) -> Iterator[str]:
    """The URL of an official server of this kind."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    log = folder / f"official-{kind}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.client.official_server", str(port), kind],
            cwd=ROOT,
            env=environment(),
            stdout=output,
            stderr=output,
        )
    try:
        limit = time.monotonic() + START_LIMIT
        while not _answers(url):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.02)
        yield url
    finally:
        process.kill()
        process.wait(timeout=TIMEOUT)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/.well-known/agent-card.json").is_success
    except httpx.TransportError:
        return False


def main() -> None:
    port, kind = int(sys.argv[1]), sys.argv[2]
    app = build_app(f"http://127.0.0.1:{port}", full=kind == "full")
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
