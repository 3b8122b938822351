"""`a2a`: run and look after the server."""

import signal
import sys
from typing import Annotated, Any, NoReturn

import typer
import uvicorn
from pydantic import ValidationError

from app.bootstrap import StartError, build_app
from app.settings import Settings
from app.telemetry import configure_logging

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
    try:
        app = build_app(settings)
    except StartError as error:
        fail(str(error))
    # uvicorn raises the signal that ended it once more when all is closed; to be told to end is no failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(settings.shutdown_grace)),
    )


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
