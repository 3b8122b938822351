"""A task store as somebody else writes it: the five required methods over a dictionary, nothing more."""

from app.protocol import Task
from app.protocol.requests import ListTasksRequest, ListTasksResponse
from app.store.base import TaskStore


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
