"""Handing a sub-task to another agent, with a key that makes the hand-over safe to retry."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final

from app.client.client import A2AClient
from app.client.errors import AmbiguousSendError, ConnectionFailedError, InvalidPeerResponseError
from app.client.streams import StreamEvent
from app.protocol.errors import A2AError
from app.protocol.idempotency import key_of, new_key, set_key
from app.protocol.lifecycle import Event, copy_task, fold
from app.protocol.requests import SendMessageConfiguration
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
        self.task_id: str | None = None
        """The child's task id, once it is known."""
        self._client = client
        self._message = message
        self._sent = False

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        """Start the child, and give its events until its turn ends; raises as `send_streaming_message` does."""
        self._sent = True
        async with aclosing(self._client.send_streaming_message(self._message)) as events:
            async for item in events:
                self._note(item.event)
                yield item

    async def result(self) -> Task | Message:
        """Start the child and wait for the end of its turn."""
        async with aclosing(self.events()) as events:
            async for _ in events:
                pass
        result = self.task or self.reply
        if result is None:
            # A peer that began with something else than the task.
            result = await self._client.get_task(self.task_id or "")
        return result

    async def cancel(self) -> None:
        """Tell the child to stop, if it has begun; that it has already ended, or cannot be reached, is no error.

        A child whose answer has not come yet is found by its key; one without a key cannot be.
        """
        with suppress(A2AError, ConnectionFailedError, AmbiguousSendError, InvalidPeerResponseError, TimeoutError):
            async with asyncio.timeout(CANCEL_LIMIT):
                if self.task_id is None and self.reply is None:
                    await self._find()
                if self.task_id is not None:
                    await self._client.cancel_task(self.task_id)

    async def _find(self) -> None:
        """Ask the peer which task the message that was sent has become."""
        if not self._sent or self.idempotency_key is None or not self._client.honours_idempotency:
            return
        at_once = SendMessageConfiguration(return_immediately=True)
        self._note(await self._client.send_message(self._message, at_once))

    def _note(self, event: Event) -> None:
        if isinstance(event, Message):
            self.reply = event
            return
        self.task_id = event.id if isinstance(event, Task) else event.task_id
        if isinstance(event, Task):
            # A copy: the event is the caller's, and what follows changes the task.
            self.task = copy_task(event)
        elif self.task is not None:
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
