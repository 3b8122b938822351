"""`a2a`: run and look after the server."""

import asyncio
import gc
import os
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from types import FrameType
from typing import Annotated, Any, Final, NoReturn, TypeVar

import httpx
import rich
import typer
import uvicorn
from pydantic import ValidationError

from app.client.client import DEFAULT_TIMEOUT, A2AClient, fetch_card
from app.client.console import show_events, show_result, show_status
from app.client.errors import AmbiguousSendError, ConnectionFailedError, InvalidPeerResponseError
from app.client.retry import RetryPolicy
from app.protocol import AgentCard, Message, Part, Role, to_json
from app.protocol.errors import A2AError, UnavailableError, UnsupportedOperationError
from app.protocol.idempotency import IdempotencyKeyError, new_key, set_key
from app.protocol.lifecycle import TERMINAL
from app.settings import Settings
from app.telemetry import configure_logging

GC_THRESHOLDS: Final = (50_000, 20, 50)
DEFAULT_URL: Final = "http://127.0.0.1:8000"
DID_NOT_WORK: Final = 2
INTERRUPTED: Final = 130
"""Exit statuses beside those that tell how a task stands."""

T = TypeVar("T")

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
    from app.bootstrap import StartError  # noqa: PLC0415 - the server is for those who serve

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
    from app.bootstrap import StartError, migrate  # noqa: PLC0415 - the server is for those who serve

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
    from app.bootstrap import StartError, purge  # noqa: PLC0415 - the server is for those who serve

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
    from app.api.app import with_state  # noqa: PLC0415 - the server is for those who serve
    from app.api.http_protocol import http_protocol  # noqa: PLC0415 - the same
    from app.bootstrap import build_app  # noqa: PLC0415 - the same

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
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key. The same command again shows the same task; another text is refused."),
    ] = None,
    task: Annotated[str | None, typer.Option(help="Continue this task.")] = None,
) -> None:
    """Send a message and show what comes of it.

    If the connection breaks, the send is repeated, provided the agent honours
    idempotency keys, and a stream goes on where it was cut.

    Exit status: 0 the task completed, 1 it ended otherwise, 3 it waits for you,
    2 it could not be sent or followed, 130 interrupted.
    """
    # With a key of one's own, the same words are the same message.
    message_id = uuid.uuid4() if key is None else uuid.uuid5(uuid.NAMESPACE_OID, f"{key}\n{task or ''}\n{text}")
    message = Message(message_id=str(message_id), role=Role.USER, parts=[Part(text=text)], task_id=task)
    if key is not None:
        try:
            set_key(message, key)
        except IdempotencyKeyError as error:
            fail(str(error))

    async def talk(client: A2AClient) -> int:
        if key is None and client.honours_idempotency:
            set_key(message, new_key())
        if not stream:
            return show_result(await client.send_message(message))
        status = await show_events(client.send_streaming_message(message))
        return DID_NOT_WORK if status is None else status

    # An answer comes when the task is done, a frame of a stream much sooner.
    timeout = DEFAULT_TIMEOUT if stream else httpx.Timeout(60.0, connect=10.0, read=None)
    raise typer.Exit(with_client(url, talk, timeout))


@cli.command()
def watch(
    task: Annotated[str, typer.Argument(help="The task's id.")],
    url: Url = DEFAULT_URL,
    after: Annotated[int | None, typer.Option(help="Only what follows this event id.")] = None,
) -> None:
    """Follow a task until it ends, or show one that has ended.

    Exit status: 0 the task completed, 1 it ended otherwise,
    2 it could not be followed, 130 interrupted.
    """

    async def talk(client: A2AClient) -> int:
        try:
            status = await show_events(client.subscribe_to_task(task, None if after is None else str(after)))
        except UnsupportedOperationError:
            ended = await client.get_task(task)
            if ended.status.state not in TERMINAL:
                raise
            return show_result(ended) if after is None else show_status(ended)
        return show_status(await client.get_task(task)) if status is None else status

    raise typer.Exit(with_client(url, talk))


@cli.command()
def card(url: Annotated[str, typer.Argument(help="Where the card is, or is found under.")] = DEFAULT_URL) -> None:
    """Show the card of an agent, as JSON.

    Exit status: 0 here it is, 2 there is none to be had, 130 interrupted.
    """

    async def fetch() -> AgentCard:
        return await fetch_card(url, retry=RetryPolicy())

    rich.print_json(to_json(talking(fetch())).decode())


def with_client(url: str, talk: Callable[[A2AClient], Awaitable[int]], timeout: httpx.Timeout = DEFAULT_TIMEOUT) -> int:
    """Talk to the agent at a URL; retries what is safe to retry."""

    async def session() -> int:
        async with httpx.AsyncClient(timeout=timeout) as http:
            return await talk(await A2AClient.from_card(url, retry=RetryPolicy(), http=http))

    return talking(session())


def talking(session: Coroutine[Any, Any, T]) -> T:
    """Run a session with an agent, or end the process with one sentence that says what went wrong."""
    try:
        return asyncio.run(session)
    except (A2AError, ConnectionFailedError, AmbiguousSendError, InvalidPeerResponseError, ValueError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        sys.stderr.write("a2a: interrupted; a task that has begun goes on.\n")
        raise SystemExit(INTERRUPTED) from None


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
    raise SystemExit(DID_NOT_WORK)


def main() -> None:
    """The console script."""
    # A module of the folder the command was given in may be the agent.
    if "" not in sys.path:
        sys.path.insert(0, "")
    cli()
