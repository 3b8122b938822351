"""What a handler is given: the turn it answers, and the artifacts it writes."""

import uuid
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self

from app.protocol import (
    ANONYMOUS,
    TERMINAL,
    Artifact,
    Event,
    Message,
    Owner,
    Part,
    Role,
    Struct,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    fold,
)
from app.protocol.events import Clock, TextChunks, Update, update_of, utc_now
from app.protocol.lifecycle import append_part
from app.protocol.limits import TURN_LIMITS, TurnLimits, TurnMeter

Content = str | Part
"""Text, or a part made by hand."""


class TurnEndedError(RuntimeError):
    """The task is in a final state, or was taken from this turn; nothing more can be said."""


class TaskLimitError(TurnEndedError):
    """The task has said all that this server takes of one; it has been ended as FAILED, which says so."""


class TurnSink(Protocol):
    """Where the events of a turn go."""

    def offer(self, update: Update) -> None:
        """Accept an event; the order of calls is the order of the log. Raises `TurnEndedError`."""

    async def room(self) -> None:
        """Return when more may be offered: at once, unless too much waits to be stored."""

    async def durable(self) -> None:
        """Return when everything offered is stored. Raises `TurnEndedError` if it never will be."""


class _Closed:
    """Where nothing goes."""

    def offer(self, update: Update) -> None:  # noqa: ARG002 - the sink's signature
        raise TurnEndedError("the turn is over")

    async def room(self) -> None:
        raise TurnEndedError("the turn is over")

    async def durable(self) -> None:
        raise TurnEndedError("the turn is over")


_CLOSED: Final = _Closed()


class Turn:
    """One incoming message being answered.

    When the handler returns, the task is COMPLETED, unless it ended or interrupted the turn itself; when it raises, the
    task is FAILED. A CancelTask arrives as `asyncio.CancelledError`.
    """

    def __init__(
        self,
        *,
        task: Task,
        message: Message,
        sink: TurnSink,
        owner: Owner = ANONYMOUS,
        attempt: int = 1,
        resources: Any = None,
        may_reply: bool = False,
        extensions: frozenset[str] = frozenset(),
        accepted_output_modes: Sequence[str] = (),
        limits: TurnLimits = TURN_LIMITS,
        head: int = 0,
        log_bytes: int = 0,
        clock: Clock = utc_now,
    ) -> None:
        """`head` and `log_bytes` are the newest position of the task's log and the bytes of its entries so far."""
        self.task = task
        """The task as it is now, history included; for reading."""
        self.message = message
        """The message to answer."""
        self.owner = owner
        """Whose task it is: tenant and subject."""
        self.attempt = attempt
        """1, or more after a crash where the agent's `recovery` is "restart"."""
        self.resources = resources
        """What the agent's `lifespan` yielded."""
        self.extensions = extensions
        """URIs of the card's extensions that the request activated by `A2A-Extensions` (A2A 4.6); in a turn that runs
        again after a crash, those that the message itself names."""
        self.accepted_output_modes = tuple(accepted_output_modes)
        """Media types that the client would like answers in; empty for any, and in a turn that runs again after a
        crash. The agent should heed them, and may say otherwise (A2A 3.2.2)."""
        self._meter = TurnMeter(limits, head, log_bytes)
        self._sink = sink
        self._may_reply = may_reply
        self._clock = clock
        self._number = max(1, sum(message.role is Role.USER for message in task.history))
        self._artifact_ids: set[str] = set()
        self.stopping: tuple[TaskState, str | None] | None = None
        """What ends the task since the handler was told to stop, however it takes that: a state, and why."""

    @property
    def text(self) -> str:
        """The text parts of the message, joined by line feeds."""
        return "\n".join(part.text for part in self.message.parts if part.text is not None)

    @property
    def ended(self) -> bool:
        """Whether the task is in a final state."""
        return self.task.status.state in TERMINAL

    def artifact(
        self, name: str, *content: Content, description: str | None = None, metadata: Struct | None = None
    ) -> "ArtifactWriter":
        """An artifact to write to, in pieces or in one go.

        `async with turn.artifact("answer") as out: await out.write("…")` streams; `await turn.artifact("answer", "…")`
        writes it whole. The id is the name, `name-2` where the turn opens the name again, `name-t2` in the second turn.
        """
        return ArtifactWriter(self, self._artifact_id(name), name, content, description, metadata)

    async def reply(self, *content: Content) -> None:
        """Answer with a bare Message and no task (A2A 3.1.1). Durable on return; nothing more can be said.

        Only for an agent file with `may_reply = True`, in answer to the first message of a task, and before anything
        else was said.

        Raises:
            RuntimeError: it is not allowed, or too late.
            ValueError: no content, or text that no store can keep.
        """
        if not self._may_reply:
            raise RuntimeError("an agent that replies without a task declares `may_reply = True`")
        if self.task.status.state is not TaskState.SUBMITTED:
            raise RuntimeError("a reply without a task must be the first and only thing said to a new message")
        if not content:
            raise ValueError("a reply needs at least one part")
        self._emit(
            Message(
                message_id=str(uuid.uuid4()),
                context_id=self.task.context_id,
                role=Role.AGENT,
                parts=_parts(content),
            )
        )
        await self._sink.durable()

    async def working(self, text: str | None = None) -> None:
        """Report progress. Durable on return."""
        await self._say(TaskState.WORKING, text)

    async def require_input(self, text: str | None = None) -> None:
        """Ask the caller for more and return from the handler; the answer is a new turn. Durable on return."""
        await self._say(TaskState.INPUT_REQUIRED, text)

    async def require_auth(self, text: str | None = None) -> None:
        """Ask the caller for authorization. Durable on return.

        Return from the handler to wait for a message, or go on where the credential comes out of band: the next update
        moves the task back to WORKING.
        """
        await self._say(TaskState.AUTH_REQUIRED, text)

    async def complete(self, text: str | None = None) -> None:
        """End the task as COMPLETED. Durable on return."""
        await self._say(TaskState.COMPLETED, text)

    async def fail(self, text: str | None = None) -> None:
        """End the task as FAILED. Durable on return."""
        await self._say(TaskState.FAILED, text)

    async def reject(self, text: str | None = None) -> None:
        """End the task as REJECTED. Durable on return."""
        await self._say(TaskState.REJECTED, text)

    def emit_status(self, state: TaskState, text: str | None = None) -> None:
        """Offer a status without waiting for it to be durable.

        Raises:
            TurnEndedError: the task has ended, `TaskLimitError` if by this very update.
            ValueError: the text holds what no store can keep, or is too long (`LimitError`); nothing was offered.
        """
        if state not in TERMINAL and state is not TaskState.WORKING:
            self._go_working()
        task = self.task
        message = None
        if text is not None:
            message = Message(
                message_id=str(uuid.uuid4()),
                context_id=task.context_id,
                task_id=task.id,
                role=Role.AGENT,
                parts=[Part(text=text)],
            )
        status = TaskStatus(state=state, message=message, timestamp=self._clock())
        self._emit(TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=status))

    def emit_artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        """Offer a piece of an artifact.

        Raises as `emit_status` does, and `LimitError` if it is an artifact too many or its id is too long.
        """
        if not append:
            self._meter.check_new_artifact(self.task, artifact.artifact_id)
        self._go_working()
        self._emit(
            TaskArtifactUpdateEvent(
                task_id=self.task.id,
                context_id=self.task.context_id,
                artifact=artifact,
                append=append or None,
                last_chunk=last_chunk or None,
            )
        )

    def emit_text(self, chunks: TextChunks, artifact_id: str, text: str) -> None:
        """Offer a piece of text to be appended to an artifact that was begun; raises as `emit_artifact` does."""
        self._go_working()
        part = Part(text=text)
        self._offer(chunks.update(text))
        append_part(self.task, artifact_id, part)

    def close(self) -> None:
        """Take nothing more, whatever the handler has left running."""
        self._sink = _CLOSED

    async def room(self) -> None:
        """Wait while too much of this turn waits to be stored."""
        await self._sink.room()

    async def durable(self) -> None:
        """Wait until all that was said is stored."""
        await self._sink.durable()

    async def _say(self, state: TaskState, text: str | None) -> None:
        self.emit_status(state, text)
        await self._sink.durable()

    def _go_working(self) -> None:
        """A task that is told something goes to WORKING first, in the same commit."""
        if self.task.status.state is not TaskState.WORKING and not self.ended:
            self.emit_status(TaskState.WORKING)

    def _emit(self, event: Event) -> None:
        self._offer(update_of(event))
        fold(self.task, event)

    def _offer(self, update: Update) -> None:
        if self.ended:
            raise TurnEndedError(f"the task has ended: {self.task.status.state}")
        over = self._meter.over(update)
        if over is not None:
            self.emit_status(TaskState.FAILED, over)
            raise TaskLimitError(over)
        self._sink.offer(update)
        self._meter.add(len(update.data))

    def _artifact_id(self, name: str) -> str:
        base = name if self._number == 1 else f"{name}-t{self._number}"
        artifact_id, count = base, 1
        while artifact_id in self._artifact_ids:
            count += 1
            artifact_id = f"{base}-{count}"
        self._artifact_ids.add(artifact_id)
        return artifact_id


