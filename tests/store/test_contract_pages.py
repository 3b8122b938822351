"""Pages whatever the filters, and tokens whoever wrote them (A2A 3.1.4)."""

import base64
import itertools
from datetime import timedelta
from typing import Any

import orjson
import pytest

from app.protocol import Task, TaskState, TaskStatus
from app.protocol.errors import InvalidParamsError
from app.protocol.requests import ListTasksRequest
from tests.store.values import T0, a_message, a_task, begin

STATES = (TaskState.SUBMITTED, TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.COMPLETED)


async def walk(store: Any, **filters: Any) -> tuple[list[str], set[int]]:
    found: list[str] = []
    totals: set[int] = set()
    token: str | None = None
    while True:
        page = await store.list(ListTasksRequest(page_token=token, **filters))
        assert len(page.tasks) <= page.page_size
        found += [task.id for task in page.tasks]
        totals.add(page.total_size)
        token = page.next_page_token
        if not token:
            return found, totals


def order(task: Task) -> tuple[float, str]:
    return (-task.status.timestamp.timestamp() if task.status.timestamp else 0.0, task.id)


async def test_every_combination_of_filters_lists_what_a_scan_would(store: Any) -> None:
    tasks = [
        a_task(state, T0 + timedelta(milliseconds=number % 5), context_id=context, id=f"t-{number:02}")
        for number, (state, context) in enumerate(itertools.product(STATES, ("c0", "c1", None)))
    ]
    # Many of one state: neither the context nor the state alone is always the narrower.
    tasks += [a_task(TaskState.WORKING, T0, context_id="c1", id=f"w-{number}") for number in range(9)]
    for task in tasks:
        await store.save(task)
    tasks.sort(key=order)
    choices = itertools.product(
        (None, "c0", "nowhere"), (None, TaskState.WORKING, TaskState.FAILED), (None, T0 + timedelta(milliseconds=3))
    )
    for context, state, after in choices:
        expected = [
            task.id
            for task in tasks
            if context in (None, task.context_id)
            and state in (None, task.status.state)
            and (after is None or (task.status.timestamp is not None and task.status.timestamp >= after))
        ]
        for size in (1, 3, 100):
            filters = {"context_id": context, "status": state, "status_timestamp_after": after, "page_size": size}
            assert await walk(store, **filters) == (expected, {len(expected)}), filters


async def test_a_listing_follows_every_change_of_what_it_filters_by(store: Any) -> None:
    task = a_task(context_id="c0")
    await store.save(task)
    moved = task.model_copy(update={"context_id": "c1", "history": [a_message()]})
    await store.save(moved)
    assert (await walk(store, context_id="c0"))[0] == []
    assert (await walk(store, context_id="c1"))[0] == [task.id]
    # The state changes and the time does not.
    await store.save(moved.model_copy(update={"status": TaskStatus(state=TaskState.WORKING, timestamp=T0)}))
    assert (await walk(store, status=TaskState.SUBMITTED))[0] == []
    assert (await walk(store, status=TaskState.WORKING, context_id="c1")) == ([task.id], {1})
    await store.delete(task.id)
    assert (await walk(store, status=TaskState.WORKING)) == ([], {0})
    assert (await walk(store, context_id="c1")) == ([], {0})


async def test_a_task_whose_status_has_no_time_comes_last(store: Any) -> None:
    timeless = a_task(id="a-timeless")
    timeless.status.timestamp = None
    await store.save(timeless)
    timed = await begin(store)
    assert (await walk(store, page_size=1)) == ([timed.task.id, "a-timeless"], {2})
    assert (await walk(store, status_timestamp_after=T0))[0] == [timed.task.id]


def forged(token: str, *fields: Any) -> str:
    """The token with other contents and its own digest, which no secret protects."""
    *_, digest = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    return base64.urlsafe_b64encode(orjson.dumps([*fields, digest])).decode().rstrip("=")


@pytest.mark.parametrize(
    "fields",
    [
        (2**63 + 5, "x", 1),
        (-(2**63), "x", 1),
        (1.5, "x", 1),
        (True, "x", 1),
        (1, "a\0b", 1),
        (1, 7, 1),
        (1, "x", 2**31),
        (1, "x", -1),
        (1, "x", None),
        (1, "x"),
        (1, "x", 1, 1),
    ],
    ids=repr,
)
async def test_a_forged_token_is_refused_as_a_parameter(store: Any, fields: tuple[Any, ...]) -> None:
    await begin(store)
    await begin(store)
    token = (await store.list(ListTasksRequest(page_size=1))).next_page_token
    with pytest.raises(InvalidParamsError) as refusal:
        await store.list(ListTasksRequest(page_size=1, page_token=forged(token, *fields)))
    assert refusal.value.violations[0].field == "pageToken"


@pytest.mark.parametrize("document", [b"{}", b'"abcd"', b"null", b"7", b"[[],{},[],[]]", b"[" * 5000, b"\xff", b""])
async def test_a_token_that_is_something_else_is_refused(store: Any, document: bytes) -> None:
    token = base64.urlsafe_b64encode(document).decode().rstrip("=") or "="
    with pytest.raises(InvalidParamsError):
        await store.list(ListTasksRequest(page_token=token))
