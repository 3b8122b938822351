"""Tasks as a store keeps them: save, get, insert, delete, list (DESIGN 4)."""

from datetime import timedelta
from typing import Any

import pytest

from app.protocol import Artifact, Owner, Part, TaskState
from app.protocol.errors import InvalidParamsError
from app.protocol.requests import ListTasksRequest
from app.store.base import ArtifactDelta, FencedError
from tests.store.values import T0, a_message, a_task, begin, chunk, ended, status


async def test_a_saved_task_is_found_as_it_was(store: Any) -> None:
    task = a_task(
        TaskState.WORKING,
        artifacts=[Artifact(artifact_id="a", name="n", parts=[Part(text="x"), Part(data={"k": [1, None]})])],
        metadata={"m": {"n": None}},
    )
    await store.save(task)
    assert await store.get(task.id) == task
    assert await store.get("nowhere") is None


async def test_saving_again_replaces_the_task(store: Any) -> None:
    task = a_task()
    await store.save(task)
    changed = task.model_copy(update={"artifacts": [Artifact(artifact_id="a", parts=[Part(text="y")])]})
    changed.status.state = TaskState.WORKING
    changed.history = [*task.history, a_message("second")]
    await store.save(changed)
    assert await store.get(task.id) == changed


async def test_a_final_state_cannot_be_saved_away(store: Any) -> None:
    task = a_task(TaskState.COMPLETED)
    await store.save(task)
    with pytest.raises(FencedError):
        await store.save(task.model_copy(update={"status": a_task(TaskState.WORKING).status}))
    assert await store.get(task.id) == task
    await store.save(task.model_copy(update={"metadata": {"late": True}}))
    found = await store.get(task.id)
    assert found.metadata == {"late": True}


async def test_what_is_returned_and_what_was_given_are_not_what_is_kept(store: Any) -> None:
    task = a_task(artifacts=[Artifact(artifact_id="a", parts=[Part(text="x")])])
    await store.save(task)
    kept = task.model_copy(deep=True)
    task.history.clear()
    task.artifacts[0].parts.clear()
    task.status.state = TaskState.FAILED
    assert await store.get(kept.id) == kept
    found = await store.get(kept.id)
    found.history.clear()
    found.artifacts[0].parts.append(Part(text="y"))
    found.artifacts.clear()
    found.status.state = TaskState.FAILED
    assert await store.get(kept.id) == kept


async def test_inserting_takes_a_free_id_only(store: Any) -> None:
    task = a_task()
    assert await store.insert_if_absent(task)
    assert not await store.insert_if_absent(task.model_copy(update={"context_id": "other"}))
    assert await store.get(task.id) == task
    assert await store.count() == 1


async def test_deleting_takes_the_log_along_and_never_the_key(store: Any) -> None:
    turn = await begin(store, key="k" * 16)
    await turn.say(TaskState.COMPLETED)
    await store.delete(turn.task.id)
    await store.delete(turn.task.id)
    assert await store.get(turn.task.id) is None
    assert await store.snapshot(turn.task.id) is None
    assert await store.last_event_seq(turn.task.id) == 0
    assert list(await store.read_events(turn.task.id, 0, 10)) == []
    assert await store.count() == 0
    outcome = await store.claim_idempotency_key("k" * 16, turn.task.history[0].message_id, "other")
    assert outcome.task_id == turn.task.id


async def test_an_artifact_delta_leaves_what_save_would(store: Any) -> None:
    task = a_task(TaskState.WORKING, artifacts=[Artifact(artifact_id="a", parts=[Part(text="x")])])
    await store.save(task)
    task.artifacts[0].parts.append(Part(text="y"))
    await store.save_artifact_delta(task, ArtifactDelta(Artifact(artifact_id="a", parts=[Part(text="y")]), append=True))
    assert await store.get(task.id) == task
    new = Artifact(artifact_id="b", parts=[Part(text="z")])
    task.artifacts.append(new)
    await store.save_artifact_delta(task, ArtifactDelta(new, append=False))
    assert await store.get(task.id) == task
    unsaved = a_task(artifacts=[new])
    await store.save_artifact_delta(unsaved, ArtifactDelta(new, append=False))
    assert await store.get(unsaved.id) == unsaved


