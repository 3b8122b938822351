"""Tasks and events as a person reads them in a terminal, and as a script reads them in an exit status."""

import sys
from collections.abc import AsyncIterator
from typing import Final

from rich.console import Console
from rich.markup import escape

from app.client.streams import StreamEvent
from app.protocol.lifecycle import INTERRUPTED
from app.protocol.protojson import to_json
from app.protocol.types import Artifact, Message, Part, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus

COMPLETED, ENDED_OTHERWISE, WAITS = 0, 1, 3
_CONTROLS: Final = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}
"""What an agent says is text; what a terminal would obey is not let through."""
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


def _console() -> Console:
    # A line is a line, however wide: what is piped on is read by programs.
    return Console(highlight=False, emoji=False, soft_wrap=True)


def show_result(result: Task | Message) -> int:
    """Print the answer to a send; returns the exit status."""
    console = _console()
    if isinstance(result, Message):
        console.print(_parts(result.parts))
        return COMPLETED
    for artifact in result.artifacts:
        _show_artifact(console, artifact)
    return show_status(result)


def show_status(task: Task) -> int:
    """Print how a task stands; returns the exit status."""
    _console().print(f"{_status(task.status)}  [dim]task {escape(task.id)}[/dim]")
    return exit_status(task.status.state)


async def show_events(events: AsyncIterator[StreamEvent]) -> int | None:
    """Print events as they come; returns the exit status, `None` if there was no event."""
    console = _console()
    state: TaskState | None = None
    seen: str | None = None
    heard = False
    async for item in events:
        heard = True
        state = item.state or state
        event = item.event
        position = f"[dim]{item.id or '':>5}[/dim] "
        if item.resumed:
            _note(f"the connection was cut; resumed{f' after event {seen}' if seen is not None else ''}")
        seen = item.id
        if item.reset:
            _note("the connection was cut, and what was missed is not kept; here is the task as it is")
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
    return exit_status(state) if heard else None


def _note(text: str) -> None:
    """Say something about the connection, apart from what the agent says."""
    Console(file=sys.stderr, highlight=False).print(f"[yellow]{text}[/yellow]", soft_wrap=True)


def _show_artifact(console: Console, artifact: Artifact) -> None:
    console.print(f"[cyan]{escape(artifact.name or artifact.artifact_id)}[/cyan]  {_parts(artifact.parts)}")


def _status(status: TaskStatus) -> str:
    name = status.state.removeprefix("TASK_STATE_")
    colour = _COLOURS.get(status.state, "blue")
    said = f" {_parts(status.message.parts)}" if status.message is not None else ""
    return f"[{colour}]{name}[/{colour}]{said}"


def _parts(parts: list[Part]) -> str:
    shown = (part.text if part.text is not None else f" {_other(part)} " for part in parts)
    return escape("".join(shown).translate(_CONTROLS))


def _other(part: Part) -> str:
    if part.raw is not None:
        return f"<{part.filename or part.media_type or 'file'}, {len(part.raw)} bytes>"
    return f"<{part.url}>" if part.url is not None else to_json(part).decode()
