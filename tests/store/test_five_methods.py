"""What `TaskStore` gives a store of five methods: the defaults work, and what it cannot do it refuses loudly."""

from collections.abc import Collection, Sequence

import pytest

from app.protocol import ANONYMOUS, Owner, Task, TaskState
from app.protocol.errors import PushNotificationNotSupportedError, UnsupportedOperationError
from app.protocol.events import update_of
from app.protocol.push import TaskPushNotificationConfig
from app.store.base import (
    ArtifactDelta,
    Claimed,
    Commit,
    ContextMismatch,
    Ended,
    FencedError,
    KeyClaimed,
    Lease,
    NewTask,
    NotFound,
    TaskStore,
)
from app.store.push_configs import ConfigKey, DeliveryReport, PushDelivery
from app.store.turns import TurnStore
from tests.five_methods import FiveMethodStore
from tests.store.values import OTHER, Turn, a_task, begin, chunk, ended, new_task, new_turn

KEY = "0123456789abcdef"


class Watched(FiveMethodStore):
    """Notes which way a change came."""

    def __init__(self) -> None:
        super().__init__()
        self.ways: list[str] = []

    async def save_artifact_delta(self, task: Task, delta: ArtifactDelta) -> None:
        self.ways.append(f"delta append={delta.append}")
        await super().save_artifact_delta(task, delta)

    async def save(self, task: Task) -> None:
        self.ways.append("save")
        await super().save(task)