class TestListing:
    async def fill(self, store: Any, count: int) -> list[str]:
        """Tasks, newest status first, two of each time."""
        ids = []
        for number in range(count):
            turn = await ended(store, time=T0 + timedelta(milliseconds=number // 2), context_id=f"c{number % 3}")
            ids.append((-(number // 2), turn.task.id))
        return [task_id for _, task_id in sorted(ids)]

    async def pages(self, store: Any, **filters: Any) -> tuple[list[str], set[int]]:
        found: list[str] = []
        totals = set()
        token: str | None = None
        while True:
            page = await store.list(ListTasksRequest(page_token=token, **filters))
            found += [task.id for task in page.tasks]
            totals.add(page.total_size)
            token = page.next_page_token
            if not token:
                return found, totals

    @pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 100])
    async def test_pages_follow_the_status_time_with_ties_by_id(self, store: Any, size: int) -> None:
        ids = await self.fill(store, 7)
        assert await self.pages(store, page_size=size) == (ids, {7})

    async def test_filters_narrow_and_the_total_follows(self, store: Any) -> None:
        ids = await self.fill(store, 8)
        waiting = await begin(store, a_task(time=T0, context_id="c0"))
        await waiting.say(TaskState.INPUT_REQUIRED)
        found, totals = await self.pages(store, context_id="c0", page_size=2)
        assert totals == {4}
        of_context = {task_id for task_id in ids if (await store.get(task_id)).context_id == "c0"}
        assert set(found) == {waiting.task.id} | of_context
        assert await self.pages(store, status=TaskState.INPUT_REQUIRED) == ([waiting.task.id], {1})
        after = T0 + timedelta(milliseconds=2)
        assert await self.pages(store, status_timestamp_after=after, page_size=3) == (ids[:4], {4})
        assert await self.pages(store, context_id="nowhere") == ([], {0})

    async def test_a_deleted_task_invalidates_no_token(self, store: Any) -> None:
        ids = await self.fill(store, 6)
        page = await store.list(ListTasksRequest(page_size=2))
        await store.delete(ids[1])
        await store.delete(ids[2])
        rest = await store.list(ListTasksRequest(page_size=9, page_token=page.next_page_token))
        assert [task.id for task in rest.tasks] == ids[3:]
        assert rest.total_size == 6

    async def test_a_token_is_of_its_owner_and_its_filters(self, store: Any) -> None:
        await self.fill(store, 4)
        token = (await store.list(ListTasksRequest(page_size=1))).next_page_token
        for view, params in (
            (store, ListTasksRequest(page_size=1, page_token=token, context_id="c1")),
            (store, ListTasksRequest(page_size=1, page_token=token, status=TaskState.COMPLETED)),
            (store.for_owner(Owner("acme")), ListTasksRequest(page_size=1, page_token=token)),
            (store, ListTasksRequest(page_token="garbage")),
            (store, ListTasksRequest(page_token="W10")),
            (store, ListTasksRequest(page_token="ä" * 10)),
        ):
            with pytest.raises(InvalidParamsError) as refusal:
                await view.list(params)
            assert refusal.value.violations[0].field == "pageToken"

    async def test_artifacts_and_history_come_as_asked(self, store: Any) -> None:
        turn = await begin(store)
        await turn.commit(chunk(turn.task, "x", append=False))
        await turn.say(TaskState.WORKING, "first")
        await turn.say(TaskState.COMPLETED, "second")
        plain = (await store.list(ListTasksRequest())).tasks[0]
        assert plain == turn.task.model_copy(update={"artifacts": []})
        whole = (await store.list(ListTasksRequest(include_artifacts=True))).tasks[0]
        assert whole == turn.task
        for length in (0, 1, 2, 9):
            trimmed = (await store.list(ListTasksRequest(history_length=length))).tasks[0]
            assert trimmed.history == (turn.task.history[-length:] if length else [])

    async def test_the_place_follows_the_newest_status(self, store: Any) -> None:
        first = await begin(store, a_task(time=T0))
        second = await begin(store, a_task(time=T0 + timedelta(seconds=1)))
        assert (await self.pages(store))[0] == [second.task.id, first.task.id]
        await first.commit(status(first.task, TaskState.WORKING, time=T0 + timedelta(seconds=2)))
        assert (await self.pages(store))[0] == [first.task.id, second.task.id]
