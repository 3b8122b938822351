"""Task stores as somebody else writes them: the five required methods over a dictionary, and what keys need."""

from app.protocol import Task
from app.protocol.requests import ListTasksRequest, ListTasksResponse
from app.store.base import Conflict, KeyClaimed, Replay, TaskStore


class FiveMethodStore(TaskStore):
    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}

    async def save(self, task: Task) -> None:
        self.tasks[task.id] = task.model_copy(deep=True)

    async def get(self, task_id: str) -> Task | None:
        task = self.tasks.get(task_id)
        return None if task is None else task.model_copy(deep=True)

    async def list(self, params: ListTasksRequest) -> ListTasksResponse:
        tasks = [task.model_copy(deep=True) for task in self.tasks.values()]
        return ListTasksResponse(tasks=tasks, page_size=params.page_size or 50, total_size=len(tasks))

    async def insert_if_absent(self, task: Task) -> bool:
        if task.id in self.tasks:
            return False
        await self.save(task)
        return True

    async def delete(self, task_id: str) -> None:
        self.tasks.pop(task_id, None)


class KeyedStore(FiveMethodStore):
    """Keys as well, in steps of their own: a claim is seen before its task is stored."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[str, tuple[str, str]] = {}

    def supports_idempotency(self) -> bool:
        return True

    async def claim_idempotency_key(self, key: str, message_id: str, task_id: str) -> KeyClaimed | Replay | Conflict:
        held = self.keys.setdefault(key, (message_id, task_id))
        if held == (message_id, task_id):
            return KeyClaimed()
        return Replay(held[1], 0) if held[0] == message_id else Conflict()

    async def release_idempotency_key(self, key: str) -> None:
        self.keys.pop(key, None)
