"""Faults at a chosen moment: a request dropped at one of its awaits, a database that fails at one of its statements."""

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, TypeVar

from app.protocol.errors import UnavailableError
from app.store.scripts import Script

T = TypeVar("T")


class _Watched:
    """Awaits some work, and cancels the task it runs in when the work has suspended so many times."""

    def __init__(self, work: Coroutine[Any, Any, None], drops: "Drops") -> None:
        self._work = work
        self._drops = drops

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._work.__await__()
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                waits_for = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration:
                return
            self._drops.suspended()
            answer, error = None, None
            try:
                answer = yield waits_for
            except BaseException as raised:
                error = raised


class Drops:
    """Put around requests; drops one that is on its way at its next suspension but so many."""

    def __init__(self) -> None:
        self._left: int | None = None

    def around(self, request: Coroutine[Any, Any, None]) -> Awaitable[None]:
        return _Watched(request, self)

    def drop_at(self, suspension: int) -> None:
        """Drop the next request at this suspension, 1 being the first."""
        self._left = suspension

    def disarm(self) -> bool:
        """Drop nothing any more; says whether the request came to its end before."""
        finished, self._left = self._left is not None, None
        return finished

    def suspended(self) -> None:
        if self._left is None:
            return
        self._left -= 1
        if self._left == 0:
            self._left = None
            task = asyncio.current_task()
            assert task is not None
            task.cancel("dropped")


class Fault:
    """Fails one transaction of a database before one of its statements, or before its commit."""

    def __init__(self) -> None:
        self._before: int | None = None
        self.struck = False

    def strike(self, before: int) -> None:
        """Fail the next transaction before this statement, 1 being the first; the one after the last is the commit."""
        self._before, self.struck = before, False

    def script(self, script: Script[T]) -> Script[T]:
        before, self._before = self._before, None
        answer: Any = None
        number = 0
        while True:
            number += 1
            done, step = False, None
            try:
                step = script.send(answer)
            except StopIteration as end:
                done, answer = True, end.value
            if number == before:
                self.struck = True
                raise UnavailableError("The database failed, as it was told to.")
            if done:
                result: T = answer
                return result
            assert step is not None
            answer = yield step
