"""Handing a sub-task to another agent, with a key that makes the hand-over safe to retry."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from app.client.client import A2AClient
from app.client.errors import AmbiguousSendError, ConnectionFailedError
from app.client.streams import StreamEvent
from app.protocol.errors import A2AError
from app.protocol.idempotency import key_of, new_key, set_key
from app.protocol.lifecycle import Event, fold
from app.protocol.types import Message, Task

CANCEL_LIMIT: Final = 5.0
"""Seconds that telling the child to stop may take."""


class Delegation:
    """A sub-task at another agent: its events as they come, its task as it is."""

    def __init__(self, client: A2AClient, message: Message) -> None:
        self.idempotency_key = key_of(message)
        """The key of the child's message, whoever put it there; `None` if there is none."""
        self.task: Task | None = None
        """The child's task, as its events have made it so far."""
        self.reply: Message | None = None
        """What the agent answered instead of a task."""
        self._client = client
        self._message = message

    @property
    def task_id(self) -> str | None:
        """The child's task id, once it is known."""
        return self.task.id if self.task is not None else None

    async def events(self) -> AsyncIterator[StreamEvent]:
        """Start the child, and give its events until its turn ends; raises as `send_streaming_message` does."""
        async for item in self._client.send_streaming_message(self._message):
            self._note(item.event)
            yield item

    async def result(self) -> Task | Message:
        """Start the child and wait for the end of its turn."""
        async for _ in self.events():
            pass
        result = self.task or self.reply
        assert result is not None  # noqa: S101 - a stream ends after one of them
        return result

    async def cancel(self) -> None:
        """Tell the child to stop, if it has begun; that it has already ended, or cannot be reached, is no error."""
        if self.task_id is None:
            return
        with suppress(A2AError, ConnectionFailedError, AmbiguousSendError, TimeoutError):
            async with asyncio.timeout(CANCEL_LIMIT):
                await self._client.cancel_task(self.task_id)

    def _note(self, event: Event) -> None:
        if isinstance(event, Message):
            self.reply = event
        elif isinstance(event, Task) or self.task is None:
            self.task = event if isinstance(event, Task) else None
        else:
            self.task = fold(self.task, event)


@asynccontextmanager
async def delegate(client: A2AClient, message: Message) -> AsyncIterator[Delegation]:
    """Hand a message to another agent; `async with` gives the child, `await child.result()` its end.

    A message without an idempotency key gets a fresh one if the agent is known to honour keys, and none otherwise; a
    key that it has is kept. Leaving the block by cancellation cancels the child.
    """
    if client.honours_idempotency and key_of(message) is None:
        message = message.model_copy(deep=True)
        set_key(message, new_key())
    child = Delegation(client, message)
    try:
        yield child
    except asyncio.CancelledError:
        await child.cancel()
        raise
