"""Running a handler without a server."""

import uuid
from collections.abc import Sequence
from typing import Any

from app.handler.agent import Handle, play
from app.handler.turn import Turn
from app.protocol import ANONYMOUS, Message, Owner, Part, Role, Task, TaskState, TaskStatus, fold
from app.protocol.events import Update, begin_turn_update, utc_now
from app.protocol.limits import TURN_LIMITS, TurnLimits


class _Rehearsal:
    """A sink that keeps nothing: the turn folds for itself."""

    def offer(self, update: Update) -> None:
        pass

    async def room(self) -> None:
        pass

    async def durable(self) -> None:
        pass


async def rehearse(
    handle: Handle,
    message: str | Message,
    *,
    task: Task | None = None,
    resources: Any = None,
    owner: Owner = ANONYMOUS,
    may_reply: bool = False,
    extensions: frozenset[str] = frozenset(),
    accepted_output_modes: Sequence[str] = (),
    limits: TurnLimits = TURN_LIMITS,
) -> Task:
    """Run one turn without a server and return the task as a caller would get it.

    `task` continues a task that an earlier rehearsal left waiting for input; `limits` count from there anew. Where the
    handler replied without a task (`may_reply`), the reply is the message of its status.
    """
    if isinstance(message, str):
        message = Message(message_id=str(uuid.uuid4()), role=Role.USER, parts=[Part(text=message)])
    if task is None:
        task = Task(
            id=str(uuid.uuid4()),
            context_id=message.context_id or str(uuid.uuid4()),
            status=TaskStatus(state=TaskState.SUBMITTED, timestamp=utc_now()),
            history=[message],
        )
    else:
        fold(task, begin_turn_update(task, message, utc_now()).event)
    turn = Turn(
        task=task,
        message=message,
        sink=_Rehearsal(),
        owner=owner,
        resources=resources,
        may_reply=may_reply,
        extensions=extensions,
        accepted_output_modes=accepted_output_modes,
        limits=limits,
        head=1,
    )
    await play(handle, turn)
    return turn.task
