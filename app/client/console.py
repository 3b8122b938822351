"""Tasks and events as a person reads them in a terminal, and as a script reads them in an exit status."""

from collections.abc import AsyncIterator
from typing import Final

from rich.console import Console
from rich.markup import escape

from app.client.streams import StreamEvent
from app.protocol.lifecycle import INTERRUPTED
from app.protocol.protojson import to_json
from app.protocol.types import Artifact, Message, Part, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus

COMPLETED, ENDED_OTHERWISE, WAITS = 0, 1, 3
_COLOURS: Final = {
    TaskState.COMPLETED: "green",
    TaskState.FAILED: "red",
    TaskState.REJECTED: "red",
    TaskState.CANCELED: "yellow",
    TaskState.INPUT_REQUIRED: "magenta",
    TaskState.AUTH_REQUIRED: "magenta",
}


def exit_status(state: TaskState | None) -> int:
    """0 completed, 3 waits for its caller, 1 anything else."""
    if state is TaskState.COMPLETED:
        return COMPLETED
    return WAITS if state in INTERRUPTED else ENDED_OTHERWISE


def show_result(result: Task | Message, console: Console | None = None) -> int:
    """Print the answer to a send; returns the exit status."""
    console = console or Console(highlight=False)
    if isinstance(result, Message):
        console.print(_parts(result.parts))
        return COMPLETED
    for artifact in result.artifacts:
        _show_artifact(console, artifact)
    console.print(f"{_status(result.status)}  [dim]task {escape(result.id)}[/dim]")
    return exit_status(result.status.state)


async def show_events(events: AsyncIterator[StreamEvent], console: Console | None = None) -> int:
    """Print events as they come; returns the exit status."""
    console = console or Console(highlight=False)
    state: TaskState | None = None
    async for item in events:
        state = item.state or state
        event = item.event
        position = f"[dim]{item.id or '':>5}[/dim] "
        if item.reset:
            console.print(f"{position}[yellow]the stream was cut and begins anew from the task as it is[/yellow]")
        if isinstance(event, Message):
            console.print(position + _parts(event.parts))
            return COMPLETED
        if isinstance(event, Task):
            console.print(f"{position}{_status(event.status)}  [dim]task {escape(event.id)}[/dim]")
            for artifact in event.artifacts:
                _show_artifact(console, artifact)
        elif isinstance(event, TaskArtifactUpdateEvent):
            sign = "+" if event.append else "="
            name = escape(event.artifact.artifact_id)
            console.print(f"{position}[cyan]{name}[/cyan] {sign} {_parts(event.artifact.parts)}")
        else:
            console.print(position + _status(event.status))
    return exit_status(state)


def _show_artifact(console: Console, artifact: Artifact) -> None:
    console.print(f"[cyan]{escape(artifact.name or artifact.artifact_id)}[/cyan]  {_parts(artifact.parts)}")


def _status(status: TaskStatus) -> str:
    name = status.state.removeprefix("TASK_STATE_")
    colour = _COLOURS.get(status.state, "blue")
    said = f" {_parts(status.message.parts)}" if status.message is not None else ""
    return f"[{colour}]{name}[/{colour}]{said}"


def _parts(parts: list[Part]) -> str:
    return "".join(escape(part.text) if part.text is not None else f" {escape(_other(part))} " for part in parts)


def _other(part: Part) -> str:
    if part.raw is not None:
        return f"<{part.filename or part.media_type or 'file'}, {len(part.raw)} bytes>"
    return f"<{part.url}>" if part.url is not None else to_json(part).decode()