class Keyed(FiveMethodStore):
    """Five methods and an index of keys."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[str, tuple[str, str]] = {}
        self.broken = False

    async def claim_idempotency_key(self, key: str, message_id: str, task_id: str) -> KeyClaimed:
        self.keys[key] = (message_id, task_id)
        return KeyClaimed()

    async def release_idempotency_key(self, key: str) -> None:
        self.keys.pop(key, None)

    async def save(self, task: Task) -> None:
        if self.broken:
            raise OSError("the disk is full")
        await super().save(task)


class Pushing(FiveMethodStore):
    """Five methods and a place for webhooks."""

    def __init__(self) -> None:
        super().__init__()
        self.configs: list[tuple[Owner, TaskPushNotificationConfig, int | None]] = []

    async def put_push_config(self, owner: Owner, config: TaskPushNotificationConfig, after: int | None = None) -> bool:
        self.configs.append((owner, config, after))
        return True

    async def get_push_config(self, owner: Owner, task_id: str, config_id: str) -> TaskPushNotificationConfig | None:
        raise NotImplementedError

    async def list_push_configs(self, owner: Owner, task_id: str) -> Sequence[TaskPushNotificationConfig] | None:
        raise NotImplementedError

    async def delete_push_config(self, owner: Owner, task_id: str, config_id: str) -> bool:
        raise NotImplementedError

    async def claim_deliveries(
        self, lease: Lease, *, fresh: int, failed: int, task_ids: Collection[str] | None = None
    ) -> Sequence[PushDelivery]:
        raise NotImplementedError

    async def record_deliveries(self, lease: Lease, reports: Sequence[DeliveryReport]) -> frozenset[ConfigKey]:
        raise NotImplementedError


async def test_it_promises_nothing_it_cannot_keep() -> None:
    store = FiveMethodStore()
    assert not store.supports_idempotency()
    assert not store.supports_event_log()
    assert not store.supports_owners()
    assert not isinstance(store, TurnStore)
    assert await store.count() == 0
    await store.ping()
    async with store as entered:
        assert entered is store


async def test_a_keyed_task_is_refused_and_nothing_is_stored() -> None:
    store = FiveMethodStore()
    with pytest.raises(UnsupportedOperationError):
        await store.create_task(new_task(key=KEY))
    assert store.tasks == {}


async def test_a_keyed_turn_is_refused_and_nothing_is_changed() -> None:
    store = FiveMethodStore()
    turn = await begin(store)
    before = await store.get(turn.task.id)
    with pytest.raises(UnsupportedOperationError):
        await store.begin_turn(new_turn(turn.task.id, key=KEY))
    assert await store.get(turn.task.id) == before


async def test_a_webhook_is_refused_where_there_is_no_place_for_it() -> None:
    store = FiveMethodStore()
    config = TaskPushNotificationConfig(task_id="t", id="c", url="https://example.com")
    with pytest.raises(PushNotificationNotSupportedError):
        await store.create_task(NewTask(a_task(id="t"), push_config=config))
    turn = await begin(store)
    before = await store.get(turn.task.id)
    with pytest.raises(PushNotificationNotSupportedError):
        await store.begin_turn(new_turn(turn.task.id, push_config=config))
    assert await store.get(turn.task.id) == before


async def test_a_webhook_is_stored_with_its_turn_where_there_is_a_place_for_it() -> None:
    store = Pushing()
    task = a_task()
    config = TaskPushNotificationConfig(task_id=task.id, id="c", url="https://example.com")
    claimed = await store.create_task(NewTask(task, push_config=config))
    assert isinstance(claimed, Claimed)
    await Turn(store, claimed).say(TaskState.INPUT_REQUIRED)
    again = config.model_copy(update={"id": "d"})
    assert isinstance(await store.begin_turn(new_turn(task.id, push_config=again)), Claimed)
    assert [(owner, kept) for owner, kept, _ in store.configs] == [(ANONYMOUS, config), (ANONYMOUS, again)]
    assert store.configs[0][2] == 0


async def test_the_bare_methods_it_lacks_say_so() -> None:
    store = FiveMethodStore()
    task = a_task()
    await store.save(task)
    for call in (
        store.claim_idempotency_key(KEY, "m", task.id),
        store.release_idempotency_key(KEY),
        store.append_event(task.id, 1, task),
        store.last_event_seq(task.id),
        store.read_events(task.id, 0, 10),
    ):
        with pytest.raises(UnsupportedOperationError):
            await call


async def test_it_cannot_say_where_its_log_begins_and_so_proves_no_gap() -> None:
    store = FiveMethodStore()
    assert await store.earliest_event_seq("any") is None
    assert await store.event_log_covers("any", 7)


async def test_a_turn_runs_from_its_creation_to_its_end() -> None:
    store = FiveMethodStore()
    new = new_task()
    claimed = await store.create_task(new)
    assert isinstance(claimed, Claimed)
    assert (claimed.epoch, claimed.first_seq, claimed.entry.event) == (0, 1, new.task)
    turn = Turn(store, claimed)
    assert await turn.commit(chunk(turn.task, "x")) == 0
    await turn.say(TaskState.INPUT_REQUIRED, "which?")
    follow_up = new_turn(turn.task.id, "the red one")
    again = await store.begin_turn(follow_up)
    assert isinstance(again, Claimed)
    assert [message.parts[0].text for message in again.task.history] == ["hello", "which?", "the red one"]
    turn = Turn(store, again)
    await turn.say(TaskState.COMPLETED)
    assert await store.get(turn.task.id) == turn.task
    snapshot = await store.snapshot(turn.task.id)
    assert snapshot is not None
    assert (snapshot.task, snapshot.seq, snapshot.earliest_seq, snapshot.running) == (turn.task, 0, 0, False)
    assert await store.snapshot("nowhere") is None


async def test_an_id_is_created_once() -> None:
    store = FiveMethodStore()
    new = new_task()
    await store.create_task(new)
    with pytest.raises(FencedError):
        await store.create_task(NewTask(new.task))


async def test_a_message_is_refused_for_what_it_is() -> None:
    store = FiveMethodStore()
    done = await ended(store)
    assert await store.begin_turn(new_turn(done.task.id)) == Ended(TaskState.COMPLETED)
    running = await begin(store)
    assert await store.begin_turn(new_turn(running.task.id, context_id="other")) == ContextMismatch()
    assert await store.begin_turn(new_turn("nowhere")) == NotFound()


async def test_cancelling_answers_by_the_state() -> None:
    store = FiveMethodStore()
    running = await begin(store)
    assert isinstance(await store.begin_cancel(running.task.id, OTHER), Claimed)
    done = await ended(store)
    assert await store.begin_cancel(done.task.id, OTHER) == Ended(TaskState.COMPLETED)
    assert await store.begin_cancel("nowhere", OTHER) == NotFound()


async def test_a_commit_of_one_artifact_goes_by_the_delta_and_any_other_by_save() -> None:
    store = Watched()
    turn = await begin(store)
    store.ways.clear()
    await turn.commit(chunk(turn.task, "a"))
    assert store.ways == ["delta append=True", "save"]
    store.ways.clear()
    await turn.commit(chunk(turn.task, "b", append=False))
    assert store.ways == ["delta append=False", "save"]
    store.ways.clear()
    await turn.commit(chunk(turn.task, "c"), chunk(turn.task, "d"))
    assert store.ways == ["save"]
    store.ways.clear()
    await turn.say(TaskState.COMPLETED)
    assert store.ways == ["save"]
    assert await store.get(turn.task.id) == turn.task


async def test_the_working_task_of_a_commit_is_not_the_stores() -> None:
    store = FiveMethodStore()
    turn = await begin(store)
    event = chunk(turn.task, "a")
    await turn.commit(event)
    kept = await store.get(turn.task.id)
    turn.task.history.clear()
    assert await store.get(turn.task.id) == kept
    await store.commit(Commit(turn.task.id, 0, [update_of(event)], turn.task))


@pytest.mark.parametrize("failure", ["id taken", "store breaks"])
async def test_every_failure_after_the_claim_frees_the_key(failure: str) -> None:
    store = Keyed()
    new = new_task(key=KEY)
    if failure == "id taken":
        await store.save(new.task)
    else:
        store.broken = True
    with pytest.raises((FencedError, OSError)):
        await store.create_task(new)
    assert store.keys == {}


async def test_a_refused_or_failed_turn_frees_the_key() -> None:
    store = Keyed()
    done = await ended(store)
    assert await store.begin_turn(new_turn(done.task.id, key=KEY)) == Ended(TaskState.COMPLETED)
    assert await store.begin_turn(new_turn("nowhere", key=KEY)) == NotFound()
    turn = await begin(store)
    store.broken = True
    with pytest.raises(OSError, match="full"):
        await store.begin_turn(new_turn(turn.task.id, key=KEY))
    assert store.keys == {}


async def test_it_serves_the_anonymous_owner_only() -> None:
    store: TaskStore = FiveMethodStore()
    assert store.for_owner(ANONYMOUS) is store
    for owner in (Owner("acme"), Owner("", "alice"), Owner("acme", "alice")):
        with pytest.raises(UnsupportedOperationError):
            store.for_owner(owner)
