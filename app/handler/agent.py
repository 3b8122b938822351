"""What an agent file declares, and how its handler is run."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal

from app.handler.turn import TaskLimitError, Turn, TurnEndedError
from app.protocol import INTERRUPTED, AgentCard, TaskState
from app.telemetry import get_logger

log = get_logger(__name__)

Recovery = Literal["fail", "restart"]
"""What becomes of a turn whose process died: FAILED, or run again."""
Handle = Callable[[Turn], Awaitable[None]]
Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


@dataclass(frozen=True)
class Agent:
    """What an agent file declares."""

    card: AgentCard
    handle: Handle
    recovery: Recovery = "fail"
    may_reply: bool = False
    """Whether the handler may answer with a bare Message (`Turn.reply`)."""
    turn_timeout: float | None = None
    """Seconds that a turn may take; `None` for what the server's settings say."""
    lifespan: Lifespan | None = None


FAILURE_TEXT = "The agent failed to handle this message."


async def play(handle: Handle, turn: Turn) -> None:
    """Run the handler and give the turn the end it earned, offered but not yet durable.

    Cancellation passes through and ends nothing.
    """
    try:
        await handle(turn)
    except TaskLimitError as error:
        log.warning("a task was ended at a limit", task_id=turn.task.id, reason=str(error))
    except TurnEndedError:
        if not turn.ended:
            raise
        log.warning("the handler went on after the end of its task", task_id=turn.task.id)
    except Exception:
        log.exception("the agent's handler raised", task_id=turn.task.id)
        if not turn.ended and turn.stopping is None:
            turn.emit_status(TaskState.FAILED, FAILURE_TEXT)
    if turn.ended:
        return
    if turn.stopping is not None:
        turn.emit_status(*turn.stopping)
    elif turn.task.status.state not in INTERRUPTED:
        turn.emit_status(TaskState.COMPLETED)
