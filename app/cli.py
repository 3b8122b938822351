"""`a2a`: run and look after the server."""

import asyncio
import gc
import os
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Annotated, Any, Final, NoReturn

import rich
import typer
import uvicorn
from pydantic import ValidationError

from app.api.app import with_state
from app.api.http_protocol import http_protocol
from app.bootstrap import StartError, build_app, migrate, purge
from app.client.client import A2AClient, fetch_card
from app.client.console import show_events, show_result
from app.client.errors import AmbiguousSendError, ConnectionFailedError, InvalidPeerResponseError
from app.client.retry import RetryPolicy
from app.protocol import AgentCard, Message, Part, Role, to_json
from app.protocol.errors import A2AError, UnavailableError
from app.protocol.idempotency import IdempotencyKeyError, set_key
from app.settings import Settings
from app.telemetry import configure_logging

GC_THRESHOLDS: Final = (50_000, 20, 50)
DEFAULT_URL: Final = "http://127.0.0.1:8000"

cli = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False)


@cli.callback()
def root() -> None:
    """The A2A agent server. Settings are read from A2A_… variables and from .env."""


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; A2A_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on, 0 for a free one; A2A_PORT.")] = None,
) -> None:
    """Serve the agent until SIGTERM or SIGINT."""
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = read_settings(**given)
    configure_logging(settings.log_level, settings.log_format)
    # What was imported lives as long as the process, and events are many small objects without cycles: at the usual
    # thresholds the collector takes two fifths of a stream's time to find nothing.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    # uvicorn raises the signal that ended it once more when all is closed; to be told to end is no failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        serve_until_told(settings)
    except StartError as error:
        fail(str(error))


@cli.command("migrate")
def migrate_command() -> None:
    """Bring the database's schema up to date."""
    settings = read_settings()
    configure_logging(settings.log_level, settings.log_format)
    try:
        asyncio.run(migrate(settings))
    except (StartError, UnavailableError) as error:
        fail(str(error))
    rich.print("The schema is up to date.")


@cli.command("purge")
def purge_command(
    older_than: Annotated[
        str | None, typer.Option(help="Age of ended tasks to remove, such as 30d; A2A_RETENTION if absent.")
    ] = None,
) -> None:
    """Remove tasks that ended long ago, and keys whose task is gone, once."""
    given = {"retention": older_than} if older_than is not None else {}
    settings = read_settings(**given)
    configure_logging(settings.log_level, settings.log_format)
    try:
        purged = asyncio.run(purge(settings))
    except (StartError, UnavailableError) as error:
        fail(str(error))
    rich.print(f"Removed {purged.tasks} tasks and {purged.keys} idempotency keys.")


class DrainingServer(uvicorn.Server):
    """Goes on serving while the process drains; a second signal ends the process at once."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], object]) -> None:
        super().__init__(config)
        self._drain = drain
        self._told = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
        """Called by a signal, on the main thread, between two steps of whatever runs there."""
        if self._told:
            # All that was acknowledged is stored, and what runs is taken over when its lease ends.
            os._exit(128 + sig)
        self._told = True
        asyncio.get_running_loop().call_soon_threadsafe(self._drain)


def serve_until_told(settings: Settings) -> None:
    """Run the application's lifespan, and the server within it.

    The lifespan is run here and not by uvicorn, so that what stops a start is said in one sentence.

    Raises:
        StartError: the server cannot start.
    """
    app = build_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=http_protocol(settings.max_header_bytes),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # Nothing here asks who the client is; headers that say so are anybody's to write.
        proxy_headers=False,
        # By then turns and streams have been seen to, and only connections are left.
        timeout_graceful_shutdown=1,
    )

    async def run() -> None:
        async with app.router.lifespan_context(app) as state, asyncio.TaskGroup() as group:
            assert state is not None  # noqa: S101 - the application's own lifespan
            config.app = with_state(app, state)

            async def stop() -> None:
                try:
                    await state["services"].drain()
                finally:
                    server.should_exit = True

            server = DrainingServer(config, lambda: group.create_task(stop()))
            await server.serve()

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run())


Url = Annotated[str, typer.Option(help="The agent: where its card is, or is found under.")]


@cli.command()
def send(
    text: Annotated[str, typer.Argument(help="What to say.")],
    url: Url = DEFAULT_URL,
    stream: Annotated[bool, typer.Option("--stream", help="Show events as they come.")] = False,
    key: Annotated[str | None, typer.Option(help="Idempotency key; a repeated send with it runs once.")] = None,
    task: Annotated[str | None, typer.Option(help="Continue this task.")] = None,
) -> None:
    """Send a message. Exit status: 0 completed, 1 ended otherwise, 3 waits for you, 2 did not work."""
    message = Message(message_id=str(uuid.uuid4()), role=Role.USER, parts=[Part(text=text)], task_id=task)
    if key is not None:
        try:
            set_key(message, key)
        except IdempotencyKeyError as error:
            fail(str(error))

    async def talk(client: A2AClient) -> int:
        if stream:
            return await show_events(client.send_streaming_message(message))
        return show_result(await client.send_message(message))

    raise typer.Exit(with_client(url, talk))


@cli.command()
def watch(
    task: Annotated[str, typer.Argument(help="The task's id.")],
    url: Url = DEFAULT_URL,
    after: Annotated[int | None, typer.Option(help="Only what follows this event id.")] = None,
) -> None:
    """Follow a task until it ends. Exit status as of `send`."""

    async def talk(client: A2AClient) -> int:
        return await show_events(client.subscribe_to_task(task, None if after is None else str(after)))

    raise typer.Exit(with_client(url, talk))


@cli.command()
def card(url: Annotated[str, typer.Argument(help="Where the card is, or is found under.")] = DEFAULT_URL) -> None:
    """Show the card of an agent."""

    async def fetch() -> AgentCard:
        return await fetch_card(url)

    try:
        rich.print_json(to_json(asyncio.run(fetch())).decode())
    except (ConnectionFailedError, InvalidPeerResponseError) as error:
        fail(str(error))


def with_client(url: str, talk: Callable[[A2AClient], Awaitable[int]]) -> int:
    """Talk to the agent at a URL; retries what is safe to retry."""

    async def session() -> int:
        async with await A2AClient.from_card(url, retry=RetryPolicy()) as client:
            return await talk(client)

    try:
        return asyncio.run(session())
    except (A2AError, ConnectionFailedError, AmbiguousSendError, InvalidPeerResponseError) as error:
        fail(str(error))


def read_settings(**given: Any) -> Settings:
    """The settings, or the end of the process with one sentence for each that is wrong."""
    try:
        return Settings(**given)
    except ValidationError as error:
        faults = (
            f"A2A_{str(item['loc'][0]).upper()}: {item['msg'].removeprefix('Value error, ')}" for item in error.errors()
        )
        fail("; ".join(faults))


def fail(sentence: str) -> NoReturn:
    """Say why on standard error and exit with status 2."""
    sys.stderr.write(f"a2a: {sentence}\n")
    raise SystemExit(2)


def main() -> None:
    """The console script."""
    # A module of the folder the command was given in may be the agent.
    if "" not in sys.path:
        sys.path.insert(0, "")
    cli()