def _parts(content: tuple[Content, ...]) -> list[Part]:
    return [Part(text=piece) if isinstance(piece, str) else piece for piece in content]


class ArtifactWriter:
    """Writes one artifact: `async with` it to stream, `await` it to write what it was opened with."""

    def __init__(
        self,
        turn: Turn,
        artifact_id: str,
        name: str,
        content: tuple[Content, ...],
        description: str | None,
        metadata: Struct | None,
    ) -> None:
        self.artifact_id = artifact_id
        self._turn = turn
        self._name = name
        self._content = content
        self._description = description
        self._metadata = metadata
        self._opened = False
        self._chunks: TextChunks | None = None

    async def write(self, *content: Content, last: bool = False) -> None:
        """Add to the artifact.

        Returns once the piece is accepted, which is at once unless too much waits to be stored. `last` sets
        `lastChunk`.

        Raises:
            ValueError: text that no store can keep (NUL, a lone surrogate), nothing at all, or too much (`LimitError`).
            TurnEndedError: the task has ended, `TaskLimitError` if by this very write.
        """
        if self._opened and not last and len(content) == 1 and isinstance(content[0], str):
            if self._chunks is None:
                self._chunks = TextChunks(self._turn.task, self.artifact_id)
            self._turn.emit_text(self._chunks, self.artifact_id, content[0])
        else:
            self._emit(content, last=last)
        await self._turn.room()

    def _emit(self, content: tuple[Content, ...], *, last: bool) -> None:
        if not content:
            raise ValueError("an artifact needs at least one part")
        parts = _parts(content)
        if self._opened:
            artifact = Artifact(artifact_id=self.artifact_id, parts=parts)
        else:
            artifact = Artifact(
                artifact_id=self.artifact_id,
                name=self._name,
                description=self._description,
                parts=parts,
                metadata=self._metadata,
            )
        self._turn.emit_artifact(artifact, append=self._opened, last_chunk=last)
        self._opened = True

    def __await__(self) -> Generator[Any, Any, None]:
        return self.write(*self._content, last=True).__await__()

    async def __aenter__(self) -> Self:
        if self._content:
            await self.write(*self._content)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None and self._opened:
            await self._turn.durable()
